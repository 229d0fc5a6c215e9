"""The loops of the queues, the uploads and the global memory, compiled.

Imported only where numba is installed; ``plain_share`` does the same with numpy.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from . import loops_common as common
from .compiled import exactly, loosely, put, tightly
from .state import Items, Routes, Uploads
from .tiles import against_all, tile

NEAR_DOT = 5e-7  # against_all differs from a matrix product by up to 1.2e-7, so that two of its products by twice that


fill_queues = exactly(common.fill_queues)
upload = exactly(common.upload)
accept = tightly(common.accept)


@tightly
def push(routes: Routes, uploads: Uploads, part: Any, now: int) -> None:
    """Store the uploads ``part`` (first, last) of one sync and compare them with everyone's."""
    first, last = part
    for u in range(first, last):
        i, y = uploads.client[u], uploads.label[u]
        put(uploads.prototypes[uploads.items[u] - uploads.samples], routes.vectors[y, i])
        routes.current[y, i] = uploads.items[u] if uploads.seen[u] else -1
        routes.changed[y] = routes.stamp[y, i] = now
        if routes.seen[y, i] != uploads.seen[u]:
            _note_seen(routes, i, y, 1 if uploads.seen[u] else -1)
    start = first
    for u in range(first + 1, last + 1):
        if u == last or uploads.label[u] != uploads.label[start]:
            y = uploads.label[start]
            against_all(routes.vectors[y], uploads.client[start:u], routes.similarity[y])
            start = u
    for u in range(first, last):
        place, i = uploads.items[u] - uploads.samples, uploads.client[u]
        put(routes.similarity[uploads.label[u], i], uploads.beside[place])
        uploads.origin[place, 0], uploads.origin[place, 1] = i, now


@tightly
def _note_seen(routes: Routes, i: int, y: int, change: int) -> None:
    for j in range(routes.seen.shape[1]):
        if j != i and routes.seen[y, j]:
            routes.common[i, j] += change
            routes.common[j, i] += change
    routes.common[i, i] += change
    routes.seen[y, i] = change > 0


@loosely
def squares(rows: Any, index: Any, out: Any) -> None:
    """Write the squared lengths (n,) of some rows."""
    for k in range(len(index)):
        row, total = rows[index[k]], np.float32(0.0)
        for d in range(len(row)):
            total += row[d] * row[d]
        out[k] = total


@tightly
def classify(rows: Any, index: Any, norms: Any, text: Any, room: Any, logits: Any) -> None:
    """Write the products (n, C) of some rows, divided by ``norms``, with ``text``: float32 rows, float64 sums."""
    last = len(index) - 1
    for k in range(0, last + 1, 2):
        m = min(k + 1, last)
        _widen(rows[index[k]], norms[k], room[0])
        _widen(rows[index[m]], norms[m], room[1])
        _products(room[0], room[1], text, logits[k], logits[m])


@tightly
def _widen(row: Any, norm: Any, out: Any) -> None:
    if norm == 1:
        for d in range(len(row)):
            out[d] = row[d]
    else:
        for d in range(len(row)):
            out[d] = np.float32(row[d] / norm)


@loosely
def _products(a: Any, b: Any, text: Any, one: Any, other: Any) -> None:
    end = len(text) - 1
    for u in range(0, end + 1, 4):
        v, w, x = min(u + 1, end), min(u + 2, end), min(u + 3, end)
        p, q, r, s = text[u], text[v], text[w], text[x]
        ap, aq, ar, az, bp, bq, br, bz = tile(a, b, (p, q, r, s), 0.0)
        one[u], one[v], one[w], one[x] = ap, aq, ar, az
        other[u], other[v], other[w], other[x] = bp, bq, br, bz


@tightly
def judge(logits: Any, near: float, pseudo: Any, entropy: Any, close: Any) -> None:
    """Write the class and the entropy that logits (n, C) stand for, and where the class is too close to call."""
    classes = logits.shape[1]
    for k in range(len(logits)):
        best, second = 0, -np.inf
        for y in range(1, classes):
            if logits[k, y] > logits[k, best]:
                best, second = y, logits[k, best]
            elif logits[k, y] > second:
                second = logits[k, y]
        largest = logits[k, best]
        total, nats = 0.0, 0.0
        for y in range(classes):
            shifted = logits[k, y] - largest
            weight = math.exp(shifted)
            total += weight
            nats += weight * shifted
        pseudo[k] = best
        entropy[k] = min(max(math.log(total) - nats / total, 0.0) / math.log(classes), 1.0)
        close[k] = largest - second < near


@tightly
def blend(items: Items, contents: Any, weights: Any, room: Any, out: Any) -> None:
    """Write eq. 1 of samples (n, S), -1 for none, as LocalMemory.prototypes computes it.

    ``out`` is rows of vectors, the vectors, and who has a prototype (n,).
    """
    places, vectors, seen = out
    total = room[0]
    for r in range(len(contents)):
        if r == 0 or not _amend(items, contents[r - 1 : r + 1], weights[r - 1 : r + 1], total):
            total[:] = 0.0
            _add_all(items, contents[r], weights[r], total)
        square = _square(total)
        seen[r] = square > 0
        shrink = 1.0 / math.sqrt(square) if square > 0 else 1.0
        vector = vectors[places[r]]
        for d in range(len(total)):
            vector[d] = total[d] * shrink


@tightly
def _amend(items: Items, queues: Any, weights: Any, total: Any) -> Any:
    """Make the sum of one queue that of the next, where that is the same queue a little later; say whether it is.

    What leaves a queue is what weighs least, so that to subtract it costs no accuracy.
    """
    changed, heaviest, factor = 0, 0.0, 0.0
    for s in range(queues.shape[1]):
        if queues[0, s] != queues[1, s]:
            changed += 1 if queues[1, s] >= 0 else queues.shape[1]
        elif queues[0, s] >= 0 and weights[0, s] > heaviest:  # the ratio of two that nearly vanish has few digits
            heaviest, factor = weights[0, s], weights[1, s] / weights[0, s]
    if factor <= 0 or 4 * changed > queues.shape[1]:
        return False
    if factor != 1:
        for d in range(len(total)):
            total[d] *= factor
    for s in range(queues.shape[1]):
        old, new = queues[0, s], queues[1, s]
        if old != new:
            if old >= 0:
                _add(items.rows[items.row_of[old]], items.norms[old], -factor * weights[0, s], total)
            _add(items.rows[items.row_of[new]], items.norms[new], weights[1, s], total)
    return True


@tightly
def _add_all(items: Items, queue: Any, weights: Any, total: Any) -> None:
    """Add the weighted samples of a queue, four at a time where none has to be divided by its length."""
    rows, row_of, norms = items.rows, items.row_of, items.norms
    count, unit = 0, True
    while count < len(queue) and queue[count] >= 0:  # slots fill in order
        unit = unit and norms[queue[count]] == 1
        count += 1
    if not unit:
        for s in range(count):
            _add(rows[row_of[queue[s]]], norms[queue[s]], weights[s], total)
        return
    last = count - 1
    for s in range(0, count, 4):
        t, u, v = min(s + 1, last), min(s + 2, last), min(s + 3, last)
        given = (
            weights[s],
            weights[t] if s + 1 <= last else 0.0,
            weights[u] if s + 2 <= last else 0.0,
            weights[v] if s + 3 <= last else 0.0,
        )
        a, b, c, d = rows[row_of[queue[s]]], rows[row_of[queue[t]]], rows[row_of[queue[u]]], rows[row_of[queue[v]]]
        _add_four(a, b, c, d, given, total)


@loosely
def _add_four(a: Any, b: Any, c: Any, d: Any, weights: Any, total: Any) -> None:
    p, q, r, s = weights
    for k in range(len(total)):
        total[k] += p * a[k] + q * b[k] + r * c[k] + s * d[k]


@tightly
def _add(row: Any, norm: Any, weight: float, total: Any) -> None:
    if norm == 1:
        for d in range(len(row)):
            total[d] += weight * row[d]
    else:
        for d in range(len(row)):
            total[d] += weight * np.float32(row[d] / norm)


@loosely
def _square(vector: Any) -> Any:
    total = 0.0
    for d in range(len(vector)):
        total += vector[d] * vector[d]
    return total
