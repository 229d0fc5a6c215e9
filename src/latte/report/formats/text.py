"""Tables and sweeps as plain text that fits a terminal.

A line is never longer than the width: a table with more columns is broken into blocks of whole columns, names that
would take too much room are numbered, and what the numbers mean stands under the table.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from ...analysis.stats import Paired
from ...files.documents import shorten
from ...text import visible
from ..published import display
from ..sweeps import Grid, SweepTable
from ..tables import Cell, Column, ResultTable, Row

# --- how a number is written, the same in every format --------------------------------------------------------


def number(value: float | None) -> str:
    """Return an accuracy with two decimals; a dash if there is none.

    >>> number(70.125), number(None)
    ('70.12', '–')
    """
    return "–" if value is None else f"{value:.2f}"


def signed(value: float, digits: int = 2) -> str:
    """Return a difference with its sign; a true minus, and no sign for what rounds to zero.

    >>> signed(1.5), signed(-1.5), signed(-0.001)
    ('+1.50', '−1.50', '0.00')
    """
    text = f"{value:+.{digits}f}"
    return text[1:] if float(text) == 0 else text.replace("-", "−")


def cell_text(cell: Cell | None, column: Column | None = None) -> str:
    """Return a cell as text: ``70.12 ±0.31`` or, in a column of differences, ``+1.20 ±0.10``."""
    if cell is None:
        return column.missing if column else number(None)
    text = signed(cell.mean) if column and column.signed else number(cell.mean)
    return text if cell.sd is None else f"{text} ±{number(cell.sd)}"


def paper_text(cell: Cell | None) -> str:
    """Return the paper's number of a cell, as it stands behind ours: ``(69.98 ±0.40)``."""
    if cell is None or cell.paper is None:
        return ""
    spread = "" if cell.paper_sd is None else f" ±{number(cell.paper_sd)}"
    return f" ({number(cell.paper)}{spread})"


def row_texts(table: ResultTable, row: Row, mark: str = "{}") -> list[str]:
    """Return the cells of a row as text, those that are the best of their column inside ``mark``."""
    texts = []
    for i, (cell, column) in enumerate(zip(row.cells, table.columns, strict=True)):
        text = cell_text(cell, column)
        texts.append((mark.format(text) if table.is_best(row, i) else text) + paper_text(cell))
    return texts


def pair_text(pair: Paired) -> str:
    """Return a paired difference as text: ``+1.20 [+0.80, +1.60], splits alone [+0.90, +1.50]``."""
    if pair.interval is None:
        why = "one seed" if pair.seeds == 1 else "the same on every seed"
        return f"{signed(pair.mean)} ({why}: no interval)"
    if pair.seeds == 1:
        return f"{interval_text(pair)} (one seed: over images alone)"
    alone = pair.split_interval
    return interval_text(pair) + ("" if alone is None else f", splits alone {_bracket(alone)}")


def interval_text(pair: Paired | None) -> str:
    """Return a paired difference in few characters, with its wider interval; ``~`` marks one that may be noise."""
    if pair is None:
        return "n/a"
    return signed(pair.mean) if pair.interval is None else f"{signed(pair.mean)} {_bracket(pair.interval)}"


def interval_title(pairs: Sequence[Paired]) -> str:
    """Return what the intervals of some differences are over."""
    if all(pair.image_low is None for pair in pairs):
        return "95 % interval over splits"
    every = all(pair.image_low is not None for pair in pairs)
    return "95 % interval over splits and images" + ("" if every else ", where the predictions are stored")


def _bracket(ends: tuple[float, float]) -> str:
    return f"[{signed(ends[0])}, {signed(ends[1])}]"


# --- tables and sweeps as plain text that fits a terminal -----------------------------------------------------

TEXT_WIDTH = 118  # of a file, and where the width of the terminal is not known
NAME_SHARE = 0.4  # of the width, for the names of rows: three columns of "70.12 ±0.31" fit beside them at 80
LONGEST_HEADING = 24  # of a column; a longer one is shortened, and written out below
TextColumn = list[str]  # its heading and its cells, all of one width


def as_text(tables: Sequence[ResultTable], sweeps: Sequence[SweepTable] = (), width: int = TEXT_WIDTH) -> str:
    """Return tables and sweeps for a terminal of ``width`` characters; searches that are folded take a line each."""
    parts = [_table(table, width) for table in tables]
    for sweep in sweeps:
        if not sweep.folded:
            heading = _wrapped(f"{sweep.heading}: accuracy in %, mean ± sd over seeds", width)
            grids = [_grid(grid, width) for grid in sweep.grids()]
            parts.append("\n\n".join([heading, *grids, *_paragraph(sweep.notes(), width)]))
    folded = [_wrapped(f"{sweep.summary()}  {sweep.folder}", width) for sweep in sweeps if sweep.folded]
    if folded:
        heading = "Folded: points that were run to choose parameters (latte report FOLDER shows them)"
        parts.append("\n".join([_wrapped(heading, width), *folded]))
    return "\n\n\n".join(parts) + "\n"


def _table(table: ResultTable, width: int) -> str:
    unit = "accuracy in %, mean ± sd over seeds" + (" (in brackets: the paper's)" if table.beside_paper else "")
    names, legend = _names(table, width)
    first = _aligned(["method", *(names[row.label] for row in table.rows)], left=True)
    settings = _aligned(["setting", *(visible(row.setting) for row in table.rows)], left=True)
    texts = [row_texts(table, row) for row in table.rows]
    columns = [_aligned([_heading(c.label), *(text[i] for text in texts)]) for i, c in enumerate(table.columns)]
    widths = _widths(columns)
    room = width - len(first[0])
    beside = room - _widths([settings])[0]  # the settings stand in the first block only
    whole, deployment = table.panel("summary", "domains"), table.panel("deployment")
    blocks = split_columns(deployment, widths, room)
    if sum(widths[i] for i in whole) <= beside:
        blocks = [whole, *blocks]
    else:  # panel by panel
        summary = split_columns(table.panel("summary"), widths, beside)
        blocks = [*summary, *blocks, *split_columns(table.panel("domains"), widths, room)]
    shown = [
        _lines([first, *([] if place else [settings]), *(columns[i] for i in block)])
        for place, block in enumerate(blocks)
    ]
    labels = [visible(column.label) for column in table.columns]
    shortened = [f"{_heading(label)}: {label}" for label in labels if _heading(label) != label]
    parts = [_wrapped(f"{table.title}: {unit}", width), shown[0], *_paragraph(legend, width), *shown[1:]]
    parts += _differences(table, names, width)
    return "\n\n".join([*parts, *_paragraph([*shortened, *table.notes], width)])


def _paragraph(notes: Sequence[str], width: int) -> list[str]:
    """Return notes as a block of lines; none where there are none."""
    return ["\n".join(_wrapped(note, width) for note in notes)] if notes else []


def in_columns(head: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> str:
    """Return rows under a heading, the first column to the left, broken into blocks that fit the width."""
    first, *columns = (
        _aligned([_heading(title), *(visible(row[place]) for row in rows)], left=not place)
        for place, title in enumerate(head)
    )
    return "\n\n".join(_broken(first, columns, width))


def _names(table: ResultTable, width: int) -> tuple[dict[str, str], list[str]]:
    """Return what rows are called, by label, and a legend: rows whose label takes too much room are numbered."""
    most = int(NAME_SHARE * width)
    short, legend, counts = {}, [], dict.fromkeys((row.method for row in table.rows), 0)
    for row in table.rows:
        counts[row.method] += 1
        short[row.label] = label = visible(row.label)
        if len(label) > most:
            title = shorten(visible(display(row.method, row.name)), most - 5)
            short[row.label] = f"{title} #{counts[row.method]}"
            legend.append(f"{short[row.label]}: {label}")
    return short, legend


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


def _heading(label: str) -> str:
    return shorten(visible(label), LONGEST_HEADING)


def _aligned(texts: Sequence[str], left: bool = False) -> TextColumn:
    width = max(map(len, texts))
    return [text.ljust(width) if left else text.rjust(width) for text in texts]


def _widths(columns: Sequence[TextColumn]) -> list[int]:
    """Return how many characters columns take, the gap before each included."""
    return [len(column[0]) + 2 for column in columns]


def _lines(columns: Sequence[TextColumn]) -> str:
    return "\n".join("  ".join(line).rstrip() for line in zip(*columns, strict=True))


def _broken(first: TextColumn, columns: Sequence[TextColumn], width: int) -> list[str]:
    """Return columns in blocks that fit the width, each with ``first`` before it."""
    blocks = split_columns(range(len(columns)), _widths(columns), width - len(first[0]))
    return [_lines([first, *(columns[i] for i in block)]) for block in blocks]


def _wrapped(text: str, width: int) -> str:
    return textwrap.fill(visible(text), width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _differences(table: ResultTable, names: dict[str, str], width: int) -> list[str]:
    """Return the reference against the others: the total, and then what somebody who deploys a method looks at."""
    pairs = table.against_reference()
    if not pairs:
        return []
    reference, others = names[table.reference], [names[pair.second] for pair in pairs]
    total = f"{reference} against the others, total in points, paired over seeds, {interval_title(pairs)}"
    more = "The same for the worst client and domain and over time, over splits; ~ marks an interval that holds zero"
    columns = []
    for column in (table.columns[i] for i in table.panel("deployment")):
        by_row = {pair.second: pair for pair in table.against_reference(column.key)}
        found = [by_row.get(pair.second) for pair in pairs]
        columns.append(_aligned([column.label, *(interval_text(p) + ("~" if p and p.unclear else " ") for p in found)]))
    first = _aligned(["", *(f"− {other}" for other in others)], left=True)
    return [
        "\n".join([_wrapped(total, width), *_pair_lines(pairs, reference, others, width)]),
        _wrapped(more, width) + "\n" + "\n\n".join(_broken(first, columns, width)),
    ]


def _pair_lines(pairs: Sequence[Paired], reference: str, others: Sequence[str], width: int) -> list[str]:
    """Return a line per difference: in full where that fits, else without the reference, else in signs."""
    words = [f"{pair_text(pair)}{'  may be noise' if pair.unclear else ''}" for pair in pairs]
    wider = [f"{interval_text(pair)}{'  may be noise' if pair.unclear else ''}" for pair in pairs]
    signs = [f"{interval_text(pair)}{'~' if pair.unclear else ''}" for pair in pairs]
    for first, values in ((f"{reference} − ", words), ("− ", words), ("− ", wider), ("− ", signs)):
        full = _aligned([f"{first}{other}" for other in others], left=True)
        if _widths([full])[0] + max(map(len, values)) <= width:
            break
    return ["  ".join(parts) for parts in zip(full, values, strict=True)]


def _grid(grid: Grid, width: int) -> str:
    first = _aligned([_heading(grid.corner), *(visible(row.name) for row in grid.rows)])
    columns = [
        _aligned([_heading(label), *(cell_text(row.cells[i]) for row in grid.rows)])
        for i, label in enumerate(grid.columns)
    ]
    title = f"{visible(grid.title)}\n" if grid.title else ""
    return "\n\n".join(f"{title}{block}" for block in _broken(first, columns, width))
