"""What the server stores in a push: prototypes and their similarities with those of all clients, compiled.

Imported only where numba is installed.
"""

from __future__ import annotations

from ...core.types import Integers
from .compiled import copy_row, helper
from .loop_arrays import RouteTable, UploadBatch
from .tiles import compare_with_all


@helper
def push(routes: RouteTable, uploads: UploadBatch, first: int, last: int, now: int) -> None:
    """Store the uploads ``first`` to ``last`` of one sync and compare them with the prototypes of all clients."""
    for u in range(first, last):
        i, y = uploads.client[u], uploads.label[u]
        copy_row(uploads.prototypes[uploads.items[u] - uploads.samples], routes.vectors[y, i])
        routes.current[y, i] = uploads.items[u] if uploads.seen[u] else -1
        routes.changed[y] = routes.stamp[y, i] = now
        if routes.seen[y, i] != uploads.seen[u]:
            _note_seen(routes, i, y, 1 if uploads.seen[u] else -1)
    start = first
    for u in range(first + 1, last + 1):
        if u == last or uploads.label[u] != uploads.label[start]:
            y = uploads.label[start]
            compare_with_all(routes.vectors[y], uploads.client[start:u], routes.similarity[y])
            start = u
    for u in range(first, last):
        place, i = uploads.items[u] - uploads.samples, uploads.client[u]
        copy_row(routes.similarity[uploads.label[u], i], uploads.beside[place])
        uploads.origin[place, 0], uploads.origin[place, 1] = i, now


@helper
def _note_seen(routes: RouteTable, i: int, y: int, change: int) -> None:
    for j in range(routes.seen.shape[1]):
        if j != i and routes.seen[y, j]:
            routes.common[i, j] += change
            routes.common[j, i] += change
    routes.common[i, i] += change
    routes.seen[y, i] = change > 0


@helper
def find_starts(label: Integers, starts: Integers) -> None:
    """Write where each class starts in sorted labels (C + 1,)."""
    for y in range(len(starts)):
        starts[y] = 0
    for u in range(len(label)):
        starts[label[u] + 1] += 1
    for y in range(len(starts) - 1):
        starts[y + 1] += starts[y]
