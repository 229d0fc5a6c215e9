"""``latte report`` and ``diagnose``: run folders as tables and pages, and what the memories of a run hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..errors import refuse
from .options import JSON, PLUGINS, Command, Folder, OutputFile, load_plugins
from .output import bar, block, line, print_rows, problem, terminal_width

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
@PLUGINS
def report(
    runs: tuple[Path, ...],
    kind: str | None,
    out: Path | None,
    backbone: str | None,
    width: int | None,
    plugins: tuple[Path, ...],
) -> None:
    """Show the results of run folders as a table or a page.

    The table has the accuracy in total and per domain, the gain over zero-shot, the worst client and domain, the change
    over time, and which differences may be noise.

    RUNS are run folders, or folders that hold some. Every benchmark gets a table of its own, a sweep its curve. The
    points of a tuning are folded away, unless its folder is one of RUNS. The paper's numbers stand beside yours only
    where the benchmark is the paper's and the data was made with the paper's CLIP encoder.
    """
    from ..experiment.collection import collect
    from ..report.contents import build_report
    from ..report.formats.text import TEXT_WIDTH
    from ..report.page.sections import render_report

    load_plugins(plugins)
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


@click.command()
@click.argument("runs", nargs=-1, required=True, type=Folder(exists=True))
@click.option("--form", "forms", multiple=True, type=click.Choice(["local", "global", "collaborative"]), help=(
    "Only methods of this form, beside zero-shot; may be repeated."
))  # fmt: skip
@PLUGINS
@click.option("--json", "kind", flag_value="json", help="Print JSON, like --format json.")
@click.option("--out", type=OutputFile(makes_folder=True), help="Write to this file instead of stdout.")
@click.option(
    "--format",
    "kind",
    type=click.Choice(("text", "markdown", "json", "html")),
    help="Default: what the name of --out ends in, else text.",
)
def leaderboard(
    runs: tuple[Path, ...], forms: tuple[str, ...], plugins: tuple[Path, ...], kind: str | None, out: Path | None
) -> None:
    """Rank the methods over all sets of run folders.

    RUNS are run folders, or folders that hold some; every set needs zero-shot (clip) in one of its runs. Each set gets
    a column: points over zero-shot, and the rank among all rows. With runs that stored the answers (latte run
    --predictions), both have intervals over splits and images. Sets with many views of an image have a board of their
    own. The page (--out board.html) sorts, and filters by form. With --plugin, methods of your own have their form and
    origin.
    """
    from ..experiment.collection import collect
    from ..report.formats.text import TEXT_WIDTH
    from ..report.leaderboard import build_leaderboard, render_leaderboard

    kind = kind or format_of(out)
    if kind not in ("text", "markdown", "json", "html"):
        raise refuse("--out", str(out), "a name that ends in .txt, .md, .json or .html, or --format")
    load_plugins(plugins)
    collection = collect(runs)
    for note in collection.notes():
        line(note, err=True)
    boards = build_leaderboard(collection, forms)
    if kind == "html":
        from ..report.page.sections import leaderboard_page

        write_output(leaderboard_page(boards), out)
    else:
        columns = (terminal_width() if out is None else None) or TEXT_WIDTH
        write_output(render_leaderboard(boards, kind, columns), out)


@click.command()
@click.argument("run", type=Folder(exists=True))
@click.option("--method", "label", help="Label of a Latte or Ristretto of the run (default: the first).")
@click.option("--seed", type=click.IntRange(0), help="One of the run's seeds (default: the first).")
@click.option("--data", type=Folder(), help="Folder of the embedding files, if they have moved since the run.")
@click.option(
    "--out", type=OutputFile(makes_folder=True), help="Write the diagnosis to this file, too, as an HTML page."
)
@JSON
def diagnose(
    run: Path, label: str | None, seed: int | None, data: Path | None, out: Path | None, as_json: bool
) -> None:
    """Look into the memories or heads of RUN, a folder that latte run wrote.

    With Latte, it shows what the memories hold, class by class. With Ristretto, it shows how far heads are trusted,
    whose evidence they rest on, and the spectrum of the covariance. There is a warning if the zero-shot model has
    collapsed (most of its predictions are one class), since every method learns from its predictions.

    One seed is replayed with the readable simulator. The diagnosis is stored in the folder and is a section of its
    report from then on (latte report RUN --format html).
    """
    from ..analysis.diagnose import Diagnosis, HeadDiagnosis, open_replay, replay_run
    from ..analysis.stats import zero_shot_answers
    from ..files.atomic import check_writable_folder, write_text
    from ..report.page import sections

    planned = open_replay(run, data, label, seed)
    check_writable_folder(planned.run.folder, "run")
    with bar(planned.method.label[:12], planned.federation.samples) as advance:
        diagnosis = replay_run(planned, advance)
    line(f"wrote {diagnosis.save(planned.run.folder)}", err=True)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        title = f"Diagnosis: {diagnosis.method} on {diagnosis.benchmark}"
        write_text(out, sections.render_page(title, sections.diagnosis_sections(diagnosis)))
        line(f"wrote {out}", err=True)
    if as_json:
        block(diagnosis.to_json())
        return
    line(
        f"{diagnosis.method} on {diagnosis.benchmark}, seed {diagnosis.seed} (one seed, replayed): "
        f"{diagnosis.clients} clients, {diagnosis.samples} images, accuracy {diagnosis.accuracy:.2f} %"
    )
    answers = zero_shot_answers(planned.federation)
    frequent = f"{answers.share:.0f} % of its predictions are {answers.most_frequent!r}"
    line(f"zero-shot: accuracy {answers.accuracy:.2f} %; {frequent}")
    if warning := answers.warning():
        problem(f"warning: {warning}")
    line("")
    reports: tuple[Any, ...]
    if isinstance(diagnosis, Diagnosis):
        columns, reports = sections.DIAGNOSIS_COLUMNS, (diagnosis.total, *diagnosis.classes)
    else:
        columns, reports = sections.HEAD_COLUMNS, (diagnosis.total, *diagnosis.domains)
    print_rows([dict(zip(columns, sections.report_cells(one), strict=True)) for one in reports], False)
    line("")
    if isinstance(diagnosis, HeadDiagnosis):
        growth = ", ".join(f"{trust:.2f} after {images}" for images, trust in diagnosis.trust_after.items())
        line(f"trust of a head by the images of its client: {growth}")
        shares = " ".join(f"{share:.1f}" for share in diagnosis.spectrum)
        line(f"covariance: largest eigenvalues in % of all: {shares}; as {diagnosis.directions:.0f} equal directions")
        line(f"inside: {diagnosis.chance:.1f} % if everyone's evidence counted alike, at best {diagnosis.best()}")
        line("")
    for note in sections.column_notes(columns):
        line(note)
