"""``latte report``: tables from run folders."""

from __future__ import annotations

from pathlib import Path

import click

from .arguments import Folder, OutputFile
from .output import block, line, terminal_width

FORMAT_NAMES = ("text", "markdown", "latex", "json", "csv", "html")


@click.command()
@click.argument("runs", nargs=-1, required=True, type=Folder(exists=True))
@click.option("--format", "kind", type=click.Choice(FORMAT_NAMES), help="Default: what --out ends in, else text.")
@click.option("--out", type=OutputFile(makes_folder=True), help="Write to a file instead of stdout.")
@click.option(
    "--paper-backbone",
    type=click.Choice(["ViT-B/16", "RN50"]),
    help="The CLIP encoder of the data, where the data file does not say: shows the paper's numbers beside yours.",
)
@click.option("--width", type=click.IntRange(40), help="Of text, in characters [default: the terminal's, else 118].")
def report(
    runs: tuple[Path, ...], kind: str | None, out: Path | None, paper_backbone: str | None, width: int | None
) -> None:
    """Show the results of run folders: per domain, total, gain over CLIP, the worst client, and what is noise.

    RUNS are run folders, or folders that hold some. Every benchmark gets a table of its own, a sweep its curve. The
    points of a tuning are folded away, unless its folder is one of RUNS. The paper's numbers stand beside yours only
    where the benchmark is the paper's and the data was made with the paper's CLIP encoder.
    """
    from ..experiment.collection import collect
    from ..report.contents import build_report
    from ..report.page import render_report

    collection = collect(runs)
    for note in collection.notes():
        line(note, err=True)
    contents = build_report(collection, paper_backbone)
    write_output(render_report(contents, kind or format_of(out), text_width(width, out)), out)


def text_width(width: int | None, out: Path | None) -> int:
    """Return the width of text: as it was given, that of the terminal, or that of a file."""
    from ..report.plain_text import TEXT_WIDTH

    return width or (terminal_width() if out is None else None) or TEXT_WIDTH


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
