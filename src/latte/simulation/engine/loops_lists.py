"""Lists of the largest values, best first, compiled. Imported only where numba is installed."""

from __future__ import annotations

from typing import Any

from .compiled import tightly

GLANCE = 16  # values that are looked at together: almost always none of them counts


@tightly
def any_above(values: Any, start: int, limit: Any) -> Any:
    """Say whether any of the next values is above the limit."""
    above = 0
    for j in range(start, start + GLANCE):
        above |= values[j] > limit
    return above > 0


@tightly
def place(rows: Any, values: Any, found: int, row: int, value: Any) -> Any:
    """Insert into a list of ``found``, behind those that are as good; the last falls off when there is no room.

    Returns how many there are now.
    """
    at = min(found, len(rows) - 1)
    while at > 0 and values[at - 1] < value:
        values[at], rows[at] = values[at - 1], rows[at - 1]
        at -= 1
    values[at], rows[at] = value, row
    return min(found + 1, len(rows))
