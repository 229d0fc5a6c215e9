"""How the memory that a client reads changes from sample to sample, compiled. Imported only where numba is."""

from __future__ import annotations

from typing import Any

import numpy as np

from .compiled import exactly, put, tightly
from .state import BOTH, EXTERNAL, LOCAL, NEAR_ENTROPY, NOISE, Arrivals, Items, Memory


@exactly
def merge_room(slots: int) -> Any:
    """Return what :func:`walk` needs to merge into ``slots``."""
    size = slots + 1
    return np.empty(size, np.int64), np.empty(size), np.empty(size, np.int64), np.empty(size, np.bool_)


@tightly
def walk(span: Any, items: Items, memory: Memory, arrivals: Arrivals, out: Any) -> Any:
    """Follow one client through its samples ``span``; write how the memory that it reads changes.

    Returns the number of events, or -1 - y where a merge of class y hangs on prototypes whose entropies are not
    exact yet.
    """
    first, last = span
    mode, events, room = out
    local, external, merged = memory.local, memory.external, memory.merged
    slot, pseudo, sample, label = items.slot, items.pseudo, arrivals.sample, arrivals.label
    known = (items.samples, items.entropy, items.stored, items.exact)
    count, at = 0, 0
    for k in range(first, last + 1):
        while at < len(sample) and sample[at] <= k:
            y = label[at]
            put(arrivals.items[at], external[y])
            at += 1
            verdict = _renew(local[y], external[y], merged[y], known, (mode, room)) if mode != LOCAL else 0
            if verdict < 0:
                return -1 - y
            if verdict:
                events[0][count], events[1][count] = k, y
                put(merged[y], events[2][count])
                count += 1
        if k == last or slot[k] < 0:
            continue
        y = pseudo[k]
        local[y, slot[k]] = k
        verdict = _renew(local[y], external[y], merged[y], known, (mode, room)) if mode != EXTERNAL else 0
        if verdict < 0:
            return -1 - y
        if verdict:
            events[0][count], events[1][count] = k, y
            put(merged[y], events[2][count])
            count += 1
    return count


@tightly
def _renew(local: Any, external: Any, row: Any, known: Any, how: Any) -> Any:
    """Merge one class anew; return 1 if its row changed, 0 if not, -1 if that cannot be told yet."""
    mode, room = how
    if mode == BOTH:
        return _merge(local, external, row, known, room)
    source = external if mode == EXTERNAL else local
    changed = 0
    for s in range(len(row)):
        if row[s] != source[s]:
            row[s], changed = source[s], 1
    return changed


@tightly
def _merge(local: Any, external: Any, row: Any, known: Any, room: Any) -> Any:
    """Keep the most certain of a class (eq. 3), each where it was if it was there."""
    samples, entropy, stored, exact = known
    kept, value = room[0], room[1]
    slots = len(row)
    found = 0
    for s in range(slots):
        item = local[s]
        if item < 0:
            break  # slots fill in order
        found = _place(kept, value, found, item, entropy[item])
    for e in range(len(external)):
        item = external[e]
        if item >= 0:
            h = stored[item - samples]
            if found <= slots or h < value[slots]:
                found = _place(kept, value, found, item, h)
    if found > slots:
        if value[slots] - value[slots - 1] <= NEAR_ENTROPY * value[slots] + NOISE:
            for item in (kept[slots], kept[slots - 1]):
                if item >= samples and not exact[item - samples]:
                    return -1
        found = slots
    return _arrange(row, kept[:found], room[2], room[3])


@tightly
def _place(kept: Any, value: Any, found: int, item: int, h: float) -> Any:
    """Insert an item behind those that are as certain; the last falls out when there is no room."""
    at = min(found, len(kept) - 1)
    while at > 0 and value[at - 1] > h:
        kept[at], value[at] = kept[at - 1], value[at - 1]
        at -= 1
    kept[at], value[at] = item, h
    return min(found + 1, len(kept))


@tightly
def _arrange(row: Any, kept: Any, fresh: Any, stays: Any) -> Any:
    """Make ``row`` hold what is ``kept``, each where it was if it was there; return 1 if anything changed."""
    slots = len(row)
    stays[:slots] = False
    new = 0
    for s in range(len(kept)):
        place = -1
        for t in range(slots):
            if row[t] == kept[s]:
                place = t
                break
        if place >= 0:
            stays[place] = True
        else:
            fresh[new] = kept[s]
            new += 1
    changed, used = 0, 0
    for t in range(slots):
        if not stays[t] and (row[t] >= 0 or used < new):
            changed = 1
            row[t] = fresh[used] if used < new else -1
            used += 1
    return changed
