"""The loops of the queues, the uploads and the global memory, compiled.

Imported only where numba is installed; ``plain_share`` does the same with numpy.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .compiled import exactly
from .state import Items, Routes, Uploads
from .tiles import against_all
from .timeline import Window

NEAR_DOT = 8e-7  # against_all sums in many partial sums, which is more accurate than a general matrix product


@exactly
def fill_queues(sequence: Any, starts: Any, pseudo: Any, entropy: Any, shape: Any) -> Any:
    """Return the slot (n,) that each sample goes into, -1 for none, as LocalMemory.put does.

    ``sequence`` orders the samples; a new set of queues starts at each of ``starts``.
    """
    classes, slots = shape
    slot = np.full(len(sequence), -1, np.int64)
    held = np.empty((classes, slots))
    count = np.zeros(classes, np.int64)
    for part in range(len(starts) - 1):
        count[:] = 0
        for place in range(starts[part], starts[part + 1]):
            k = sequence[place]
            y = pseudo[k]
            if count[y] < slots:
                s = count[y]
                count[y] += 1
            else:
                s = _last_largest(held[y])
                if entropy[k] >= held[y, s]:
                    continue
            held[y, s] = entropy[k]
            slot[k] = s
    return slot


@exactly
def _last_largest(values: Any) -> Any:
    best = 0
    for s in range(1, len(values)):
        if values[s] >= values[best]:
            best = s
    return best


@exactly
def upload(window: Window, pushed: Any, offsets: Any, items: Items, local: Any) -> Any:
    """Play what the local memories (N, C, S) of those who push go through.

    Returns what changed, by sync: (sync, client, class, contents), each (U,) or (U, S).
    """
    room = 0
    for i in range(len(pushed)):
        room += window.handled[i] - pushed[i]
    number, client, label = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int64)
    contents = np.empty((room, local.shape[2]), np.int64)
    touched = np.zeros(local.shape[1], np.bool_)
    count, sync = 0, 0
    for m in range(len(window.members)):
        while window.starts[sync + 1] <= m:
            sync += 1
        i = window.members[m]
        begin = count
        for k in range(offsets[i] + pushed[i], offsets[i] + window.at[m]):
            y = items.pseudo[k]
            if items.slot[k] < 0:
                continue
            local[i, y, items.slot[k]] = k
            if not touched[y]:
                touched[y] = True
                number[count], client[count], label[count] = sync, i, y
                count += 1
        pushed[i] = window.at[m]
        for u in range(begin, count):
            contents[u] = local[i, label[u]]
            touched[label[u]] = False
    return number[:count], client[:count], label[:count], contents[:count]


@exactly
def push(routes: Routes, uploads: Uploads, part: Any, now: int) -> None:
    """Store the uploads ``part`` (first, last) of one sync and compare them with everyone's."""
    first, last = part
    for u in range(first, last):
        i, y = uploads.client[u], uploads.label[u]
        routes.vectors[y, i] = uploads.vectors[u]
        routes.current[y, i] = uploads.items[u] if uploads.seen[u] else -1
        routes.changed[y] = now
        if routes.seen[y, i] != uploads.seen[u]:
            _note_seen(routes, i, y, 1 if uploads.seen[u] else -1)
    start = first
    for u in range(first + 1, last + 1):
        if u == last or uploads.label[u] != uploads.label[start]:
            y = uploads.label[start]
            against_all(routes.vectors[y], uploads.client[start:u], routes.similarity[y])
            start = u


@exactly
def _note_seen(routes: Routes, i: int, y: int, change: int) -> None:
    for j in range(routes.seen.shape[1]):
        if j != i and routes.seen[y, j]:
            routes.common[i, j] += change
            routes.common[j, i] += change
    routes.common[i, i] += change
    routes.seen[y, i] = change > 0


@exactly
def copy_units(items: Items, contents: Any, out: Any) -> None:
    """Write the unit vectors of samples (n, S) into ``out`` (n, S, D); what -1 stands for is left as it is."""
    for r in range(contents.shape[0]):
        for s in range(contents.shape[1]):
            k = contents[r, s]
            if k >= 0:
                row, norm = items.rows[items.index[k]], items.norms[k]
                for d in range(len(row)):
                    out[r, s, d] = row[d] / norm
