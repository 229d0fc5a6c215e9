"""Tables and sweeps as plain text that fits a terminal.

A line is never longer than the width: a table with more columns is broken into blocks of whole columns, names that
would take too much room are numbered, and what the numbers mean stands under the table.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import NamedTuple

from ..analysis.stats import Paired
from ..core.escape import visible
from ..files.schema import shorten
from .paper import display
from .result_table import ResultTable
from .sweep_table import Grid, SweepTable
from .text import cell_text, interval_text, interval_title, pair_text, total_text

TEXT_WIDTH = 118  # of a file, and where the width of the terminal is not known
NAME_SHARE = 0.4  # of the width, for the names of rows: three columns of "70.12 ±0.31" fit beside them at 80
LONGEST_HEADING = 24  # of a column; a longer one is shortened, and written out below


class TextColumn(NamedTuple):
    """The lines of a column, its heading first, all of one width."""

    lines: tuple[str, ...]

    @property
    def width(self) -> int:
        """How many characters it takes, the gap before it included."""
        return len(self.lines[0]) + 2


class Names(NamedTuple):
    """What the rows of a table are called in text, by their labels; ``legend`` writes out those that are numbered."""

    short: dict[str, str]
    legend: tuple[str, ...]


def as_text(tables: Sequence[ResultTable], sweeps: Sequence[SweepTable] = (), width: int = TEXT_WIDTH) -> str:
    """Return tables and sweeps for a terminal of ``width`` characters; searches that are folded take a line each."""
    folded = [sweep for sweep in sweeps if sweep.folded]
    parts = [_table(table, width) for table in tables]
    parts += [_sweep(sweep, width) for sweep in sweeps if not sweep.folded]
    return "\n\n\n".join([*parts, *([_folded(folded, width)] if folded else [])]) + "\n"


def _table(table: ResultTable, width: int) -> str:
    unit = "accuracy in %, mean ± sd over seeds" + (" (in brackets: the paper's)" if table.beside_paper else "")
    names = _names(table, width)
    labels = [names.short[row.label] for row in table.rows]
    first = aligned(["method", *labels], left=True)
    settings = aligned(["setting", *(visible(row.setting) for row in table.rows)], left=True)
    blocks = [
        _lines([first, *([] if number else [settings]), *(_column(table, i) for i in block)])
        for number, block in enumerate(_blocks(table, width, first.width, settings.width))
    ]
    parts = [_wrapped(f"{table.title}: {unit}", width), blocks[0], *_paragraph(names.legend, width), *blocks[1:]]
    parts += _differences(table, names, width)
    parts += _paragraph([*_shortened([column.label for column in table.columns]), *table.notes], width)
    return "\n\n".join(parts)


def _paragraph(notes: Sequence[str], width: int) -> list[str]:
    """Return notes as a block of lines; none where there are none."""
    return ["\n".join(_wrapped(note, width) for note in notes)] if notes else []


def _names(table: ResultTable, width: int) -> Names:
    """Number the rows whose label takes too much room."""
    most = int(NAME_SHARE * width)
    short, legend, counts = {}, [], dict.fromkeys((row.method for row in table.rows), 0)
    for row in table.rows:
        counts[row.method] += 1
        title = display(row.method, row.name)
        label, name = visible(row.label), f"{shorten(visible(title), most - 5)} #{counts[row.method]}"
        short[row.label] = label if len(label) <= most else name
        legend += [] if len(label) <= most else [f"{name}: {label}"]
    return Names(short, tuple(legend))


def _blocks(table: ResultTable, width: int, name: int, setting: int) -> list[list[int]]:
    """Share the columns out to blocks: all but those of deployment in one where they fit, else panel by panel."""
    widths = [_column(table, i).width for i in range(len(table.columns))]
    room = width - name + 2
    whole, deployment = table.panel("summary", "domains"), table.panel("deployment")
    if sum(widths[i] for i in whole) <= room - setting:
        return [whole, *split_columns(deployment, widths, room)]
    summary = split_columns(table.panel("summary"), widths, room - setting)
    return [*summary, *split_columns(deployment, widths, room), *split_columns(table.panel("domains"), widths, room)]


def split_columns(columns: Sequence[int], widths: Sequence[int], room: int) -> list[list[int]]:
    """Share ``columns`` out to as few blocks of at most ``room`` characters as possible, and evenly.

    A column that is wider than the room has a block of its own.

    >>> split_columns([0, 1, 2, 3, 4], [10, 10, 10, 10, 10], 45)
    [[0, 1, 2], [3, 4]]
    """
    blocks = _filled(columns, widths, room)
    narrowest = max((widths[i] for i in columns), default=room)
    for less in range(room - 1, narrowest - 1, -1):
        if len(narrower := _filled(columns, widths, less)) > len(blocks):
            break
        blocks = narrower
    return blocks


def _filled(columns: Sequence[int], widths: Sequence[int], room: int) -> list[list[int]]:
    """Share columns out, as many as fit to each block."""
    blocks: list[list[int]] = []
    used = 0
    for i in columns:
        if not blocks or used + widths[i] > room:
            blocks.append([])
            used = 0
        blocks[-1].append(i)
        used += widths[i]
    return blocks


def _column(table: ResultTable, i: int) -> TextColumn:
    column = table.columns[i]
    return aligned([_heading(column.label), *(cell_text(row.cells[i], column) for row in table.rows)])


def _heading(label: str) -> str:
    return shorten(visible(label), LONGEST_HEADING)


def _shortened(labels: Sequence[str]) -> list[str]:
    """Write out the headings that are shortened."""
    return [f"{_heading(label)}: {visible(label)}" for label in labels if _heading(label) != visible(label)]


def aligned(texts: Sequence[str], left: bool = False) -> TextColumn:
    """Return texts as the lines of a column."""
    width = max(map(len, texts))
    return TextColumn(tuple(text.ljust(width) if left else text.rjust(width) for text in texts))


def _lines(columns: Sequence[TextColumn]) -> str:
    return "\n".join("  ".join(line).rstrip() for line in zip(*(column.lines for column in columns), strict=True))


def _wrapped(text: str, width: int) -> str:
    return textwrap.fill(visible(text), width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _differences(table: ResultTable, names: Names, width: int) -> list[str]:
    """Return the reference against the others: the total, and then what somebody who deploys a method looks at."""
    pairs = table.against_reference()
    if not pairs:
        return []
    reference = names.short[table.reference]
    heading = f"{reference} against the others, total in points, paired over seeds, {interval_title(pairs)}"
    lines = _pair_lines(pairs, reference, names, width)
    return ["\n".join([_wrapped(heading, width), *lines]), *_more_differences(table, names, width)]


def _pair_lines(pairs: Sequence[Paired], reference: str, names: Names, width: int) -> list[str]:
    """Return a line per difference: in full where that fits, else without the reference, else in signs."""
    words = [f"{pair_text(pair)}{'  may be noise' if pair.unclear else ''}" for pair in pairs]
    wider = [f"{interval_text(pair)}{'  may be noise' if pair.unclear else ''}" for pair in pairs]
    signs = [f"{interval_text(pair)}{'~' if pair.unclear else ''}" for pair in pairs]
    for first, values in ((f"{reference} − ", words), ("− ", words), ("− ", wider), ("− ", signs)):
        full = aligned([f"{first}{names.short[pair.second]}" for pair in pairs], left=True)
        if full.width + max(map(len, values)) <= width:
            break
    return ["  ".join(parts) for parts in zip(full.lines, values, strict=True)]


def _more_differences(table: ResultTable, names: Names, width: int) -> list[str]:
    columns = [table.columns[i] for i in table.panel("deployment")]
    others = [pair.second for pair in table.against_reference()]
    first = aligned(["", *(f"− {names.short[other]}" for other in others)], left=True)
    texts = [aligned([column.label, *_of_metric(table, column.key, others)]) for column in columns]
    blocks = split_columns(range(len(texts)), [text.width for text in texts], width - first.width + 2)
    heading = "The same for the worst client and domain and over time, over splits; ~ marks an interval that holds zero"
    return [_wrapped(heading, width) + "\n" + "\n\n".join(_lines([first, *(texts[i] for i in b)]) for b in blocks)]


def _of_metric(table: ResultTable, key: str, others: Sequence[str]) -> list[str]:
    pairs: dict[str, Paired] = {pair.second: pair for pair in table.against_reference(key)}
    marks = ["~" if other in pairs and pairs[other].unclear else " " for other in others]
    return [f"{interval_text(pairs.get(other))}{mark}" for other, mark in zip(others, marks, strict=True)]


def _sweep(sweep: SweepTable, width: int) -> str:
    heading = f"{sweep.heading}: accuracy in %, mean ± sd over seeds"
    grids = [_grid(grid, width) for grid in sweep.grids()]
    return "\n\n".join([_wrapped(heading, width), *grids, *_paragraph(sweep.notes(), width)])


def _grid(grid: Grid, width: int) -> str:
    first = aligned([_heading(grid.corner), *(visible(row.name) for row in grid.rows)])
    columns = [
        aligned([_heading(label), *(total_text(row.cells[i]) for row in grid.rows)])
        for i, label in enumerate(grid.columns)
    ]
    blocks = split_columns(range(len(columns)), [column.width for column in columns], width - first.width + 2)
    title = [visible(grid.title)] if grid.title else []
    return "\n\n".join("\n".join([*title, _lines([first, *(columns[i] for i in block)])]) for block in blocks)


def _folded(sweeps: Sequence[SweepTable], width: int) -> str:
    """Return a line per search: its points were run for a choice, not for a report."""
    lines = [_wrapped(f"{sweep.summary()}  {sweep.folder}", width) for sweep in sweeps]
    heading = "Folded: points that were run to choose parameters (latte report FOLDER shows them)"
    return "\n".join([_wrapped(heading, width), *lines])
