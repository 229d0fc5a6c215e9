"""Which items a client reads in a window, one column each, compiled. Imported only where numba is installed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...core.types import Integers, Vectors
from .compiled import helper
from .loop_arrays import ClientSpan, ItemTable
from .loops_merge import Events
from .tiles import Columns, compare_pairs

ROUGHLY = 4  # samples


class ColumnRoom(NamedTuple):
    """Room for the columns of a window: U of them, and R events."""

    item: Integers  # (U,)
    born: Integers  # (U,) the first sample that reads the item
    dead: Integers  # (U,) the first sample that does not read it any more
    order: Integers  # (U,)
    scale: Vectors  # (U,)
    fresh: Integers  # (U,) the class of an item that comes during the window
    now: Integers  # (C, K) the items of every class
    columns: Integers  # (C, K) their columns
    start: Integers  # (C, K) their columns before the window
    later: Integers  # (R, K) the columns of an event's row
    ends: Integers  # (B / ROUGHLY + 3,)


class OlderRoom(NamedTuple):
    """Products of the samples that a class starts with, and the items that come to the class in the window."""

    place: Integers  # (U,) the column of an item in ``products``, -1 for none
    width: Integers  # (C,) the number of new items of a class
    members: Integers  # (U,) the new items, class by class
    begin: Integers  # (C + 1,) where the classes start in ``members``
    rows: Integers  # (K,)
    samples: Integers  # (K,)
    block: Vectors  # (K, W) products of one class
    products: Vectors  # (C * K * W,) row y * K + s has ``wide`` products


@helper
def number_columns(span: ClientSpan, start: Integers, events: Events, count: int, room: ColumnRoom) -> Columns:
    """Give every item that is read a column, from the memory before the window ``start`` (C, K) and the events."""
    first, last = span.first, span.last
    classes, slots = start.shape
    size = int(np.int64(0))
    for y in range(classes):
        for s in range(slots):
            item, column = start[y, s], -1
            if item >= 0:
                column, room.item[size], room.born[size], room.dead[size] = size, item, first, last
                room.fresh[size] = -1
                size += 1
            room.now[y, s], room.columns[y, s], room.start[y, s] = item, column, column
    for e in range(count):
        k, y = events.sample[e], events.label[e]
        for s in range(slots):
            item = events.row[e, s]
            if item != room.now[y, s]:
                if room.columns[y, s] >= 0:
                    room.dead[room.columns[y, s]] = k
                room.now[y, s], room.columns[y, s] = item, -1
                if item >= 0:
                    room.columns[y, s], room.item[size], room.born[size], room.dead[size] = size, item, k, last
                    room.fresh[size] = y
                    size += 1
            room.later[e, s] = room.columns[y, s]
    _sort_by_end(span, size, room)
    return Columns(size, room.item, room.born, room.dead, room.order, room.scale)


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


@helper
def count_new_items(columns: Columns, fresh: Integers, room: OlderRoom) -> int:
    """Number the new items of every class; return the largest number of any class, at least 1."""
    classes = len(room.width)
    for y in range(classes):
        room.width[y] = 0
    for u in range(columns.number):
        room.place[u] = -1
        if fresh[u] >= 0:
            room.place[u] = room.width[fresh[u]]
            room.width[fresh[u]] += 1
    wide = 1
    room.begin[0] = 0
    for y in range(classes):
        wide = max(wide, room.width[y])
        room.begin[y + 1] = room.begin[y] + room.width[y]
    for u in range(columns.number):
        if fresh[u] >= 0:
            room.members[room.begin[fresh[u]] + room.place[u]] = columns.item[u]
    return wide


@helper
def compare_older(items: ItemTable, start: Integers, wide: int, room: OlderRoom) -> None:
    """Write the products of the samples that every class starts with (C, K) and of the new items of the class."""
    classes, slots = start.shape
    for y in range(classes):
        count, width = 0, room.width[y]
        for s in range(slots):
            if 0 <= start[y, s] < items.samples and width:
                room.rows[count], room.samples[count] = s, start[y, s]
                count += 1
        if count:
            compare_pairs(items, room.samples[:count], room.members[room.begin[y] : room.begin[y + 1]], room.block)
            for c in range(count):
                at = (y * slots + room.rows[c]) * wide
                for u in range(width):
                    room.products[at + u] = room.block[c, u]
