"""The report of runs as a page: tables, differences with their intervals, diagnoses, and the origin of the numbers."""

from __future__ import annotations

from collections.abc import Sequence

from ..analysis.diagnose_run import load_diagnosis, load_heads
from ..experiment.runs import Run
from .diagnosis import diagnosis_sections, heads_sections
from .formats import render
from .html import Section, differences_section, manifest_section, render_page, table_section
from .result_table import ResultTable


def render_report(tables: Sequence[ResultTable], runs: Sequence[Run], kind: str) -> str:
    """Return ``tables`` in any format, "html" among them."""
    return report_page(tables, runs) if kind == "html" else render(tables, kind)


def report_page(tables: Sequence[ResultTable], runs: Sequence[Run], title: str = "Latte: results") -> str:
    """Return the page that ``latte report --format html`` writes."""
    sections = [section for table in tables for section in _table(table)]
    sections += [section for run in runs for section in _diagnosis(run)]
    sections += [section for run in runs for section in _origin(run)]
    return render_page(title, sections)


def _table(table: ResultTable) -> list[Section]:
    sections = [table_section(table)]
    pairs = table.against_reference()
    if pairs:
        sections.append(differences_section(f"{table.reference} against the others on {table.benchmark}", pairs))
    return sections


def _diagnosis(run: Run) -> list[Section]:
    """Return the sections of the diagnosis in a run folder; none where ``latte diagnose`` has not been run."""
    memories, heads = load_diagnosis(run.folder), load_heads(run.folder)
    sections = diagnosis_sections(memories) if memories else []
    return sections + (heads_sections(heads) if heads else [])


def _origin(run: Run) -> list[Section]:
    facts = {**run.manifest, **({"configuration": run.config} if run.config else {})}
    return [manifest_section(f"Where the numbers come from: {run.folder.name}", facts)] if facts else []
