"""Tables and sweeps in every format but the page: text, Markdown, LaTeX (booktabs), JSON and CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import Any

from ...core.validate import choice
from ...text import csv_cell, latex, markdown, visible
from ..sweeps import SweepTable
from ..tables import ResultTable, Row
from . import text as plain
from .text import TEXT_WIDTH, cell_text

FORMATS = ("text", "markdown", "latex", "json", "csv")


def render(tables: Sequence[ResultTable], kind: str, sweeps: Sequence[SweepTable] = (), width: int = TEXT_WIDTH) -> str:
    """Return tables and sweeps in one of :data:`FORMATS`; ``width``, in characters, is that of text."""
    choice("format", kind, FORMATS)
    if kind == "text":
        return plain.as_text(tables, sweeps, width)
    return {"markdown": as_markdown, "latex": as_latex, "json": as_json, "csv": as_csv}[kind](tables, sweeps)


def _cells(
    table: ResultTable, columns: Sequence[int], settings: bool, escape: Callable[[str], str], mark: str
) -> tuple[list[str], list[str], list[list[str]]]:
    """Return the headings of a table's names and of its numbers, and its rows; the best of a column inside ``mark``."""
    head = ["Method", "Setting"] if settings else ["Method"]
    rows = []
    for row in table.rows:
        cells = plain.row_texts(table, row, mark)
        rows.append([*[escape(row.label), escape(row.setting)][: len(head)], *(cells[i] for i in columns)])
    return head, [escape(table.columns[i].label) for i in columns], rows


# --- Markdown for a README ----------------------------------------------------------------------------------------


def as_markdown(tables: Sequence[ResultTable], sweeps: Sequence[SweepTable] = ()) -> str:
    """Return tables for a README; the best of each column is bold."""
    parts = []
    for table in tables:
        parts += [f"### {markdown(table.title)}", _markdown_rows(table, table.panel("summary", "domains"), True)]
        parts.append(_markdown_rows(table, table.panel("deployment"), False))
        parts += [_markdown_pairs(table)] if table.against_reference() else []
        parts += ["\n".join(f"- {markdown(note)}" for note in table.notes)] if table.notes else []
    for sweep in sweeps:
        if not sweep.folded:
            parts.append(f"### {markdown(sweep.heading)}")
            for grid in sweep.grids():
                rows = [[markdown(row.name), *map(cell_text, row.cells)] for row in grid.rows]
                head = [markdown(grid.corner), *map(markdown, grid.columns)]
                parts += [markdown(grid.title)] if grid.title else []
                parts.append(markdown_table(head, ["--:" for _ in head], rows))
            parts.append("\n".join(f"- {markdown(note)}" for note in sweep.notes()))
    folded = [f"- {markdown(sweep.summary())} ({markdown(sweep.folder)})" for sweep in sweeps if sweep.folded]
    parts += ["### Tuning, folded", "\n".join(folded)] if folded else []
    return "\n\n".join(parts) + "\n"


def markdown_table(head: Sequence[str], sides: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return rows of finished cells as a table; ``sides`` are ``:--`` or ``--:``, for each column."""
    return "\n".join("| " + " | ".join(texts) + " |" for texts in (head, sides, *rows))


def _markdown_rows(table: ResultTable, columns: Sequence[int], settings: bool) -> str:
    head, labels, rows = _cells(table, columns, settings, markdown, "**{}**")
    return markdown_table([*head, *labels], [*(":--" for _ in head), *("--:" for _ in labels)], rows)


def _markdown_pairs(table: ResultTable) -> str:
    """Return the reference against the others; the interval is behind the mean."""
    columns = [table.columns[i] for i in table.panel("deployment")]
    total = f"Total, points [{plain.interval_title(table.against_reference())}]"
    head = ["Paired over seeds", total, *(column.label for column in columns)]
    others = [{pair.second: pair for pair in table.against_reference(column.key)} for column in columns]
    rows = []
    for pair in table.against_reference():
        more = [plain.interval_text(pairs.get(pair.second)) for pairs in others]
        rows.append([markdown(f"{table.reference} − {pair.second}"), plain.pair_text(pair), *more])
    return markdown_table(head, [":--" for _ in head], rows)


# --- LaTeX for a paper --------------------------------------------------------------------------------------------

_LATEX_UNIT = "accuracy in \\%, mean $\\pm$ standard deviation over seeds"
LATEX_COLUMNS = 7  # in one panel: what fits the width of a page


def as_latex(tables: Sequence[ResultTable], sweeps: Sequence[SweepTable] = ()) -> str:
    """Return tables for a paper; they need the package booktabs. Many domains go below each other in panels."""
    parts = []
    for table in tables:
        panels = [_tabular(table, panel, not place) for place, panel in enumerate(_latex_panels(table))]
        brackets = " (in brackets: the paper's)" if table.beside_paper else ""
        parts.append(_float(table.notes, f"{latex(table.title)}: {_LATEX_UNIT}{brackets}", panels))
    for sweep in sweeps:
        if not sweep.folded:
            panels = []
            for grid in sweep.grids():
                head = [latex(grid.corner), *map(latex, grid.columns)]
                rows = [[latex(row.name), *(_maths(cell_text(cell)) for cell in row.cells)] for row in grid.rows]
                title = f"{latex(grid.title)}\\\\\n" if grid.title else ""
                panels.append(title + _booktabs("r" * len(head), head, rows))
            parts.append(_float(sweep.notes(), f"{latex(sweep.heading)}: {_LATEX_UNIT}", panels))
    parts += [f"% {visible(sweep.summary())} ({visible(sweep.folder)})" for sweep in sweeps if sweep.folded]
    return "\n\n".join(parts) + "\n"


def _float(notes: Sequence[str], caption: str, panels: Sequence[str]) -> str:
    # a note stands in a comment without commands, whoever chose its words
    comments = ["% " + visible(note).replace("\\", r"\textbackslash{}") for note in notes]
    lines = [
        *comments,
        "\\begin{table}",
        "\\centering\\footnotesize\\setlength{\\tabcolsep}{3pt}",
        f"\\caption{{{caption}.}}",
        "\n\n\\medskip\n".join(panels),
        "\\end{table}",
    ]
    return "\n".join(lines)


def _latex_panels(table: ResultTable) -> list[list[int]]:
    """Share the columns out; one with the paper's value beside ours takes the room of two."""
    widths = [2 if any(plain.paper_text(row.cells[i]) for row in table.rows) else 1 for i in range(len(table.columns))]
    whole, deployment = table.panel("summary", "domains"), table.panel("deployment")
    if sum(widths[i] for i in whole) <= LATEX_COLUMNS:
        return [whole, deployment]
    summary, domains = (
        plain.split_columns(table.panel(name), widths, LATEX_COLUMNS) for name in ("summary", "domains")
    )
    return [*summary, deployment, *domains]


def _tabular(table: ResultTable, panel: Sequence[int], settings: bool) -> str:
    head, labels, rows = _cells(table, panel, settings, latex, "\\textbf{{{}}}")
    rows = [[*row[: len(head)], *map(_maths, row[len(head) :])] for row in rows]
    return _booktabs("l" * len(head) + "r" * len(panel), [*head, *labels], rows)


def _booktabs(columns: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    first, *lines = (" & ".join(texts) + " \\\\" for texts in (head, *rows))
    top = [f"\\begin{{tabular}}{{{columns}}}", "\\toprule", first, "\\midrule"]
    return "\n".join([*top, *lines, "\\bottomrule", "\\end{tabular}"])


def _maths(text: str) -> str:
    return text.replace(" ±", " $\\pm$ ").replace("−", "$-$").replace("–", "--")


# --- JSON and CSV -------------------------------------------------------------------------------------------------

# A line per number: ``metric`` of a row or, with ``against``, of its difference from another row. ``table`` is the
# title of its table, or of its sweep, and ``point`` the point there.
CSV_COLUMNS = (
    "kind", "table", "point", "method", "label", "setting", "seeds", "metric", "against",
    "mean", "sd", "low", "high", "image_low", "image_high",
)  # fmt: skip


def as_json(tables: Sequence[ResultTable], sweeps: Sequence[SweepTable] = ()) -> str:
    """Return a JSON list: the tables, then the sweeps (``kind`` "sweep") and the searches ("tuning")."""
    values: list[dict[str, Any]] = [
        {"kind": "results", **asdict(table), "rows": [_plain(table, row) for row in table.rows]} for table in tables
    ]
    for sweep in sweeps:
        points = [
            {
                "values": dict(zip(sweep.axes, point.values, strict=True)),
                "rows": [_plain(point.table, row) for row in point.table.rows],
            }
            for point in sweep.points
        ]
        names = ("benchmark", "encoder", "folder", "axes", "planned")
        values.append({"kind": _kind(sweep), **{name: getattr(sweep, name) for name in names}, "points": points})
    return json.dumps(values, indent=2) + "\n"


def _plain(table: ResultTable, row: Row) -> dict[str, Any]:
    cells = zip(table.columns, row.cells, strict=True)
    return {**asdict(row), "cells": {column.key: None if cell is None else asdict(cell) for column, cell in cells}}


def _kind(sweep: SweepTable) -> str:
    return "tuning" if sweep.tuning else "sweep"


def as_csv(tables: Sequence[ResultTable], sweeps: Sequence[SweepTable] = ()) -> str:
    """Return a line per number, so that tables of any columns are in one file."""
    lines: list[tuple[object, ...]] = [CSV_COLUMNS]
    for table in tables:
        lines += _numbers(table, "results", table.title, "")
        for pair in table.differences:
            ends = (pair.low, pair.high, pair.image_low, pair.image_high)
            name = ("difference", table.title, "", "", pair.first, "", pair.seeds, pair.metric, pair.second)
            lines.append((*name, pair.mean, None, *ends))
    for sweep in sweeps:
        for point in sweep.points:
            lines += _numbers(point.table, _kind(sweep), sweep.heading, sweep.place(point.values))
    return csv_text(lines)


def csv_text(lines: Iterable[Sequence[object]]) -> str:
    """Return lines as CSV in which no cell is a formula; a float keeps all its digits."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows([csv_cell(cell) for cell in line] for line in lines)
    return text.getvalue()


def _numbers(table: ResultTable, kind: str, title: str, point: str) -> list[tuple[object, ...]]:
    return [
        (kind, title, point, row.method, row.label, row.setting, len(row.seeds), column.key, "", cell.mean, cell.sd)
        + (None,) * 4
        for row in table.rows
        for column, cell in zip(table.columns, row.cells, strict=True)
        if cell is not None
    ]
