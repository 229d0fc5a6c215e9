"""Tables and sweeps in every format but the page: text, Markdown, LaTeX, JSON and CSV.

JSON and CSV hold every digit, every pair of rows, and every point of every sweep and search.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from ..analysis.stats import Paired
from ..core.escape import csv_cell
from ..core.validate import choice
from .markup import as_latex, as_markdown
from .plain_text import TEXT_WIDTH, as_text
from .result_table import ResultTable, Row
from .sweep_table import SweepTable

FORMATS = ("text", "markdown", "latex", "json", "csv")


def render(tables: Sequence[ResultTable], kind: str, sweeps: Sequence[SweepTable] = (), width: int = TEXT_WIDTH) -> str:
    """Return tables and sweeps in one of :data:`FORMATS`; ``width``, in characters, is that of text."""
    choice("format", kind, FORMATS)
    if kind == "text":
        return as_text(tables, sweeps, width)
    return {"markdown": as_markdown, "latex": as_latex, "json": as_json, "csv": as_csv}[kind](tables, sweeps)


def as_json(tables: Sequence[ResultTable], sweeps: Sequence[SweepTable] = ()) -> str:
    """Return a JSON list: the tables, then the sweeps (``kind`` "sweep") and the searches ("tuning")."""
    values = [_plain(table) for table in tables] + [_plain_sweep(sweep) for sweep in sweeps]
    return json.dumps(values, indent=2) + "\n"


def _plain(table: ResultTable) -> dict[str, Any]:
    fields = asdict(table)
    for fields_row, row in zip(fields["rows"], table.rows, strict=True):
        fields_row["cells"] = _cells(table, row)
    return {"kind": "results", **fields}


def _cells(table: ResultTable, row: Row) -> dict[str, Any]:
    cells = zip(table.columns, row.cells, strict=True)
    return {column.key: None if cell is None else asdict(cell) for column, cell in cells}


def _plain_sweep(sweep: SweepTable) -> dict[str, Any]:
    points = [
        {
            "values": dict(zip(sweep.axes, point.values, strict=True)),
            "rows": [{**asdict(row), "cells": _cells(point.table, row)} for row in point.table.rows],
        }
        for point in sweep.points
    ]
    names = ("benchmark", "encoder", "folder", "axes", "planned")
    return {"kind": _kind(sweep), **{name: getattr(sweep, name) for name in names}, "points": points}


def _kind(sweep: SweepTable) -> str:
    return "tuning" if sweep.tuning else "sweep"


class CsvRow(NamedTuple):
    """A number of a report: ``metric`` of a row or, with ``against``, of its difference from another row.

    ``table`` is the title of its table, or of its sweep, and ``point`` the point there.
    """

    kind: str
    table: str
    point: str
    method: str
    label: str
    setting: str
    seeds: int | None
    metric: str
    against: str
    mean: float
    sd: float | None
    low: float | None
    high: float | None
    image_low: float | None = None
    image_high: float | None = None


def as_csv(tables: Sequence[ResultTable], sweeps: Sequence[SweepTable] = ()) -> str:
    """Return a line per number, so that tables of any columns are in one file."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CsvRow._fields)
    for table in tables:
        writer.writerows(map(_escaped, _numbers(table, "results", table.title, "")))
        writer.writerows(map(_escaped, (_difference(table, pair) for pair in table.differences)))
    for sweep in sweeps:
        for point in sweep.points:
            place = sweep.place(point.values)
            writer.writerows(map(_escaped, _numbers(point.table, _kind(sweep), sweep.heading, place)))
    return text.getvalue()


def _escaped(row: CsvRow) -> list[object]:
    return [csv_cell(cell) for cell in row]


def _numbers(table: ResultTable, kind: str, title: str, point: str) -> Iterator[CsvRow]:
    for row in table.rows:
        name = (row.method, row.label, row.setting, len(row.seeds))
        for column, cell in zip(table.columns, row.cells, strict=True):
            if cell is not None:
                yield CsvRow(kind, title, point, *name, column.key, "", cell.mean, cell.sd, None, None)


def _difference(table: ResultTable, pair: Paired) -> CsvRow:
    name = ("difference", table.title, "", "", pair.first, "", pair.seeds)
    ends = (pair.low, pair.high, pair.image_low, pair.image_high)
    return CsvRow(*name, pair.metric, pair.second, pair.mean, None, *ends)
