"""A table as plain text, Markdown, LaTeX (booktabs) or JSON. Plain text and JSON hold the paired differences too."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from ..analysis.stats import Paired
from ..core.escape import latex, markdown, visible
from ..core.validate import choice
from .result_table import Cell, Column, ResultTable, Row
from .text import number, signed

TEXT_WIDTH = 118  # of plain text; a table with more columns is broken into panels
_LATEX_UNIT = "accuracy in \\%, mean $\\pm$ standard deviation over seeds"
LATEX_COLUMNS = 7  # in one panel: what fits the width of a page


def render(tables: Sequence[ResultTable], kind: str) -> str:
    """Return ``tables`` in one of the formats of :data:`FORMATS`."""
    choice("format", kind, tuple(FORMATS))
    return FORMATS[kind](tables)


def cell_text(cell: Cell | None, column: Column) -> str:
    """Return a cell as text: ``70.12 ±0.31``, ``+1.20 ±0.10`` or, beside the paper's, ``70.12 (69.98 ±0.40)``."""
    return _own_text(cell, column) + _paper_text(cell)


def _own_text(cell: Cell | None, column: Column) -> str:
    if cell is None:
        return "–"
    written = signed(cell.mean) if column.kind in ("gain", "difference") else number(cell.mean)
    return written if cell.sd is None else f"{written} ±{number(cell.sd)}"


def _paper_text(cell: Cell | None) -> str:
    if cell is None or cell.paper is None:
        return ""
    spread = "" if cell.paper_sd is None else f" ±{number(cell.paper_sd)}"
    return f" ({number(cell.paper)}{spread})"


def pair_text(pair: Paired) -> str:
    """Return a paired difference as text, such as ``+1.20 [+0.90, +1.50]``."""
    if pair.low is None or pair.high is None:
        return f"{signed(pair.mean)} (one seed: no interval)"
    if pair.constant:
        return f"{signed(pair.mean)} (the same on every seed: no interval)"
    return f"{signed(pair.mean)} [{signed(pair.low)}, {signed(pair.high)}]"


def as_text(tables: Sequence[ResultTable]) -> str:
    """Return tables for a terminal."""
    return "\n\n".join(_text(table) for table in tables) + "\n"


def _text(table: ResultTable) -> str:
    heading = f"{visible(table.title)}: accuracy in %, mean ± sd over seeds{_brackets(table)}"
    names = _aligned(["method", *(visible(row.label) for row in table.rows)], left=True)
    settings = _aligned(["setting", *(visible(row.setting) for row in table.rows)], left=True)
    widths = [len(_text_column(table, i)[0]) + 2 for i in range(len(table.columns))]
    panels = _panels(table, widths, TEXT_WIDTH - len(names[0]) - len(settings[0]) - 2)
    blocks = [_lines([names, settings, *(_text_column(table, i) for i in panel)]) for panel in panels]
    parts = [heading, *blocks, *_text_differences(table)]
    if table.notes:
        parts.append("\n".join(map(_wrapped, table.notes)))
    return "\n\n".join(parts)


def _wrapped(note: str) -> str:
    return textwrap.fill(
        visible(note), TEXT_WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


def _brackets(table: ResultTable) -> str:
    return " (in brackets: the paper's)" if table.beside_paper else ""


def _lines(columns: list[list[str]]) -> str:
    return "\n".join("  ".join(line).rstrip() for line in zip(*columns, strict=True))


def _text_column(table: ResultTable, i: int) -> list[str]:
    column = table.columns[i]
    return _aligned([visible(column.label), *(cell_text(row.cells[i], column) for row in table.rows)])


def _aligned(texts: Sequence[str], left: bool = False) -> list[str]:
    width = max(map(len, texts))
    return [text.ljust(width) if left else text.rjust(width) for text in texts]


def _panels(table: ResultTable, widths: Sequence[int], room: int) -> list[list[int]]:
    """Share the columns out to panels of at most ``room``; where one is not enough, domains start a new one."""
    if sum(widths) <= room:
        return [list(range(len(widths)))]
    panels, used = [[0]], widths[0]
    for i in range(1, len(widths)):
        domains = table.columns[i].key.startswith("domain:") and not table.columns[i - 1].key.startswith("domain:")
        if domains or used + widths[i] > room:
            panels.append([])
            used = 0
        panels[-1].append(i)
        used += widths[i]
    return panels


def _text_differences(table: ResultTable) -> list[str]:
    pairs = table.against_reference()
    if not pairs:
        return []
    names = _aligned([visible(_difference(table, pair)) for pair in pairs], left=True)
    lines = [
        f"{name}  {pair_text(pair)}{'  may be noise' if pair.unclear else ''}"
        for name, pair in zip(names, pairs, strict=True)
    ]
    heading = f"{visible(table.reference)} against the others, total in points, paired over seeds, 95 % interval"
    return ["\n".join([heading, *lines])]


def _difference(table: ResultTable, pair: Paired) -> str:
    return f"{table.reference} − {pair.second}"


def as_markdown(tables: Sequence[ResultTable]) -> str:
    """Return tables for a README; the best of each column is bold."""
    return "\n\n".join(_markdown(table) for table in tables) + "\n"


def _markdown(table: ResultTable) -> str:
    head = _line(["Method", "Setting", *(markdown(column.label) for column in table.columns)])
    rule = _line([":--", ":--", *("--:" for _ in table.columns)])
    names = [[markdown(row.label), markdown(row.setting)] for row in table.rows]
    rows = [_line([*name, *_marked(table, row, "**{}**")]) for name, row in zip(names, table.rows, strict=True)]
    pairs = [_line([markdown(_difference(table, pair)), pair_text(pair)]) for pair in table.against_reference()]
    parts = [f"### {markdown(table.title)}", "\n".join([head, rule, *rows])]
    if pairs:
        parts.append("\n".join([_line(["Paired over seeds", "Points [95 % interval]"]), _line([":--", ":--"]), *pairs]))
    return "\n\n".join([*parts, "\n".join(f"- {markdown(note)}" for note in table.notes)]).rstrip()


def _line(texts: Sequence[str]) -> str:
    return "| " + " | ".join(texts) + " |"


def _marked(table: ResultTable, row: Row, mark: str) -> list[str]:
    """Return the cells of a row as text, those that are the best of their column inside ``mark``."""
    texts = []
    for i, (cell, column) in enumerate(zip(row.cells, table.columns, strict=True)):
        text, best = _own_text(cell, column), table.best(i)
        top = cell is not None and best is not None and cell.mean == best and row.setting != "oracle"
        texts.append((mark.format(text) if top else text) + _paper_text(cell))
    return texts


def as_latex(tables: Sequence[ResultTable]) -> str:
    """Return tables for a paper; they need the package booktabs. Many domains go below each other in panels."""
    return "\n\n".join(_latex(table) for table in tables) + "\n"


def _latex(table: ResultTable) -> str:
    panels = _panels(table, [_latex_width(table, i) for i in range(len(table.columns))], LATEX_COLUMNS)
    lines = [
        *(f"% {visible(note)}" for note in table.notes),
        "\\begin{table}",
        "\\centering\\footnotesize\\setlength{\\tabcolsep}{3pt}",
        f"\\caption{{{latex(table.title)}: {_LATEX_UNIT}{_brackets(table)}.}}",
        "\n\n\\medskip\n".join(_tabular(table, panel) for panel in panels),
        "\\end{table}",
    ]
    return "\n".join(lines)


def _latex_width(table: ResultTable, i: int) -> int:
    """Return how many columns' room a column takes: two where the paper's value is beside ours."""
    return 2 if any(_paper_text(row.cells[i]) for row in table.rows) else 1


def _tabular(table: ResultTable, panel: Sequence[int]) -> str:
    lines = [
        f"\\begin{{tabular}}{{ll{'r' * len(panel)}}}",
        "\\toprule",
        _row(["Method", "Setting", *(latex(table.columns[i].label) for i in panel)]),
        "\\midrule",
        *(_latex_row(table, row, panel) for row in table.rows),
        "\\bottomrule",
        "\\end{tabular}",
    ]
    return "\n".join(lines)


def _latex_row(table: ResultTable, row: Row, panel: Sequence[int]) -> str:
    cells = _marked(table, row, "\\textbf{{{}}}")
    return _row([latex(row.label), latex(row.setting), *(_maths(cells[i]) for i in panel)])


def _row(texts: Sequence[str]) -> str:
    return " & ".join(texts) + " \\\\"


def _maths(text: str) -> str:
    return text.replace(" ±", " $\\pm$ ").replace("−", "$-$").replace("–", "--")


def as_json(tables: Sequence[ResultTable]) -> str:
    """Return tables with every digit, as a JSON list."""
    return json.dumps([_plain(table) for table in tables], indent=2) + "\n"


def _plain(table: ResultTable) -> dict[str, Any]:
    keys = [column.key for column in table.columns]
    fields = asdict(table)
    for fields_row, row in zip(fields["rows"], table.rows, strict=True):
        cells = zip(keys, row.cells, strict=True)
        fields_row["cells"] = {key: None if cell is None else asdict(cell) for key, cell in cells}
    return fields


FORMATS: dict[str, Callable[[Sequence[ResultTable]], str]] = {
    "text": as_text,
    "markdown": as_markdown,
    "latex": as_latex,
    "json": as_json,
}
