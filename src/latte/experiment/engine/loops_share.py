"""The loops of the queues, the uploads and the global memory, compiled.

Imported only where numba is installed; ``plain_share`` does the same with numpy.
"""

from __future__ import annotations

from typing import Any

from . import common
from .compiled import exactly, put, tightly
from .state import Items, Routes, Uploads
from .tiles import against_all

NEAR_DOT = 8e-7  # against_all sums in many partial sums, which is more accurate than a general matrix product


fill_queues = exactly(common.fill_queues)
upload = exactly(common.upload)
accept = tightly(common.accept)


@tightly
def push(routes: Routes, uploads: Uploads, part: Any, now: int) -> None:
    """Store the uploads ``part`` (first, last) of one sync and compare them with everyone's."""
    first, last = part
    for u in range(first, last):
        i, y = uploads.client[u], uploads.label[u]
        put(uploads.vectors[u], routes.vectors[y, i])
        routes.current[y, i] = uploads.items[u] if uploads.seen[u] else -1
        routes.changed[y] = routes.stamp[y, i] = now
        if routes.seen[y, i] != uploads.seen[u]:
            _note_seen(routes, i, y, 1 if uploads.seen[u] else -1)
    start = first
    for u in range(first + 1, last + 1):
        if u == last or uploads.label[u] != uploads.label[start]:
            y = uploads.label[start]
            against_all(routes.vectors[y], uploads.client[start:u], routes.similarity[y])
            start = u
    for u in range(first, last):
        place, i = uploads.items[u] - uploads.samples, uploads.client[u]
        put(routes.similarity[uploads.label[u], i], uploads.beside[place])
        uploads.origin[place, 0], uploads.origin[place, 1] = i, now


@tightly
def _note_seen(routes: Routes, i: int, y: int, change: int) -> None:
    for j in range(routes.seen.shape[1]):
        if j != i and routes.seen[y, j]:
            routes.common[i, j] += change
            routes.common[j, i] += change
    routes.common[i, i] += change
    routes.seen[y, i] = change > 0


@tightly
def copy_units(items: Items, contents: Any, out: Any) -> None:
    """Write the unit vectors of samples (n, S) into ``out`` (n, S, D); what -1 stands for is left as it is."""
    for r in range(contents.shape[0]):
        for s in range(contents.shape[1]):
            k = contents[r, s]
            if k >= 0:
                row, norm = items.rows[items.row_of[k]], items.norms[k]
                for d in range(len(row)):
                    out[r, s, d] = row[d] / norm
