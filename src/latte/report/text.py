"""How a number is written, the same in every format."""

from __future__ import annotations

from collections.abc import Sequence

from ..analysis.stats import Paired
from .result_table import Cell, Column


def number(value: float | None) -> str:
    """Return an accuracy with two decimals; a dash if there is none.

    >>> number(70.125), number(None)
    ('70.12', '–')
    """
    return "–" if value is None else f"{value:.2f}"


def signed(value: float | None) -> str:
    """Return a difference with its sign; a true minus, and no sign for what rounds to zero.

    >>> signed(1.5), signed(-1.5), signed(-0.001)
    ('+1.50', '−1.50', '0.00')
    """
    if value is None:
        return "–"
    text = f"{value:+.2f}"
    return "0.00" if float(text) == 0 else text.replace("-", "−")


def cell_text(cell: Cell | None, column: Column) -> str:
    """Return a cell as text: ``70.12 ±0.31``, ``+1.20 ±0.10`` or, beside the paper's, ``70.12 (69.98 ±0.40)``."""
    return own_text(cell, column) + paper_text(cell)


def own_text(cell: Cell | None, column: Column) -> str:
    """Return a cell without the paper's number."""
    if cell is None:
        return column.missing
    text = signed(cell.mean) if column.signed else number(cell.mean)
    return text if cell.sd is None else f"{text} ±{number(cell.sd)}"


def paper_text(cell: Cell | None) -> str:
    """Return the paper's number of a cell, in brackets."""
    if cell is None or cell.paper is None:
        return ""
    spread = "" if cell.paper_sd is None else f" ±{number(cell.paper_sd)}"
    return f" ({number(cell.paper)}{spread})"


def total_text(cell: Cell | None) -> str:
    """Return an accuracy at a point of a sweep as text."""
    return "–" if cell is None else number(cell.mean) + ("" if cell.sd is None else f" ±{number(cell.sd)}")


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
    return "95 % interval over splits and images" + ("" if every else ", where the answers are stored")


def _bracket(ends: tuple[float, float]) -> str:
    return f"[{signed(ends[0])}, {signed(ends[1])}]"
