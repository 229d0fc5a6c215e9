"""The replacement of one external list: compiled inside a pull, and plain where a choice is taken again."""

from __future__ import annotations

from ...core.types import Integers
from .loop_arrays import ReceivedLists


def accept(received: ReceivedLists, current: Integers, i: int, y: int, donors: Integers) -> bool:
    """Give client ``i`` the prototypes of ``donors`` (E,) for class ``y``; return whether its items are others now.

    ``current`` (N,) are the items of the class.
    """
    same = True
    for e in range(len(donors)):
        item = current[donors[e]] if donors[e] >= 0 else -1
        same = same and item == received.external[i, y, e]
    if same:
        return False
    times = received.pulls[i] - 1 - received.since[i, y]
    for e in range(len(donors)):
        if received.donors[i, y, e] >= 0:
            received.downloads[i, received.donors[i, y, e]] += times
        received.external[i, y, e] = current[donors[e]] if donors[e] >= 0 else -1
        received.donors[i, y, e] = donors[e]
    received.since[i, y] = received.pulls[i] - 1
    return True
