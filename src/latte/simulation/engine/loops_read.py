"""The loops over what clients hold and read, compiled.

Imported only where numba is installed; ``plain_read`` does the same with numpy.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .compiled import exactly, put, tightly
from .loops_merge import merge_room, walk
from .loops_readout import cosines, label, readout_room
from .state import Arrivals, Items, Memory, Readout, Span
from .tiles import pairs, product, similarities

ROUGHLY = 4  # samples


@exactly
def read_clients(
    who: Any, span: Span, items: Items, memory: Memory, arrivals: Arrivals, readout: Readout, labels: Any
) -> Any:
    """Follow the clients ``who`` through a window and write their ``labels`` (alphas, betas, n).

    Returns (client, class) where a merge hangs on prototypes whose entropies are not exact yet, with that client's
    memories as they were: the caller makes them exact and continues with this client. (-1, -1) when done.
    """
    room = merge_room(memory.local.shape[2], memory.external.shape[2])
    for i in range(who[0], who[1]):
        if span.finished[i]:
            continue
        mine = Memory(memory.local[i], memory.external[i], memory.merged[i], memory.gram[i])
        part = slice(arrivals.bounds[i], arrivals.bounds[i + 1])
        given = Arrivals(
            arrivals.sample[part], arrivals.label[part], arrivals.row[part], arrivals.items, arrivals.bounds
        )
        before = Memory(mine.local.copy(), mine.external.copy(), mine.merged.copy(), mine.gram)
        events = _room(span.last[i] - span.first[i] + len(given.sample), mine.merged.shape[1])
        count = walk((span.first[i], span.last[i]), items, mine, given, (readout.mode, events, room))
        if count < 0:
            mine.local[:], mine.external[:], mine.merged[:] = before.local, before.external, before.merged
            return i, -1 - count
        _read(items, (span.first[i], span.last[i]), before, (events, count), readout, labels)
    return -1, -1


@exactly
def _room(rows: int, width: int) -> Any:
    return np.empty(rows, np.int64), np.empty(rows, np.int64), np.empty((rows, width), np.int64)


@exactly
def _read(items: Items, span: Any, memory: Memory, history: Any, readout: Readout, labels: Any) -> None:
    """Predict the samples ``span`` of one client, from its ``memory`` before the first and what happens to it."""
    events, count = history
    first, last = span
    columns, later, used, fresh, life = _number(span, memory.merged, events, count)
    near, uncertainty = np.empty((last - first, len(used)), np.float32), np.empty(len(used))
    similarities(items, span, used, (*life, _by_end(span, life[1])), np.empty(len(used), np.float32), near)
    _uncertainties(items, used, uncertainty)
    products = (first, last, near, life[0], _older(items, memory.merged, events, (used, fresh), first))
    room = (readout_room(columns.shape[0], columns.shape[1]), np.empty(len(columns)))
    _follow(items, memory, (columns, uncertainty, products), (events, later, count), readout, room, labels)


@tightly
def _follow(items: Items, memory: Memory, read: Any, history: Any, readout: Readout, room: Any, labels: Any) -> None:
    """Predict sample by sample, with the memory as it is at that sample."""
    columns, uncertainty, products = read
    events, later, count = history
    scratch, answer = room
    first, last, near = products[0], products[1], products[2]
    e = 0
    for k in range(first, last + 1):
        while e < count and events[0][e] <= k:
            y = events[1][e]
            put(later[e], columns[y])
            _replace(items, memory.merged[y], memory.gram[y], (y, events[2][e], columns[y]), products)
            e += 1
        if k == last:
            break
        for b in range(len(readout.betas)):
            state = (near[k - first], uncertainty, columns, memory.gram)
            cosines(state, readout.betas[b], readout, scratch, answer)
            for a in range(len(readout.alphas)):
                labels[a, b, k] = label(items.logits[k], answer, readout.alphas[a], readout.scale)


@exactly
def _older(items: Items, start: Any, events: Any, numbered: Any, first: int) -> Any:
    """Return the products of the samples that every class starts with (C · K,) and of what is new in the class.

    ``places`` (U,) says which column of the products an item has, -1 for none.
    """
    used, fresh = numbered
    classes, slots = start.shape
    begin = len(used) - len(fresh)
    width = np.zeros(classes, np.int64)
    places = np.full(len(used), -1, np.int64)
    for u in range(len(fresh)):
        places[begin + u] = width[fresh[u]]
        width[fresh[u]] += 1
    wide = max(width.max(), 1)
    products = np.empty((classes * slots, wide), np.float32)
    members = np.empty((classes, wide), np.int64)
    for u in range(len(fresh)):
        members[fresh[u], places[begin + u]] = used[begin + u]
    rows, samples = np.empty(slots, np.int64), np.empty(slots, np.int64)
    room = np.empty((slots, wide), np.float32)
    for y in range(classes):
        count = 0
        for s in range(slots):
            if 0 <= start[y, s] < items.samples and width[y]:
                rows[count], samples[count] = s, start[y, s]
                count += 1
        if count:
            pairs(items, samples[:count], members[y, : width[y]], room)
            for c in range(count):
                products[y * slots + rows[c]] = room[c]
    return start.copy(), places, products


@tightly
def _uncertainties(items: Items, used: Any, values: Any) -> None:
    for u in range(len(used)):
        item = used[u]
        values[u] = items.entropy[item] if item < items.samples else items.stored[item - items.samples]


@exactly
def _number(span: Any, start: Any, events: Any, count: int) -> Any:
    """Give every item that is read a column.

    Returns the columns of ``start`` (C, K), those of the events, the items, the classes of the new ones, and from
    which sample until which an item is read.
    """
    first, last = span
    classes, slots = start.shape
    now, columns = start.copy(), np.full(start.shape, -1, np.int64)
    room = start.size + count * slots
    used, born, dead = np.empty(room, np.int64), np.empty(room, np.int64), np.full(room, last, np.int64)
    later, fresh = np.empty((count, slots), np.int64), np.empty(count * slots, np.int64)
    size = 0
    for y in range(classes):
        for s in range(slots):
            if start[y, s] >= 0:
                columns[y, s], used[size], born[size] = size, start[y, s], first
                size += 1
    at_start, begin = columns.copy(), size
    for e in range(count):
        k, y = events[0][e], events[1][e]
        for s in range(slots):
            item = events[2][e, s]
            if item != now[y, s]:
                if columns[y, s] >= 0:
                    dead[columns[y, s]] = k
                now[y, s], columns[y, s] = item, -1
                if item >= 0:
                    columns[y, s], used[size], fresh[size - begin], born[size] = size, item, y, k
                    size += 1
            later[e, s] = columns[y, s]
    return at_start, later, used[:size], fresh[: size - begin], (born[:size], dead[:size])


@exactly
def _by_end(span: Any, dead: Any) -> Any:
    """Return the items by when they cease to be read, roughly, then by when that begins.

    What is read at about the same time then comes together, and is multiplied with the samples of that time.
    """
    first, last = span
    starts = np.zeros((last - first) // ROUGHLY + 3, np.int64)
    for u in range(len(dead)):
        starts[(dead[u] - first + ROUGHLY - 1) // ROUGHLY + 1] += 1
    for k in range(1, len(starts)):
        starts[k] += starts[k - 1]
    order = np.empty(len(dead), np.int64)
    for u in range(len(dead)):
        end = (dead[u] - first + ROUGHLY - 1) // ROUGHLY
        order[starts[end]] = u
        starts[end] += 1
    return order


@tightly
def _replace(items: Items, now: Any, gram: Any, event: Any, products: Any) -> None:
    """Replace the row of a class, and what of its Gram matrix changes; almost all products are known already."""
    y, row, columns = event
    first, last, near, born, (start, places, older) = products
    samples, beside, origin = items.samples, items.beside, items.origin
    for s in range(len(row)):
        one = row[s]
        if one == now[s]:
            continue
        now[s] = one
        if one < 0:
            continue
        for t in range(len(row)):
            other = row[t]
            if other < 0:
                continue
            if one >= samples and other >= samples and beside.size:
                a, b = one - samples, other - samples
                # the later of the two was compared with the earlier when it came
                value = beside[a, origin[b, 0]] if origin[a, 1] >= origin[b, 1] else beside[b, origin[a, 0]]
            elif born[columns[s]] <= other < last:
                value = near[other - first, columns[s]]
            elif born[columns[t]] <= one < last:
                value = near[one - first, columns[t]]
            elif other < samples and start[y, t] == other and places[columns[s]] >= 0:
                value = older[y * len(row) + t, places[columns[s]]]
            else:
                value = product(items, one, other)
            gram[s, t] = gram[t, s] = value
