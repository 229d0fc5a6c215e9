"""The loops over the samples that clients predict, compiled. Imported only where numba is installed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...core.types import Integers, Vectors
from .array_types import Integers1, Integers3, Vectors1
from .compiled import copy_row, helper, kernel
from .loop_arrays import ClientItems, ClientSpan, ItemTable, ItemVectors, Memories, ReadoutGrid, WindowTask
from .loops_merge import Events, MergeRoom, walk
from .loops_number import ColumnRoom, describe_columns, number_columns
from .loops_readout import ReadoutRoom, compute_confidence, compute_cosines, predict_label
from .tiles import compare_samples, compare_with_four

DONE = -1


class ReadRoom(NamedTuple):
    """Scratch space of :func:`read_clients`, for the largest client of a window."""

    before: ClientItems  # of one client, as it was before the window
    merge: MergeRoom
    events: Events
    columns: ColumnRoom
    readout: ReadoutRoom
    missing: Integers1  # (K,) the slots whose product with another one is not known
    near: Vectors1  # (B * U,) the products of samples and columns


@kernel
def read_clients(
    at: int, end: int, task: WindowTask, memory: Memories, readout: ReadoutGrid, room: ReadRoom, labels: Integers3
) -> tuple[int, int]:
    """Follow the clients ``at`` to ``end`` through a window and write their ``labels`` (alphas, betas, n).

    Returns (client, class) where a merge depends on prototypes whose entropies are not exact yet, with the memories of
    that client as they were: the caller makes them exact and continues with this client. (DONE, 0) at the end.
    """
    span, arrivals, held = task.span, task.arrivals, memory.held
    for i in range(at, end):
        if span.finished[i]:
            continue
        mine = ClientItems(held.local[i], held.external[i], held.merged[i])
        _copy_held(mine, room.before)
        own = ClientSpan(span.first[i], span.last[i], arrivals.bounds[i], arrivals.bounds[i + 1])
        count = walk(own, task.items, mine, arrivals, readout.mode, room.merge, room.events)
        if count < 0:
            _copy_held(room.before, mine)
            return i, -1 - count
        _read(own, task.items, memory.gram[i], readout, room, count, labels)
    return DONE, 0


@helper
def _copy_held(source: ClientItems, out: ClientItems) -> None:
    for y in range(len(source.local)):
        copy_row(source.local[y], out.local[y])
        copy_row(source.external[y], out.external[y])
        copy_row(source.merged[y], out.merged[y])


@helper
def _read(
    span: ClientSpan,
    items: ItemTable,
    gram: Vectors,
    readout: ReadoutGrid,
    room: ReadRoom,
    count: int,
    labels: Integers,
) -> None:
    """Predict the samples of one client, from its memory before them and ``count`` events."""
    events, columns, first = room.events, room.columns, span.first
    width = number_columns(span, room.before.merged, events, count, columns)
    compare_samples(items.vectors, span, columns, width, room.near)
    describe_columns(items.entropies, items.products.origin, width, columns)
    now, e = columns.start, int(np.int64(0))
    for k in range(first, span.last + 1):
        while e < count and events.sample[e] <= k:
            y = events.label[e]
            _replace(span, items, room, width, events.row[e], now[y], gram[y])
            e += 1
        if k == span.last:
            break
        near = room.near[(k - first) * width : (k - first + 1) * width]
        for b in range(len(readout.betas)):
            compute_cosines(near, columns.entropy, now, gram, readout.betas[b], readout, room.readout)
            for a in range(len(readout.alphas)):
                cosines = room.readout.cosines
                labels[a, b, k] = predict_label(items.logits[k], cosines, readout.alphas[a], readout.scale)
                if readout.confidences.shape[0]:
                    readout.confidences[a, b, k] = compute_confidence(
                        items.logits[k], items.entropies.of_samples[k], readout.alphas[a], readout.scale, room.readout
                    )


@helper
def _replace(
    span: ClientSpan, items: ItemTable, room: ReadRoom, width: int, row: Integers, now: Integers, gram: Vectors
) -> None:
    """Let a class have the columns ``row`` (K,) instead of ``now``, and so its Gram matrix; most products are known."""
    item_of = room.columns.item
    for s in range(len(row)):
        if row[s] == now[s]:
            continue
        now[s] = row[s]
        if row[s] < 0:
            continue
        if item_of[row[s]] >= items.vectors.samples and items.products.beside.shape[1]:
            missing = _look_up_prototype(span, items, room, width, row, s, gram)
        else:
            missing = _look_up_item(span, room, width, row, s, gram)
        if missing:
            _multiply(items.vectors, item_of, row, s, room.missing, missing, gram)


@helper
def _look_up_prototype(
    span: ClientSpan, items: ItemTable, room: ReadRoom, width: int, row: Integers, s: int, gram: Vectors
) -> int:
    """Write the known products of the prototype in slot ``s``; return for how many slots they are missing."""
    columns, samples, beside = room.columns, items.vectors.samples, items.products.beside
    c, missing = row[s], int(np.int64(0))
    item, born, sync, client = columns.item[c], columns.born[c], columns.sync[c], columns.client[c]
    for t in range(len(row)):
        o = row[t]
        if o < 0:
            continue
        other = columns.item[o]
        if other >= samples:  # the later of the two was compared with the earlier when it came
            later = sync >= columns.sync[o]
            value = beside[(item if later else other) - samples, columns.client[o] if later else client]
        elif other >= born:
            value = room.near[(other - span.first) * width + c]
        else:
            room.missing[missing] = t
            missing += 1
            continue
        gram[s, t] = gram[t, s] = value
    return missing


@helper
def _look_up_item(span: ClientSpan, room: ReadRoom, width: int, row: Integers, s: int, gram: Vectors) -> int:
    """Do the same for a sample, or for any item if the products of prototypes are not stored."""
    columns, near, first, last = room.columns, room.near, span.first, span.last
    c, missing = row[s], int(np.int64(0))
    item, born = columns.item[c], columns.born[c]
    for t in range(len(row)):
        o = row[t]
        if o < 0:
            continue
        other = columns.item[o]
        if born <= other < last:
            value = near[(other - first) * width + c]
        elif columns.born[o] <= item < last:
            value = near[(item - first) * width + o]
        else:
            room.missing[missing] = t
            missing += 1
            continue
        gram[s, t] = gram[t, s] = value
    return missing


@helper
def _multiply(
    items: ItemVectors, item_of: Integers, row: Integers, s: int, missing: Integers, count: int, gram: Vectors
) -> None:
    """Write the products of slot ``s`` of a class with ``count`` others."""
    end, item = count - 1, item_of[row[s]]
    for g in range(0, count, 4):
        t, u, v, w = missing[g], missing[min(g + 1, end)], missing[min(g + 2, end)], missing[min(g + 3, end)]
        values = compare_with_four(items, item, item_of[row[t]], item_of[row[u]], item_of[row[v]], item_of[row[w]])
        gram[s, t], gram[s, u], gram[s, v], gram[s, w] = values
        gram[t, s], gram[u, s], gram[v, s], gram[w, s] = values
