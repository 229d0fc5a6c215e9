"""``latte diagnose``: what the memories of a run hold."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .options import JSON, Folder, OutputFile
from .output import bar, block, line, print_rows, problem

if TYPE_CHECKING:
    from ..analysis.diagnose import ClassReport, DomainReport


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

    Of Latte: what the memories hold, class by class. Of Ristretto: how far heads are trusted, whose evidence they rest
    on, and the spectrum of the covariance. A zero-shot model that has collapsed (most predictions are one class) is
    reported with a warning, since every method learns from its predictions.

    One seed is replayed with the readable simulator. The diagnosis is stored in the folder and is a section of its
    report from then on (latte report RUN --format html).
    """
    from ..analysis.diagnose import Diagnosis, open_replay, save_diagnosis
    from ..analysis.diagnose import replay_run as replay
    from ..analysis.stats import zero_shot_answers
    from ..files.atomic import check_writable_folder, write_text
    from ..report.page.sections import diagnosis_sections, heads_sections, render_page

    planned = open_replay(run, data, label, seed)
    check_writable_folder(planned.run.folder, "run")
    with bar(planned.method.label[:12], planned.federation.samples) as advance:
        diagnosis = replay(planned, advance)
    line(f"wrote {save_diagnosis(diagnosis, planned.run.folder)}", err=True)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        title = f"Diagnosis: {diagnosis.method} on {diagnosis.benchmark}"
        sections = diagnosis_sections(diagnosis) if isinstance(diagnosis, Diagnosis) else heads_sections(diagnosis)
        write_text(out, render_page(title, sections))
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
    if isinstance(diagnosis, Diagnosis):
        print_rows([_row(report) for report in (diagnosis.total, *diagnosis.classes)], False)
        block(_DIAGNOSE_NOTES)
        return
    print_rows([_head_row(report) for report in (diagnosis.total, *diagnosis.domains)], False)
    growth = ", ".join(f"{trust:.2f} after {images}" for images, trust in diagnosis.trust_after.items())
    line("")
    line(f"trust of a head by the images of its client: {growth}")
    shares = " ".join(f"{share:.1f}" for share in diagnosis.spectrum)
    line(f"covariance: largest eigenvalues in % of all: {shares}; as {diagnosis.directions:.0f} equal directions")
    block(_HEAD_NOTES.format(chance=diagnosis.chance, best=diagnosis.best()))


def _head_row(report: DomainReport) -> dict[str, Any]:
    return {
        "domain": report.name,
        "clients": report.clients,
        "images": report.images,
        "accuracy %": _number(report.accuracy),
        "trust": f"{report.trust:.2f}",
        "evidence": _number(report.evidence),
        "own %": _number(report.own),
        "inside %": _number(report.inside),
    }


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


_DIAGNOSE_NOTES = """
full: filled local slots at the end. without: clients that end with no item. empty queries: syncs at which a client
had no prototype of its own. nothing to read: predictions with nothing stored. external: items from others among those
read. silenced: what the gate of the released code silences of the classes with something stored.
entropy: 10, 50 and 90 % of the stored items are at most this uncertain (0 certain, 1 no idea).
"""

_HEAD_NOTES = """
trust: the evidence weight w of a head at the end, 0 to 1. evidence: the images it rests on. own: those of the client
itself. inside: of the others, those of the client's own domain; {chance:.1f} % if everyone's counted alike, at best
{best}, with heads that use their own domain only.
"""
