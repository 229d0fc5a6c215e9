"""The loops over the samples that clients predict, compiled. Imported only where numba is installed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...core.types import Integers, Reals, Vectors
from .compiled import copy_row, helper, kernel
from .loop_arrays import Arrivals, ClientSpan, HeldItems, ItemTable, ReadoutGrid, WindowSpan
from .loops_merge import Events, MergeRoom, walk
from .loops_number import ColumnRoom, OlderRoom, compare_older, count_new_items, number_columns
from .loops_readout import ReadoutRoom, compute_cosines, predict_label
from .tiles import Columns, compare_items, compare_samples

DONE = -1
NEEDS_ROOM = -1  # instead of a class


class ReadRoom(NamedTuple):
    """Scratch space of :func:`read_clients`, for the largest client of a window."""

    before: HeldItems  # of one client, as it was before the window
    merge: MergeRoom
    events: Events
    columns: ColumnRoom
    older: OlderRoom
    readout: ReadoutRoom
    near: Vectors  # (B * U,) the products of samples and columns
    uncertainty: Reals  # (U,)


@kernel
def read_clients(
    at: int,
    end: int,
    span: WindowSpan,
    items: ItemTable,
    memory: HeldItems,
    arrivals: Arrivals,
    readout: ReadoutGrid,
    room: ReadRoom,
    labels: Integers,
) -> tuple[int, int]:
    """Follow the clients ``at`` to ``end`` through a window and write their ``labels`` (alphas, betas, n).

    Returns (client, class) where a merge depends on prototypes whose entropies are not exact yet, and (client,
    NEEDS_ROOM) where ``room.older`` is too small, with the memories of that client as they were: the caller helps and
    continues with this client. (DONE, 0) at the end.
    """
    for i in range(at, end):
        if span.finished[i]:
            continue
        mine = HeldItems(memory.local[i], memory.external[i], memory.merged[i], memory.gram[i])
        _copy_held(mine, room.before)
        own = ClientSpan(span.first[i], span.last[i], arrivals.bounds[i], arrivals.bounds[i + 1])
        count = walk(own, items, mine, arrivals, readout.mode, room.merge, room.events)
        if count >= 0 and _read(own, items, mine.gram, readout, room, count, labels):
            continue
        _copy_held(room.before, mine)
        return i, -1 - count if count < 0 else NEEDS_ROOM
    return DONE, 0


@helper
def _copy_held(source: HeldItems, out: HeldItems) -> None:
    for y in range(len(source.local)):
        copy_row(source.local[y], out.local[y])
        copy_row(source.external[y], out.external[y])
        copy_row(source.merged[y], out.merged[y])


@helper
def _read(
    span: ClientSpan, items: ItemTable, gram: Vectors, readout: ReadoutGrid, room: ReadRoom, count: int, out: Integers
) -> bool:
    """Predict the samples of one client, from its memory before them and ``count`` events; False for lack of room."""
    start = room.before.merged
    columns = number_columns(span, start, room.events, count, room.columns)
    wide = count_new_items(columns, room.columns.fresh, room.older)
    if start.size * wide > len(room.older.products) or wide > room.older.block.shape[1]:
        return False
    compare_samples(items, span, columns, room.near)
    _look_up_entropies(items, columns, room.uncertainty)
    compare_older(items, start, wide, room.older)
    for y in range(len(start)):
        copy_row(start[y], room.columns.now[y])
    _follow(span, items, columns, gram, wide, readout, room, count, out)
    return True


@helper
def _look_up_entropies(items: ItemTable, columns: Columns, values: Reals) -> None:
    for u in range(columns.number):
        item = columns.item[u]
        values[u] = items.entropy[item] if item < items.samples else items.stored[item - items.samples]


@helper
def _follow(
    span: ClientSpan,
    items: ItemTable,
    columns: Columns,
    gram: Vectors,
    wide: int,
    readout: ReadoutGrid,
    room: ReadRoom,
    count: int,
    labels: Integers,
) -> None:
    """Predict sample by sample, with the memory as it is at that sample."""
    first, last = span.first, span.last
    events, now, e = room.events, room.columns.start, int(np.int64(0))
    for k in range(first, last + 1):
        while e < count and events.sample[e] <= k:
            y = events.label[e]
            copy_row(room.columns.later[e], now[y])
            _replace(span, items, columns, gram[y], wide, room, e)
            e += 1
        if k == last:
            break
        near = room.near[(k - first) * columns.number : (k - first + 1) * columns.number]
        for b in range(len(readout.betas)):
            compute_cosines(near, room.uncertainty, now, gram, readout.betas[b], readout, room.readout)
            for a in range(len(readout.alphas)):
                cosines = room.readout.cosines
                labels[a, b, k] = predict_label(items.logits[k], cosines, readout.alphas[a], readout.scale)


@helper
def _replace(
    span: ClientSpan, items: ItemTable, columns: Columns, gram: Vectors, wide: int, room: ReadRoom, e: int
) -> None:
    """Apply an event to its class and to its Gram matrix; almost all products are known already."""
    first, last = span.first, span.last
    y, row, own = room.events.label[e], room.events.row[e], room.columns.later[e]
    now, start, place = room.columns.now[y], room.before.merged[y], room.older.place
    samples, beside, origin = items.samples, items.beside, items.origin
    for s in range(len(row)):
        item = row[s]
        if item == now[s]:
            continue
        now[s] = item
        if item < 0:
            continue
        for t in range(len(row)):
            other = row[t]
            if other < 0:
                continue
            if item >= samples and other >= samples and beside.shape[1]:
                a, b = item - samples, other - samples
                # the later of the two was compared with the earlier when it came
                value = beside[a, origin[b, 0]] if origin[a, 1] >= origin[b, 1] else beside[b, origin[a, 0]]
            elif columns.born[own[s]] <= other < last:
                value = room.near[(other - first) * columns.number + own[s]]
            elif columns.born[own[t]] <= item < last:
                value = room.near[(item - first) * columns.number + own[t]]
            elif other < samples and start[t] == other and place[own[s]] >= 0:
                value = room.older.products[(y * len(row) + t) * wide + place[own[s]]]
            else:
                value = compare_items(items, item, other)
            gram[s, t] = gram[t, s] = value
