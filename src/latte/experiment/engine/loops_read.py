"""The loops over what one client holds and reads, compiled.

Imported only where numba is installed; ``plain_read`` does the same with numpy.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .compiled import exactly, loosely
from .state import BOTH, EXTERNAL, NEAR_ENTROPY, NOISE, Arrivals, Block, Events, Items, Memory, Readout

TINY = float(np.finfo(np.float64).tiny)

# --- what a client reads ----------------------------------------------------------------------------------


@exactly
def walk(span: Any, items: Items, memory: Memory, arrivals: Arrivals, events: Events) -> Any:
    """Follow one client through its samples ``span``; write how the memory that it reads changes.

    Returns the number of events, or -1 - y where a merge of class y hangs on prototypes whose entropies are not
    exact yet. Then the caller makes them exact and starts again.
    """
    first, last, mode = span
    count, at = 0, 0
    for k in range(first, last + 1):
        while at < len(arrivals.sample) and arrivals.sample[at] <= k:
            y = arrivals.label[at]
            memory.external[y] = arrivals.items[at]
            at += 1
            verdict = _renew(memory, items, y, mode, events, count, k)
            if verdict < 0:
                return -1 - y
            count += verdict
        if k == last or items.slot[k] < 0:
            continue
        y = items.pseudo[k]
        memory.local[y, items.slot[k]] = k
        if mode != EXTERNAL:
            verdict = _renew(memory, items, y, mode, events, count, k)
            if verdict < 0:
                return -1 - y
            count += verdict
    return count


@exactly
def _renew(memory: Memory, items: Items, y: int, mode: int, events: Events, count: int, k: int) -> Any:
    """Merge one class anew; return 1 if its row changed, 0 if not, -1 if that cannot be told yet."""
    if mode == BOTH:
        verdict = _merge(memory, items, y)
    else:
        verdict = _copy(memory.merged[y], memory.external[y] if mode == EXTERNAL else memory.local[y])
    if verdict == 1:
        events.sample[count], events.label[count] = k, y
        events.items[count] = memory.merged[y]
    return verdict


@exactly
def _copy(row: Any, source: Any) -> Any:
    changed = 0
    for s in range(len(row)):
        if row[s] != source[s]:
            changed = 1
        row[s] = source[s]
    return changed


@exactly
def _entropy(items: Items, item: int) -> Any:
    return items.entropy[item] if item < items.samples else items.stored[item - items.samples]


@exactly
def _merge(memory: Memory, items: Items, y: int) -> Any:
    """Keep the most certain of a class (eq. 3), each where it was if it was there."""
    slots, wide = memory.merged.shape[1], memory.external.shape[1]
    kept, value = np.empty(slots + 1, np.int64), np.empty(slots + 1)
    found = 0
    for c in range(slots + wide):
        item = memory.local[y, c] if c < slots else memory.external[y, c - slots]
        if item < 0:
            continue
        h = _entropy(items, item)
        if found == slots + 1 and h >= value[slots]:
            continue
        at = min(found, slots)
        while at > 0 and value[at - 1] > h:
            kept[at], value[at] = kept[at - 1], value[at - 1]
            at -= 1
        kept[at], value[at] = item, h
        found = min(found + 1, slots + 1)
    if found > slots:
        if value[slots] - value[slots - 1] <= NEAR_ENTROPY * value[slots] + NOISE and (
            _guessed(items, kept[slots]) or _guessed(items, kept[slots - 1])
        ):
            return -1
        found = slots
    return _arrange(memory.merged[y], kept[:found])


@exactly
def _guessed(items: Items, item: int) -> Any:
    return item >= items.samples and not items.exact[item - items.samples]


@exactly
def _arrange(row: Any, kept: Any) -> Any:
    """Make ``row`` hold what is ``kept``, each where it was if it was there; return 1 if anything changed."""
    slots = len(row)
    fresh, stays = np.empty(slots, np.int64), np.zeros(slots, np.bool_)
    new = 0
    for s in range(len(kept)):
        place = -1
        for t in range(slots):
            if row[t] == kept[s]:
                place = t
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


# --- reading ----------------------------------------------------------------------------------------------


@exactly
def number(start: Any, events: Events, count: int) -> Any:
    """Give every item that is read a column: return the columns of ``start`` (C, K), of the events, and the items."""
    classes, slots = start.shape
    now, columns = start.copy(), np.full(start.shape, -1, np.int64)
    items, later = np.empty(start.size + count * slots, np.int64), np.empty((count, slots), np.int64)
    used = 0
    for y in range(classes):
        for s in range(slots):
            if start[y, s] >= 0:
                columns[y, s], items[used] = used, start[y, s]
                used += 1
    first = columns.copy()
    for e in range(count):
        y = events.label[e]
        for s in range(slots):
            if events.items[e, s] != now[y, s]:
                now[y, s] = events.items[e, s]
                columns[y, s] = -1
                if now[y, s] >= 0:
                    columns[y, s], items[used] = used, now[y, s]
                    used += 1
            later[e, s] = columns[y, s]
    return first, later, items[:used]


@exactly
def read(block: Block, events: Events, columns: Any, gram: Any, readout: Readout) -> Any:
    """Return the labels (alphas, betas, B) of the samples of a block; ``gram`` (C, K, K) is kept up to date."""
    now, later = columns
    samples = len(block.similarity)
    labels = np.empty((len(readout.alphas), len(readout.betas), samples), np.int64)
    cosines = np.empty(len(now))
    weights, near = np.empty(now.shape), np.empty(now.shape)
    e = 0
    for b in range(samples):
        while e < len(later) and events.sample[e] <= block.first + b:
            _replace(now, later[e], events.label[e], block.vectors, gram)
            e += 1
        for t in range(len(readout.betas)):
            _weigh(block, b, now, (readout.betas[t], readout.gamma, readout.gate), (weights, near))
            for y in range(len(now)):
                cosines[y] = _cosine(weights[y], near[y], gram[y], readout.gate)
            for a in range(len(readout.alphas)):
                labels[a, t, b] = _label(block.dots[b], cosines, readout.alphas[a], readout.scale)
    while e < len(later):
        _replace(now, later[e], events.label[e], block.vectors, gram)
        e += 1
    return labels


@exactly
def _replace(now: Any, row: Any, y: int, vectors: Any, gram: Any) -> None:
    """Replace the columns of a class, and what of its Gram matrix changes."""
    for s in range(len(row)):
        if row[s] != now[y, s]:
            now[y, s] = row[s]
            if row[s] >= 0:
                _relate(now[y], s, vectors, gram[y])


@loosely
def _relate(columns: Any, s: int, vectors: Any, gram: Any) -> None:
    """Write the products of one item with the others of its class; a later change overwrites what it must."""
    own = vectors[columns[s]]
    for t in range(len(columns)):
        if columns[t] < 0:
            continue
        other = vectors[columns[t]]
        total = np.float32(0.0)
        for d in range(len(own)):
            total += own[d] * other[d]
        gram[s, t] = total
        gram[t, s] = total


@exactly
def _weigh(block: Block, b: int, now: Any, strength: Any, out: Any) -> None:
    """Write w = exp(beta s - gamma h) (C, K), eq. 4, and s; 0 in free slots."""
    beta, gamma, gate = strength
    weights, near = out
    for y in range(len(now)):
        largest = -np.inf
        for s in range(now.shape[1]):
            column = now[y, s]
            if column < 0:
                weights[y, s], near[y, s] = -np.inf, 0.0
                continue
            near[y, s] = block.similarity[b, column]
            weights[y, s] = beta * near[y, s] - gamma * block.entropy[column]
            largest = max(largest, weights[y, s])
        shift = beta if gate >= 0 else largest  # B8: a common factor matters only with the gate of B1
        for s in range(now.shape[1]):
            weights[y, s] = math.exp(weights[y, s] - shift) if now[y, s] >= 0 else 0.0


@loosely
def _cosine(weights: Any, near: Any, gram: Any, gate: float) -> Any:
    """Return f · normalise(Σ w m) of a class (eq. 5 and 6); 0 where there is nothing to read."""
    dots, squares = 0.0, 0.0
    for s in range(len(weights)):
        if weights[s] > 0.0:
            dots += weights[s] * near[s]
            part = 0.0
            for t in range(len(weights)):
                part += weights[t] * gram[s, t]
            squares += weights[s] * part
    limit = gate * gate if gate >= 0 else TINY
    return dots / math.sqrt(squares) if squares > limit else 0.0


@exactly
def _label(dots: Any, cosines: Any, alpha: float, scale: float) -> Any:
    best, top = 0, -np.inf
    for y in range(len(cosines)):
        value = scale * dots[y] + (alpha * scale) * cosines[y]
        if value > top:
            best, top = y, value
    return best
