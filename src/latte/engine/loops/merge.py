"""The memory that a client reads: how it changes from sample to sample, and its items as columns; compiled.

Imported only where numba is installed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...core.types import Integers, Reals
from ..cache import helper
from .arrays import (
    ENTROPY_NOISE,
    EXTERNAL,
    LOCAL,
    NEAR_ENTROPY,
    Arrivals,
    ClientItems,
    ClientSpan,
    ColumnRoom,
    Integers1,
    Integers2,
    ItemTable,
    Mask1,
    Reals1,
)
from .classify import copy_row

LANES = 16  # entropies that are compared together
IN_DOUBT = -1
ROUGHLY = 4  # samples within which columns count as read equally long


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
            y, slot = items.label[k], items.slot[k]
            k += 1
            if slot < 0:
                continue
            local[y, slot] = sample
            if mode == EXTERNAL:
                continue
        changed = _merge(local[y], external[y], merged[y], items, mode, room)
        if changed == IN_DOUBT:
            return int(-1 - y)
        if changed:
            events.sample[count], events.label[count] = sample, y
            copy_row(merged[y], events.row[count])
            count += 1
    return count


@helper
def _merge(local: Integers, external: Integers, row: Integers, items: ItemTable, mode: int, room: MergeRoom) -> int:
    """Select the most certain items of a class (eq. 3), of one memory or both.

    An item that stays does not change its place in ``row``. Returns 1 if anything changed, 0 if not, IN_DOUBT if
    rounding may decide.
    """
    count = int(np.int64(0))
    for s in range(len(local) if mode != EXTERNAL else 0):
        item = local[s]
        if item < 0:
            break  # slots fill in order
        room.items[count], room.values[count] = item, items.entropy[item]
        count += 1
    for e in range(len(external) if mode != LOCAL else 0):
        item = external[e]
        if item >= 0:
            room.items[count], room.values[count] = item, items.stored[item - items.samples]
            count += 1
    if count <= len(row):
        return _arrange(row, room.items, count, room)
    last, out = _select(room, count, len(row))
    margin = NEAR_ENTROPY * out + ENTROPY_NOISE
    if out - last <= margin:
        for i in range(count):
            item = room.items[i]
            inexact = item >= items.samples and not items.exact[item - items.samples]
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


@helper
def number_columns(
    span: ClientSpan, items: ItemTable, start: Integers, events: Events, count: int, room: ColumnRoom
) -> int:
    """Give every item that is read a column, from the memory before the window ``start`` (C, K) and the events.

    Returns the number of columns. The rows of the events hold columns afterwards, -1 for none.
    """
    classes, slots = start.shape
    size = int(np.int64(0))
    for y in range(classes):
        for s in range(slots):
            column = -1
            if start[y, s] >= 0:
                column, room.item[size], room.born[size], room.dead[size] = size, start[y, s], span.first, span.last
                size += 1
            room.start[y, s] = room.now[y, s] = column
    for e in range(count):
        row, now = events.row[e], room.now[events.label[e]]
        for s in range(slots):
            item, column = row[s], now[s]
            if item != (room.item[column] if column >= 0 else -1):
                if column >= 0:
                    room.dead[column] = events.sample[e]
                column = -1
                if item >= 0:
                    column, room.item[size], room.born[size], room.dead[size] = size, item, events.sample[e], span.last
                    size += 1
            row[s] = now[s] = column
    _sort_by_end(span, size, room)
    for u in range(size):
        place = room.item[u] - items.samples
        if place < 0:
            room.entropy[u] = items.entropy[room.item[u]]
        else:
            room.entropy[u] = items.stored[place]
            room.client[u], room.sync[u] = items.origin[place, 0], items.origin[place, 1]
    return size


@helper
def _sort_by_end(span: ClientSpan, size: int, room: ColumnRoom) -> None:
    """Order the columns by when they cease to be read, roughly, then by when that begins.

    What is read at about the same time then comes together, and is multiplied with the samples of that time.
    """
    ends, dead, first = room.ends, room.dead, span.first
    for k in range((span.last - first) // ROUGHLY + 3):
        ends[k] = 0
    for u in range(size):
        ends[(dead[u] - first + ROUGHLY - 1) // ROUGHLY + 1] += 1
    for k in range(1, (span.last - first) // ROUGHLY + 3):
        ends[k] += ends[k - 1]
    for u in range(size):
        end = (dead[u] - first + ROUGHLY - 1) // ROUGHLY
        room.order[ends[end]] = u
        ends[end] += 1
