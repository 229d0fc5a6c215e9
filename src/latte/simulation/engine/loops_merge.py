"""How the memory that a client reads changes from sample to sample, compiled. Imported only where numba is."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...core.types import Integers, Reals
from .array_types import Integers1, Integers2, Mask1, Reals1
from .compiled import copy_row, helper
from .loop_arrays import BOTH, EXTERNAL, LOCAL, Arrivals, ClientItems, ClientSpan, ItemEntropies, ItemTable
from .tolerances import ENTROPY_NOISE, NEAR_ENTROPY

LANES = 16  # entropies that are compared together
IN_DOUBT = -1


class MergeRoom(NamedTuple):
    """Scratch space of a merge; all arrays are as long as S + E, rounded up to a multiple of LANES."""

    items: Integers1
    values: Reals1
    chosen: Integers1
    fresh: Integers1
    stays: Mask1


class Events(NamedTuple):
    """The changes of the memory that is read: before which sample (R,), of which class (R,), the new row (R, K)."""

    sample: Integers1
    label: Integers1
    row: Integers2


def merge_room(slots: int, wide: int) -> MergeRoom:
    """Return what is needed to merge ``slots`` local and ``wide`` external items."""
    size = (slots + wide + LANES - 1) // LANES * LANES
    integers = np.empty((3, size), np.int64)
    return MergeRoom(integers[0], np.empty(size), integers[1], integers[2], np.empty(size, np.bool_))


@helper
def walk(
    span: ClientSpan,
    items: ItemTable,
    held: ClientItems,
    arrivals: Arrivals,
    mode: int,
    room: MergeRoom,
    events: Events,
) -> int:
    """Follow one client through its samples and arrivals; write the events.

    Returns the number of events, or -1 - y where a merge of class y depends on prototypes whose entropies are not
    exact yet.
    """
    local, external, merged = held.local, held.external, held.merged
    count, at, k = int(np.int64(0)), span.begin, span.first
    while at < span.end or k < span.last:
        sample = k
        if at < span.end and arrivals.sample[at] <= k:  # what arrives before a sample comes first
            y = arrivals.label[at]
            copy_row(arrivals.items[arrivals.row[at]], external[y])
            at += 1
            if mode == LOCAL:
                continue
        else:
            y, slot = items.places.label[k], items.places.slot[k]
            k += 1
            if slot < 0:
                continue
            local[y, slot] = sample
            if mode == EXTERNAL:
                continue
        changed = _renew(local[y], external[y], merged[y], items.entropies, mode, room)
        if changed == IN_DOUBT:
            return int(-1 - y)
        if changed:
            events.sample[count], events.label[count] = sample, y
            copy_row(merged[y], events.row[count])
            count += 1
    return count


@helper
def _renew(
    local: Integers, external: Integers, row: Integers, entropies: ItemEntropies, mode: int, room: MergeRoom
) -> int:
    """Merge one class again; return 1 if its row changed, 0 if not, IN_DOUBT if rounding may decide."""
    if mode == BOTH:
        return _merge(local, external, row, entropies, room)
    source = external if mode == EXTERNAL else local
    changed = 0
    for s in range(len(row)):
        if row[s] != source[s]:
            row[s], changed = source[s], 1
    return changed


@helper
def _merge(local: Integers, external: Integers, row: Integers, entropies: ItemEntropies, room: MergeRoom) -> int:
    """Select the most certain items of a class (eq. 3); an item that stays does not change its place in ``row``."""
    count = int(np.int64(0))
    for s in range(len(local)):
        item = local[s]
        if item < 0:
            break  # slots fill in order
        room.items[count], room.values[count] = item, entropies.of_samples[item]
        count += 1
    for e in range(len(external)):
        item = external[e]
        if item >= 0:
            room.items[count], room.values[count] = item, entropies.stored[item - entropies.samples]
            count += 1
    if count <= len(row):
        return _arrange(row, room.items, count, room)
    last, out = _select(room, count, len(row))
    margin = NEAR_ENTROPY * out + ENTROPY_NOISE
    if out - last <= margin:
        for i in range(count):
            item = room.items[i]
            inexact = item >= entropies.samples and not entropies.exact[item - entropies.samples]
            if inexact and abs(room.values[i] - out) <= margin:
                return IN_DOUBT
    return _arrange(row, room.chosen, len(row), room)


@helper
def _select(room: MergeRoom, count: int, slots: int) -> tuple[float, float]:
    """Write the ``slots`` items of the lowest values, the first of equal ones; return the last value and the next."""
    value, size = room.values, (count + LANES - 1) // LANES * LANES
    for i in range(count, size):
        value[i] = np.inf
    chosen, last, out = 0, -np.inf, np.inf
    for i in range(count):
        if _count_below(value, size, value[i]) < slots:
            room.chosen[chosen] = room.items[i]
            chosen += 1
            last = max(last, value[i])
        else:
            out = min(out, value[i])
    if chosen > slots:  # several are equal to the last
        left, chosen, out = slots - _count_below(value, size, last), 0, last
        for i in range(count):
            if value[i] < last or (value[i] == last and left > 0):
                left -= value[i] == last
                room.chosen[chosen] = room.items[i]
                chosen += 1
    return last, out


@helper
def _count_below(value: Reals, size: int, limit: float) -> int:
    count = 0
    for i in range(size):
        count += value[i] < limit
    return count


@helper
def _arrange(row: Integers, chosen: Integers, count: int, room: MergeRoom) -> int:
    """Let ``row`` hold the first ``count`` of ``chosen``, without moving what it holds already.

    Returns 1 if anything changed, else 0.
    """
    slots, fresh, stays = len(row), room.fresh, room.stays
    for t in range(slots):
        stays[t] = False
    new = 0
    for s in range(count):
        place = -1
        for t in range(slots):
            if row[t] == chosen[s]:
                place = t
                break
        if place >= 0:
            stays[place] = True
        else:
            fresh[new] = chosen[s]
            new += 1
    changed, used = 0, 0
    for t in range(slots):
        if not stays[t] and (row[t] >= 0 or used < new):
            changed = 1
            row[t] = fresh[used] if used < new else -1
            used += 1
    return changed
