"""The report of runs as a page: tables, differences, sweeps, diagnoses, and the origin of the numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..analysis.diagnose_run import load_diagnosis, load_heads
from ..experiment.runs import Run
from .contents import Report
from .diagnosis import diagnosis_sections, heads_sections
from .formats import render
from .html import (
    Section,
    deployment_section,
    differences_section,
    folded_section,
    manifest_section,
    render_page,
    table_section,
)
from .plain_text import TEXT_WIDTH
from .result_table import ResultTable
from .sweep_page import sweep_section, tuning_section
from .sweep_table import SweepTable


def render_report(report: Report, kind: str, width: int = TEXT_WIDTH) -> str:
    """Return a report in any format, "html" among them; ``width`` is that of text."""
    if kind == "html":
        return report_page(report.tables, report.runs, sweeps=report.sweeps)
    return render(report.tables, kind, report.sweeps, width)


def report_page(
    tables: Sequence[ResultTable],
    runs: Sequence[Run],
    title: str = "Latte: results",
    sweeps: Sequence[SweepTable] = (),
) -> str:
    """Return the page that ``latte report --format html`` writes."""
    sections = [section for table in tables for section in _table(table)]
    sections += [sweep_section(sweep) for sweep in sweeps if not sweep.folded]
    searches = [sweep for sweep in sweeps if sweep.folded]
    sections += [tuning_section(searches)] if searches else []
    sections += [section for run in runs for section in _diagnosis(run)]
    origins = [manifest_section(run.folder.name, facts) for run in runs if (facts := _origin(run))]
    sections += [folded_section("Where the numbers come from", origins)] if origins else []
    return render_page(title, sections)


def _table(table: ResultTable) -> list[Section]:
    sections = [table_section(table), deployment_section(table)]
    pairs = table.against_reference()
    if pairs:
        sections.append(differences_section(f"{table.reference} against the others on {table.short_title}", pairs))
    return sections


def _diagnosis(run: Run) -> list[Section]:
    """Return the sections of the diagnosis in a run folder; none where ``latte diagnose`` has not been run."""
    memories, heads = load_diagnosis(run.folder), load_heads(run.folder)
    sections = diagnosis_sections(memories) if memories else []
    return sections + (heads_sections(heads) if heads else [])


def _origin(run: Run) -> dict[str, Any]:
    return {**run.manifest, **({"configuration": run.config} if run.config else {})}
