"""``latte diagnose``: look into the memories of a run, class by class."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .arguments import Folder
from .output import block, line, print_rows

if TYPE_CHECKING:
    from ..analysis.diagnose import ClassReport, Diagnosis


@click.command()
@click.argument("run", type=Folder(exists=True))
@click.option("--method", "label", help="Label of a Latte method of the run (default: the first).")
@click.option("--seed", type=click.IntRange(0), help="One of the run's seeds (default: the first).")
@click.option("--data", type=Folder(), help="Where the data is now, if it moved.")
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), help="Write a page of its own, too.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def diagnose(
    run: Path, label: str | None, seed: int | None, data: Path | None, html: Path | None, as_json: bool
) -> None:
    """Look into the memories of RUN, a folder that latte run wrote.

    One seed is replayed with the readable simulator. The diagnosis is stored in the folder and is a section of its
    report from then on (latte report RUN --format html).
    """
    from ..analysis.diagnose_run import open_replay, replay, save_diagnosis
    from .progress import bar

    planned = open_replay(run, data, label, seed)
    with bar(planned.method.label[:12], planned.federation.samples) as advance:
        diagnosis = replay(planned, advance)
    line(f"wrote {save_diagnosis(diagnosis, planned.run.folder)}", err=True)
    if html is not None:
        _write_page(diagnosis, html)
    if as_json:
        block(diagnosis.to_json())
    else:
        _print(diagnosis)


def _print(diagnosis: Diagnosis) -> None:
    line(
        f"{diagnosis.method} on {diagnosis.benchmark}, seed {diagnosis.seed} (one seed, replayed): "
        f"{diagnosis.clients} clients, {diagnosis.samples} images, accuracy {diagnosis.accuracy:.2f} %"
    )
    line("")
    print_rows([_row(report) for report in (diagnosis.total, *diagnosis.classes)], False)
    block(_NOTES)


def _row(report: ClassReport) -> dict[str, Any]:
    return {
        "class": report.name,
        "images": report.images,
        "full %": _number(report.full),
        "without %": _number(report.without),
        "empty queries %": _number(report.empty_queries),
        "nothing to read %": _number(report.unreadable),
        "external %": _number(report.external),
        "silenced %": _number(report.silenced),
        "local entropy": _spread(report.local_entropy),
        "external entropy": _spread(report.external_entropy),
    }


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _spread(values: tuple[float, ...] | None) -> str:
    return "-" if values is None else " ".join(f"{value:.2f}" for value in values)


def _write_page(diagnosis: Diagnosis, path: Path) -> None:
    from ..files.atomic import write_text
    from ..report.diagnosis import diagnosis_sections
    from ..report.html import render_page

    path.parent.mkdir(parents=True, exist_ok=True)
    title = f"Diagnosis: {diagnosis.method} on {diagnosis.benchmark}"
    write_text(path, render_page(title, diagnosis_sections(diagnosis)))
    line(f"wrote {path}", err=True)


_NOTES = """
full: filled local slots at the end. without: clients that end with no item. empty queries: exchanges at which a client
had no prototype of its own. nothing to read: predictions with nothing stored. external: items from others among those
read. silenced: what the gate of the released code silences of the classes with something stored.
entropy: 10, 50 and 90 % of the stored items are at most this uncertain (0 certain, 1 no idea).
"""
