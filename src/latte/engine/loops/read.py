"""The memory that a client reads: how it changes from sample to sample, and its items as columns (eq. 3); then the loop
over the samples that clients predict (equations 4 to 7); compiled.

Imported only where numba is installed.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ...core.maths import MATCH_STEPS, MATCH_TOLERANCE
from ...core.types import Integers, Reals, Vectors
from ...methods.latte.readout import CANCELLED
from ..cache import helper, kernel, loose_helper
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
    Integers3,
    ItemTable,
    Mask1,
    Memories,
    ReadoutGrid,
    Reals1,
    Reals2,
    Vectors1,
    WindowTask,
)
from .classify import compare_samples, copy_row, norm_of, tile, vector_of

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


DONE = -1
LOWEST_FLOAT = float(np.finfo(np.float64).min)
LOWEST_EXPONENT = -708.0  # exp of less is not a normal number: it counts as 0
LOG2_E, ROUND = 1 / math.log(2), 1.5 * 2.0**52  # a number to which this is added is rounded to a whole one
LN2_HIGH, LN2_LOW = 0.6931471803691238, 1.9082149292705877e-10  # ln 2 in two parts, the first with trailing zeros
# of the exponential series, enough for |x| <= ln 2 / 2
A0, A1, A2, A3, A4, A5, A6, A7, A8, A9, A10, A11, A12, A13 = (1 / math.factorial(n) for n in range(14))


class ReadoutRoom(NamedTuple):
    """Scratch space: weights and similarities of all items (C, K) as one row each, then two rows for exponentials.

    ``bits`` and ``scale`` are the same memory as ``rounded`` and ``power``, as another type.
    """

    weights: Reals2  # (C, K)
    near: Reals2  # (C, K)
    flat: Reals1  # (C * K,) the weights
    rounded: Reals1  # (C * max(K, 1),)
    bits: Integers1
    power: Integers1  # (C * max(K, 1),)
    scale: Reals1
    cosines: Reals1  # (C,)
    exponents: Reals1  # (C,)
    shifted: Reals1  # (C,)


def readout_room(classes: int, slots: int) -> ReadoutRoom:
    """Return scratch space for a memory (C, K)."""
    longest = classes * max(slots, 1)  # that many weights, or the scores of all classes where no slots are read
    rounded, power = np.empty(longest), np.empty(longest, np.int64)
    weights, near = np.empty((classes, slots)), np.empty((classes, slots))
    flat, bits, scale = weights.reshape(-1), rounded.view(np.int64), power.view(np.float64)
    return ReadoutRoom(weights, near, flat, rounded, bits, power, scale, *np.empty((3, classes)))


@helper
def compute_cosines(
    similarity: Vectors,
    uncertainty: Reals,
    columns: Integers,
    gram: Vectors,
    beta: float,
    readout: ReadoutGrid,
    room: ReadoutRoom,
) -> None:
    """Write f · normalise(Σ w m) per class (C,) into ``room.cosines``; 0 where there is nothing to read."""
    ceiling = 1.0 if readout.gate >= 0 else np.inf  # rounding can put a cosine above 1, which matters to B8 only
    for y in range(len(columns)):
        row, w, s = columns[y], room.weights[y], room.near[y]
        largest = -np.inf
        for k in range(len(row)):
            w[k], s[k] = -np.inf, 0.0
            if row[k] >= 0:
                s[k] = similarity[row[k]]
                w[k] = beta * min(s[k], ceiling) - readout.gamma * uncertainty[row[k]]
                largest = max(largest, w[k])
        # B8: exp(beta (s - 1)); a common factor matters only with the gate of B1
        # where nothing is stored the largest is -inf, and any shift will do
        shift = beta if readout.gate >= 0 else max(largest, LOWEST_FLOAT)
        for k in range(len(row)):
            w[k] = max(w[k] - shift, LOWEST_EXPONENT)
    _exponentiate(room.flat, room)
    for y in range(len(columns)):
        room.cosines[y] = _cosine(room.weights[y], room.near[y], gram[y], readout.gate)


@helper
def _exponentiate(values: Reals, room: ReadoutRoom) -> None:
    """Replace values, C * max(K, 1) at most, by their exponentials, several at a time: x = k ln 2 + r, e^x = 2^k e^r.

    A float64 that was rounded by adding a large number has k in its last bits; moved up, they are the exponent of 2^k.
    """
    rounded, bits, power, scale = room.rounded, room.bits, room.power, room.scale
    for j in range(len(values)):
        rounded[j] = values[j] * LOG2_E + ROUND
    for j in range(len(values)):
        power[j] = (bits[j] << 52) + (1023 << 52)
    for j in range(len(values)):
        k = rounded[j] - ROUND
        r = (values[j] - k * LN2_HIGH) - k * LN2_LOW
        rr = r * r
        low = (A0 + A1 * r) + rr * (A2 + A3 * r)
        mid = (A4 + A5 * r) + rr * (A6 + A7 * r)
        high = (A8 + A9 * r) + rr * (A10 + A11 * r)
        r4 = rr * rr
        values[j] = (low + r4 * (mid + r4 * (high + r4 * (A12 + A13 * r)))) * scale[j]


@loose_helper
def _cosine(weights: Reals, near: Reals, gram: Vectors, gate: float) -> float:
    dots, squares = 0.0, 0.0
    for s in range(len(weights)):
        dots += weights[s] * near[s]
        part = 0.0
        for t in range(len(weights)):
            part += weights[t] * gram[s, t]
        squares += weights[s] * part
    limit = gate * gate if gate >= 0 else CANCELLED
    return dots / math.sqrt(squares) if squares > limit else 0.0


@helper
def compute_confidence(logits: Reals, uncertainty: float, alpha: float, scale: float, room: ReadoutRoom) -> float:
    """Return the probability of that class, at the temperature of ``match_entropy`` in :mod:`latte.core.maths`.

    ``uncertainty`` is the entropy of the zero-shot prediction. The steps are those of the function.
    """
    shifted, weights, classes = room.shifted, room.exponents, len(room.shifted)
    top = -np.inf
    for y in range(classes):
        shifted[y] = logits[y] + (alpha * scale) * room.cosines[y]
        top = max(top, shifted[y])
    for y in range(classes):
        shifted[y] -= top
    mean, square = _moments(shifted, shifted, classes)
    spread = math.sqrt(max(square - mean * mean, 0.0))
    if spread == 0:
        return 1.0 / classes
    nats, total = uncertainty * math.log(classes), 1.0
    rate, low, high = 1.0 / spread, 0.0, np.inf
    for _ in range(MATCH_STEPS):
        for y in range(classes):
            weights[y] = max(rate * shifted[y], LOWEST_EXPONENT)
        _exponentiate(weights, room)
        total = _total(weights)
        mean, square = _moments(weights, shifted, 0)
        mean, square = mean / total, square / total
        gap = math.log(total) - rate * mean - nats
        if abs(gap) < MATCH_TOLERANCE:
            break
        low, high = (rate, high) if gap > 0 else (low, rate)
        slope = rate * (square - mean * mean)
        step = rate + gap / slope if slope > 0 else low
        rate = step if low < step < high else min((low + high) / 2, 2 * low + rate)
    return 1.0 / total


@loose_helper
def _moments(weights: Reals, values: Reals, count: int) -> tuple[float, float]:
    """Return the sums of w v and of w v^2; with a ``count``, the means of v and of v^2 instead."""
    first, second = 0.0, 0.0
    for y in range(len(values)):
        weight = 1.0 / count if count else weights[y]
        first += weight * values[y]
        second += weight * values[y] * values[y]
    return first, second


@loose_helper
def _total(values: Reals) -> float:
    total = 0.0
    for y in range(len(values)):
        total += values[y]
    return total


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
    arrivals = task.arrivals
    for i in range(at, end):
        if task.finished[i]:
            continue
        mine = ClientItems(memory.local[i], memory.external[i], memory.merged[i])
        _copy_held(mine, room.before)
        own = ClientSpan(task.first[i], task.last[i], arrivals.bounds[i], arrivals.bounds[i + 1])
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
    width = number_columns(span, items, room.before.merged, events, count, columns)
    compare_samples(items, span, columns, width, room.near)
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
                alpha, best, top = readout.alphas[a], 0, -np.inf
                for y in range(len(now)):  # the largest z + alpha z_mem (eq. 7), the first of equal ones
                    value = items.logits[k, y] + (alpha * readout.scale) * room.readout.cosines[y]
                    if value > top:
                        best, top = y, value
                labels[a, b, k] = best
                if readout.confidences.shape[0]:
                    readout.confidences[a, b, k] = compute_confidence(
                        items.logits[k], items.entropy[k], alpha, readout.scale, room.readout
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
        missing = _look_up(span, items, room, width, row, s, gram)
        if missing:
            _multiply(items, item_of, row, s, room.missing, missing, gram)


@helper
def _look_up(
    span: ClientSpan, items: ItemTable, room: ReadRoom, width: int, row: Integers, s: int, gram: Vectors
) -> int:
    """Write the known products of the item in slot ``s``; return for how many slots they are missing."""
    columns, near, first, last, samples = room.columns, room.near, span.first, span.last, items.samples
    c, missing = row[s], int(np.int64(0))
    item, born = columns.item[c], columns.born[c]
    stored = item >= samples and items.beside.shape[1] > 0
    for t in range(len(row)):
        o = row[t]
        if o < 0:
            continue
        other = columns.item[o]
        if stored and other >= samples:  # the later of two prototypes was compared with the earlier when it came
            later = columns.sync[c] >= columns.sync[o]
            value = items.beside[(item if later else other) - samples, columns.client[o if later else c]]
        elif born <= other < last:
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
    items: ItemTable, item_of: Integers, row: Integers, s: int, missing: Integers, count: int, gram: Vectors
) -> None:
    """Write the products of slot ``s`` of a class with ``count`` others."""
    end, item, zero = count - 1, item_of[row[s]], np.float32(0.0)
    a, own = vector_of(items, item), norm_of(items, item)
    for g in range(0, count, 4):
        t, u, v, w = missing[g], missing[min(g + 1, end)], missing[min(g + 2, end)], missing[min(g + 3, end)]
        p, q, r, x = item_of[row[t]], item_of[row[u]], item_of[row[v]], item_of[row[w]]
        vectors = vector_of(items, p), vector_of(items, q), vector_of(items, r), vector_of(items, x)
        ap, aq, ar, ax, _, _, _, _ = tile(a, a, vectors[0], vectors[1], vectors[2], vectors[3], zero)
        gram[s, t] = gram[t, s] = ap / (own * norm_of(items, p))
        gram[s, u] = gram[u, s] = aq / (own * norm_of(items, q))
        gram[s, v] = gram[v, s] = ar / (own * norm_of(items, r))
        gram[s, w] = gram[w, s] = ax / (own * norm_of(items, x))
