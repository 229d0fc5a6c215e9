"""The diagnosis of a run as sections of a page."""

from __future__ import annotations

from ..analysis.diagnose import LEVELS, ClassReport, Diagnosis
from ..analysis.diagnose_heads import DomainReport, HeadDiagnosis
from .charts import Series
from .html import Section, lines_section, rows_section

DIAGNOSIS_COLUMNS = {
    "Class": "",
    "Images": "images whose zero-shot label is the class",
    "Full, %": "filled local slots at the end, mean over clients",
    "Without, %": "clients that end with no item of the class",
    "Empty queries, %": "exchanges at which a client had no prototype of its own for the class",
    "Nothing to read, %": "predictions with nothing stored for the class",
    "External, %": "items from other clients among those read",
    "Silenced, %": "predictions at which the released code's gate silences the class, of those with something stored",
    "Local entropy": "median of the items in local memories at the end",
    "External entropy": "median of the prototypes in external memories at the end",
}


def diagnosis_sections(diagnosis: Diagnosis) -> list[Section]:
    """Return the table per class, and how certain images and items are."""
    where = f"{diagnosis.method} on {diagnosis.benchmark}"
    rows = [_row(report) for report in (diagnosis.total, *diagnosis.classes)]
    caption = (
        f"Seed {diagnosis.seed}, one seed, replayed: {diagnosis.clients} clients, {diagnosis.samples:,} images, "
        f"accuracy {diagnosis.accuracy:.2f} %. Entropies are medians, 0 certain and 1 no idea. "
        "A click on a heading sorts by it."
    )
    notes = [f"{name}: {text}." for name, text in DIAGNOSIS_COLUMNS.items() if text]
    table = rows_section(f"Memories, class by class: {where}", list(DIAGNOSIS_COLUMNS), rows, caption, notes)
    series = [Series(name, LEVELS, below) for name, below in diagnosis.below.items()]
    words = "Share of the images, and of the items stored at the end, that are at most this uncertain."
    return [table, lines_section(f"How certain: {where}", series, "entropy, 0 to 1", "share, %", words)]


def _row(report: ClassReport) -> list[str | float | None]:
    return [
        report.name,
        report.images,
        report.full,
        report.without,
        report.empty_queries,
        report.unreadable,
        report.external,
        report.silenced,
        report.local_entropy[1] if report.local_entropy else None,
        report.external_entropy[1] if report.external_entropy else None,
    ]


HEAD_COLUMNS = {
    "Domain": "",
    "Clients": "",
    "Images": "",
    "Accuracy, %": "of Ristretto, over the images of the domain",
    "Trust": "the evidence weight w at the end, from 0 to 1, mean over clients",
    "Evidence": "images that a head rests on, mean over clients",
    "Own, %": "the client's own among them",
    "Inside, %": "of the evidence of others, how much comes from the client's own domain",
}


def heads_sections(diagnosis: HeadDiagnosis) -> list[Section]:
    """Return the table per domain, how trust grows, and the spectrum of the covariance."""
    where = f"{diagnosis.method} on {diagnosis.benchmark}"
    rows = [_head_row(report) for report in (diagnosis.total, *diagnosis.domains)]
    answers = diagnosis.zero_shot
    caption = (
        f"Seed {diagnosis.seed}, one seed, replayed: {diagnosis.clients} clients, {diagnosis.samples:,} images, "
        f"accuracy {diagnosis.accuracy:.2f} %, zero-shot {answers.accuracy:.2f} %. If everyone's evidence counted "
        f"alike, {diagnosis.chance:.1f} % of it would come from the own domain; at best it is {diagnosis.best()}, "
        f"with heads that use their own domain only. {answers.warning() or ''}"
    )
    notes = [f"{name}: {text}." for name, text in HEAD_COLUMNS.items() if text]
    trust = Series("trust", tuple(map(float, diagnosis.trust_after)), tuple(diagnosis.trust_after.values()))
    spectrum = Series("share", tuple(range(1, len(diagnosis.spectrum) + 1)), diagnosis.spectrum)
    words = f"Images spread around their classes as if in {diagnosis.directions:.0f} equal directions."
    sections = [rows_section(f"Heads, domain by domain: {where}", list(HEAD_COLUMNS), rows, caption, notes)]
    if len(diagnosis.trust_after) > 1:
        sections.append(lines_section(f"Trust: {where}", [trust], "images of a client", "trust of its head, 0 to 1"))
    sections.append(lines_section(f"Covariance: {where}", [spectrum], "eigenvalue", "share of all, %", words))
    return sections


def _head_row(report: DomainReport) -> list[str | float | None]:
    return [
        report.name,
        report.clients,
        report.images,
        report.accuracy,
        report.trust,
        report.evidence,
        report.own,
        report.inside,
    ]
