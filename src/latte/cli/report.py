"""``latte report``: run folders as a table or a page."""

from __future__ import annotations

from pathlib import Path

import click

from .options import Command, Folder, OutputFile
from .output import block, line, terminal_width

BACKBONES = click.Choice(["ViT-B/16", "RN50"])


def report_options(command: Command) -> Command:
    """Add the options that say where a report goes, and in which format."""
    formats = click.Choice(("text", "markdown", "latex", "json", "csv", "html"))
    for option in (
        click.option("--json", "kind", flag_value="json", help="Print JSON, like --format json."),
        click.option("--out", type=OutputFile(makes_folder=True), help="Write to this file instead of stdout."),
        click.option("--format", "kind", type=formats, help="Default: what the name of --out ends in, else text."),
    ):
        command = option(command)
    return command


@click.command()
@click.argument("runs", nargs=-1, required=True, type=Folder(exists=True))
@report_options
@click.option(
    "--backbone", type=BACKBONES, help="The paper's encoder that made the data, where the data file does not name it."
)
@click.option(
    "--width", type=click.IntRange(40), help="Characters in a line of text (default: the terminal's, else 118)."
)
def report(runs: tuple[Path, ...], kind: str | None, out: Path | None, backbone: str | None, width: int | None) -> None:
    """Show the results of run folders: per domain, total, gain over CLIP, the worst client, and what is noise.

    RUNS are run folders, or folders that hold some. Every benchmark gets a table of its own, a sweep its curve. The
    points of a tuning are folded away, unless its folder is one of RUNS. The paper's numbers stand beside yours only
    where the benchmark is the paper's and the data was made with the paper's CLIP encoder.
    """
    from ..experiment.collection import collect
    from ..report.contents import build_report
    from ..report.formats.text import TEXT_WIDTH
    from ..report.page.sections import render_report

    collection = collect(runs)
    for note in collection.notes():
        line(note, err=True)
    contents = build_report(collection, backbone)
    columns = width or (terminal_width() if out is None else None) or TEXT_WIDTH
    write_output(render_report(contents, kind or format_of(out), columns), out)


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
    endings = {".md": "markdown", ".tex": "latex", ".json": "json", ".csv": "csv", ".html": "html", ".htm": "html"}
    return endings.get(out.suffix.lower(), "text") if out is not None else "text"
