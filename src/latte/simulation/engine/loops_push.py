"""What the server stores in a push: prototypes and their similarities with those of all clients, compiled.

Imported only where numba is installed.
"""

from __future__ import annotations

from ...core.types import Integers
from .compiled import copy_row, helper
from .loop_arrays import LatestPrototypes, UploadBatch
from .tiles import compare_with_all


@helper
def push(latest: LatestPrototypes, uploads: UploadBatch, first: int, last: int, now: int) -> None:
    """Store the uploads ``first`` to ``last`` of one sync and compare them with the prototypes of all clients."""
    for u in range(first, last):
        i, y = uploads.client[u], uploads.label[u]
        copy_row(uploads.prototypes[uploads.items[u] - uploads.samples], latest.vectors[y, i])
        latest.current[y, i] = uploads.items[u] if uploads.seen[u] else -1
        latest.changed[y] = latest.stamp[y, i] = now
        if latest.seen[y, i] != uploads.seen[u]:
            _note_seen(latest, i, y, 1 if uploads.seen[u] else -1)
    start = first
    for u in range(first + 1, last + 1):
        if u == last or uploads.label[u] != uploads.label[start]:
            y = uploads.label[start]
            compare_with_all(latest.vectors[y], uploads.client[start:u], latest.similarity[y])
            start = u
    for u in range(first, last):
        place, i = uploads.items[u] - uploads.samples, uploads.client[u]
        copy_row(latest.similarity[uploads.label[u], i], uploads.products.beside[place])
        uploads.products.origin[place, 0], uploads.products.origin[place, 1] = i, now


@helper
def _note_seen(latest: LatestPrototypes, i: int, y: int, change: int) -> None:
    for j in range(latest.seen.shape[1]):
        if j != i and latest.seen[y, j]:
            latest.common[i, j] += change
            latest.common[j, i] += change
    latest.common[i, i] += change
    latest.seen[y, i] = change > 0


@helper
def find_starts(label: Integers, starts: Integers) -> None:
    """Write where each class starts in sorted labels (C + 1,)."""
    for y in range(len(starts)):
        starts[y] = 0
    for u in range(len(label)):
        starts[label[u] + 1] += 1
    for y in range(len(starts) - 1):
        starts[y + 1] += starts[y]
