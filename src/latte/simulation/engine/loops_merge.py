"""How the memory that a client reads changes from sample to sample, compiled. Imported only where numba is."""

from __future__ import annotations

from typing import Any

import numpy as np

from .compiled import exactly, put, tightly
from .state import BOTH, EXTERNAL, LOCAL, NEAR_ENTROPY, NOISE, Arrivals, Items, Memory

WIDTH = 16  # entropies that are compared together


@exactly
def merge_room(slots: int, wide: int) -> Any:
    """Return what :func:`walk` needs to merge ``slots`` local and ``wide`` external items."""
    size = (slots + wide + WIDTH - 1) // WIDTH * WIDTH
    integers = np.empty((3, size), np.int64)
    return integers[0], np.empty(size), integers[1], integers[2], np.empty(size, np.bool_)


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
            put(arrivals.items[arrivals.row[at]], external[y])
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
    items, value, kept, fresh, stays = room
    found = 0
    for s in range(len(local)):
        item = local[s]
        if item < 0:
            break  # slots fill in order
        items[found], value[found] = item, entropy[item]
        found += 1
    for e in range(len(external)):
        item = external[e]
        if item >= 0:
            items[found], value[found] = item, stored[item - samples]
            found += 1
    if found <= len(row):
        return _arrange(row, items[:found], fresh, stays)
    last, out = _most_certain(items, value, found, len(row), kept)
    margin = NEAR_ENTROPY * out + NOISE
    if out - last <= margin:
        for i in range(found):
            guessed = items[i] >= samples and not exact[items[i] - samples]
            if guessed and abs(value[i] - out) <= margin:
                return -1
    return _arrange(row, kept[: len(row)], fresh, stays)


@tightly
def _most_certain(items: Any, value: Any, found: int, slots: int, kept: Any) -> Any:
    """Write the ``slots`` items of the lowest values, among equals the first; return the last of these and the next."""
    size = (found + WIDTH - 1) // WIDTH * WIDTH
    for i in range(found, size):
        value[i] = np.inf
    count, last, out = 0, -np.inf, np.inf
    for i in range(found):
        if _below(value, size, value[i]) < slots:
            kept[count] = items[i]
            count += 1
            last = max(last, value[i])
        else:
            out = min(out, value[i])
    if count > slots:  # several are equal to the last
        room, count, out = slots - _below(value, size, last), 0, last
        for i in range(found):
            if value[i] < last or (value[i] == last and room > 0):
                room -= value[i] == last
                kept[count] = items[i]
                count += 1
    return last, out


@tightly
def _below(value: Any, size: int, limit: float) -> Any:
    count = 0
    for i in range(size):
        count += value[i] < limit
    return count


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
