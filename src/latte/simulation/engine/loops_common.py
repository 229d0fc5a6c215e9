"""Loops that are the same with and without numba: here as plain Python, in ``loops_share`` compiled."""

from __future__ import annotations

from typing import Any

import numpy as np

from .state import ALWAYS, FIRST, LATEST, Counts, Items, Routes
from .timeline import Window


def fill_queues(sequence: Any, starts: Any, pseudo: Any, entropy: Any, shape: Any) -> Any:
    """Return the slot (n,) that each sample goes into, -1 for none.

    ``sequence`` orders the samples; a new set of queues starts at each of ``starts``. What leaves a full queue is
    the highest entropy; which of several equal ones, and for what, is the last part of ``shape``.
    """
    classes, slots, rule = shape
    slot = np.full(len(pseudo), -1, np.int64)
    held, since = np.empty((classes, slots)), np.zeros((classes, slots), np.int64)
    count = np.zeros(classes, np.int64)
    for part in range(len(starts) - 1):
        count[:] = 0
        for place in range(starts[part], starts[part + 1]):
            k = sequence[place]
            y = pseudo[k]
            s = count[y]
            if s < slots:
                count[y] += 1
            else:
                s = slots - 1
                for t in range(slots - 2, -1, -1):
                    tie = held[y, t] == held[y, s]
                    tie = tie and (rule == FIRST or (rule == LATEST and since[y, t] > since[y, s]))
                    s = t if held[y, t] > held[y, s] or tie else s
                if entropy[k] >= held[y, s] and rule != ALWAYS:
                    continue
            held[y, s], since[y, s] = entropy[k], place
            slot[k] = s
    return slot


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


def accept(routes: Routes, counts: Counts, i: int, y: int, rows: Any) -> Any:
    """Replace a client's list of a class; return whether it holds other prototypes than before."""
    same = True
    for e in range(len(rows)):
        item = routes.current[y, rows[e]] if rows[e] >= 0 else -1
        same = same and item == routes.external[i, y, e]
    if same:
        return False
    times = counts.pulls[i] - 1 - counts.since[i, y]
    for e in range(len(rows)):
        if routes.donors[i, y, e] >= 0:
            counts.downloads[i, routes.donors[i, y, e]] += times
        routes.external[i, y, e] = routes.current[y, rows[e]] if rows[e] >= 0 else -1
        routes.donors[i, y, e] = rows[e]
    counts.since[i, y] = counts.pulls[i] - 1
    return True
