"""Which items a client reads in a window, one column each, compiled. Imported only where numba is installed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...core.types import Integers
from .array_types import Integers1, Integers2, Reals1, Vectors1
from .compiled import helper
from .loop_arrays import ClientSpan, ItemEntropies
from .loops_merge import Events

ROUGHLY = 4  # samples


class ColumnRoom(NamedTuple):
    """The items that are read in a window, one column each; there is room for U columns."""

    item: Integers1  # (U,)
    born: Integers1  # (U,) the first sample that reads the item
    dead: Integers1  # (U,) the first sample that does not read it any more
    order: Integers1  # (U,) in which order to take the columns
    scale: Vectors1  # (U,) one over the length of the item
    entropy: Reals1  # (U,)
    client: Integers1  # (U,) that a prototype comes from
    sync: Integers1  # (U,) at which it came
    start: Integers2  # (C, K) the columns of every class before the window
    now: Integers2  # (C, K) and at the event that is being numbered
    ends: Integers1  # (B / ROUGHLY + 3,)


@helper
def number_columns(span: ClientSpan, start: Integers, events: Events, count: int, room: ColumnRoom) -> int:
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


@helper
def describe_columns(entropies: ItemEntropies, origin: Integers, columns: int, room: ColumnRoom) -> None:
    """Write the entropy of every column, and where a prototype comes from."""
    for u in range(columns):
        item = room.item[u]
        if item < entropies.samples:
            room.entropy[u] = entropies.of_samples[item]
        else:
            place = item - entropies.samples
            room.entropy[u] = entropies.stored[place]
            room.client[u], room.sync[u] = origin[place, 0], origin[place, 1]
