"""Lists of the largest values in descending order, compiled. Imported only where numba is installed."""

from __future__ import annotations

import numpy as np

from ...core.types import Integers, Reals, Vectors
from .compiled import helper

GLANCE = 16  # values that are compared together: almost always none of them is large enough


@helper
def any_above(values: Vectors | Reals, start: int, limit: float | np.floating) -> bool:
    """Say whether any of the next values is above the limit."""
    above = 0
    for j in range(start, start + GLANCE):
        above |= values[j] > limit
    return above > 0


@helper
def insert(rows: Integers, values: Vectors | Reals, count: int, row: int, value: float | np.floating) -> int:
    """Insert into a list of ``count``, behind equal values; the last one drops out of a full list.

    Returns the new count.
    """
    at = min(count, len(rows) - 1)
    while at > 0 and values[at - 1] < value:
        values[at], rows[at] = values[at - 1], rows[at - 1]
        at -= 1
    values[at], rows[at] = value, row
    return min(count + 1, len(rows))
