"""What clients upload: the queues at every sync, and their prototypes, compiled.

Imported only where numba is installed.
"""

from __future__ import annotations

import math

import numpy as np

from ...core.types import Reals
from ..cache import helper, kernel, loose_helper
from . import queues
from .arrays import (
    Integers1,
    Integers2,
    Integers3,
    ItemTable,
    Mask1,
    QueueVersions,
    Reals1,
    Reals2,
    RouteTable,
    UploadBatch,
    Vectors2,
    Window,
)
from .classify import compare_with_all, copy_row

fill_queues = kernel(queues.fill_queues)


@kernel
def follow_queues(
    window: Window,
    pushed: Integers1,
    offsets: Integers1,
    label: Integers1,
    slot: Integers1,
    local: Integers3,
    touched: Mask1,
    out: QueueVersions,
) -> int:
    """Follow the local memories (N, C, S) through the pushes of a window; write what changed, return how many rows.

    ``pushed`` (N,) counts the samples that every client had handled at its last push. ``touched`` (C,) is False
    everywhere, before and after.
    """
    count, sync = int(np.int64(0)), 0
    for m in range(len(window.members)):
        while window.starts[sync + 1] <= m:
            sync += 1
        i = window.members[m]
        begin = count
        for k in range(offsets[i] + pushed[i], offsets[i] + window.at[m]):
            y, s = label[k], slot[k]
            if s < 0:
                continue
            local[i, y, s] = k
            if not touched[y]:
                touched[y] = True
                out.sync[count], out.client[count], out.label[count] = sync, i, y
                count += 1
        pushed[i] = window.at[m]
        for u in range(begin, count):
            y = out.label[u]
            for s in range(local.shape[2]):
                out.contents[u, s] = local[i, y, s]
            touched[y] = False
    return count


@kernel
def blend(
    items: ItemTable,
    contents: Integers2,
    weights: Reals2,
    total: Reals1,
    places: Integers1,
    vectors: Vectors2,
    seen: Mask1,
) -> None:
    """Write eq. 1 of the samples in queues (n, S), -1 for none, as LocalMemory.prototypes computes it.

    It goes to ``vectors[places]`` (n, D); ``seen`` (n,) says which there are. ``total`` (D,) is scratch space.
    """
    for r in range(len(contents)):
        for d in range(len(total)):
            total[d] = 0.0
        for s in range(contents.shape[1]):
            if contents[r, s] < 0:
                break  # slots fill in order
            _add(items, contents[r, s], weights[r, s], total)
        square = _square(total)
        seen[r] = square > 0
        shrink = 1.0 / math.sqrt(square) if square > 0 else 1.0
        vector = vectors[places[r]]
        for d in range(len(total)):
            vector[d] = total[d] * shrink


@helper
def _add(items: ItemTable, sample: int, weight: float, total: Reals) -> None:
    row, norm = items.rows[items.row_of[sample]], items.norms[sample]
    if norm == 1:
        for d in range(len(row)):
            total[d] += weight * row[d]
    else:
        for d in range(len(row)):
            total[d] += weight * np.float32(row[d] / norm)


@loose_helper
def _square(vector: Reals) -> float:
    total = 0.0
    for d in range(len(vector)):
        total += vector[d] * vector[d]
    return total


@helper
def push(routes: RouteTable, uploads: UploadBatch, first: int, last: int, now: int) -> None:
    """Store the uploads ``first`` to ``last`` of one sync and compare them with the prototypes of all clients."""
    for u in range(first, last):
        i, y = uploads.client[u], uploads.label[u]
        copy_row(uploads.prototypes[uploads.items[u] - uploads.samples], routes.vectors[y, i])
        routes.current[y, i] = uploads.items[u] if uploads.seen[u] else -1
        routes.changed[y] = routes.stamp[y, i] = now
        if routes.seen[y, i] != uploads.seen[u]:
            change = 1 if uploads.seen[u] else -1
            for j in range(routes.seen.shape[1]):
                if j != i and routes.seen[y, j]:
                    routes.common[i, j] += change
                    routes.common[j, i] += change
            routes.common[i, i] += change
            routes.seen[y, i] = uploads.seen[u]
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
