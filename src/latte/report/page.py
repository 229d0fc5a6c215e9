"""The report of runs as a page: the tables, what is noise, and where the numbers come from."""

from __future__ import annotations

from collections.abc import Sequence

from ..analysis.diagnose_run import kept
from .diagnosis import diagnosis_sections
from .formats import render
from .html import Section, differences_section, manifest_section, render_page, table_section
from .result_table import Table
from .runs import Run


def rendered(tables: Sequence[Table], runs: Sequence[Run], kind: str) -> str:
    """Return ``tables`` in any format, "html" among them."""
    return report_page(tables, runs) if kind == "html" else render(tables, kind)


def report_page(tables: Sequence[Table], runs: Sequence[Run], title: str = "Latte: results") -> str:
    """Return the page that ``latte report --format html`` writes."""
    sections = [section for table in tables for section in _table(table)]
    sections += [section for run in runs for section in _inside(run)]
    sections += [section for run in runs for section in _origin(run)]
    return render_page(title, sections)


def _table(table: Table) -> list[Section]:
    sections = [table_section(table)]
    pairs = table.against_reference()
    if pairs:
        sections.append(differences_section(f"{table.reference} against the others on {table.benchmark}", pairs))
    return sections


def _inside(run: Run) -> list[Section]:
    """Return what ``latte diagnose`` has seen of a run, where it has looked."""
    found = kept(run.folder)
    return diagnosis_sections(found) if found else []


def _origin(run: Run) -> list[Section]:
    facts = {**run.manifest, **({"configuration": run.config} if run.config else {})}
    return [manifest_section(f"Where the numbers come from: {run.folder.name}", facts)] if facts else []
