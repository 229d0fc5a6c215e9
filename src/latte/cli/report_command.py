"""``latte report``: tables from run folders."""

from __future__ import annotations

from pathlib import Path

import click

from .arguments import Folder
from .output import block, line

FORMAT_NAMES = ("text", "markdown", "latex", "json", "html")


@click.command()
@click.argument("runs", nargs=-1, required=True, type=Folder(exists=True))
@click.option("--format", "kind", type=click.Choice(FORMAT_NAMES), help="Default: what --out ends in, else text.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write to a file instead of stdout.")
@click.option(
    "--paper-backbone",
    type=click.Choice(["ViT-B/16", "RN50"]),
    help="The CLIP encoder of the data, where the data file does not say: shows the paper's numbers beside yours.",
)
def report(runs: tuple[Path, ...], kind: str | None, out: Path | None, paper_backbone: str | None) -> None:
    """Show the results of run folders: per domain, total, gain over CLIP, and what is noise.

    RUNS are run folders, or folders that hold some. Every benchmark gets a table of its own. The paper's numbers stand
    beside yours only where the benchmark is the paper's and the data was made with the paper's CLIP encoder.
    """
    from ..experiment.runs import encoders, find_runs, merged, read_run
    from ..report.page import render_report
    from ..report.tables import build_tables

    contents = [read_run(folder) for folder in find_runs(runs)]
    for run in contents:
        if note := run.note():
            line(note, err=True)
    tables = build_tables(merged(contents), encoders(contents), paper_backbone)
    write_output(render_report(tables, contents, kind or format_of(out)), out)


def write_output(text: str, out: Path | None) -> None:
    """Write to a file, or to stdout."""
    if out is None:
        block(text)
        return
    from ..files.atomic import write_text

    out.parent.mkdir(parents=True, exist_ok=True)
    write_text(out, text)
    line(f"wrote {out}", err=True)


def format_of(out: Path | None) -> str:
    """Return the format for the ending of a file name; text for any other."""
    endings = {".md": "markdown", ".tex": "latex", ".json": "json", ".html": "html", ".htm": "html"}
    return endings.get(out.suffix.lower(), "text") if out is not None else "text"
