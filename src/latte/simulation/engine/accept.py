"""The replacement of one external list: compiled inside a pull, and plain where a choice is taken again."""

from __future__ import annotations

from ...core.types import Integers
from .loop_arrays import DownloadCounts, RouteTable


def accept(routes: RouteTable, counts: DownloadCounts, i: int, y: int, donors: Integers) -> bool:
    """Give client ``i`` the prototypes of ``donors`` (E,) for class ``y``; return whether its items are others now."""
    same = True
    for e in range(len(donors)):
        item = routes.current[y, donors[e]] if donors[e] >= 0 else -1
        same = same and item == routes.external[i, y, e]
    if same:
        return False
    times = counts.pulls[i] - 1 - counts.since[i, y]
    for e in range(len(donors)):
        if routes.donors[i, y, e] >= 0:
            counts.downloads[i, routes.donors[i, y, e]] += times
        routes.external[i, y, e] = routes.current[y, donors[e]] if donors[e] >= 0 else -1
        routes.donors[i, y, e] = donors[e]
    counts.since[i, y] = counts.pulls[i] - 1
    return True
