"""What clients upload: the queues at every sync, and their prototypes, compiled.

Imported only where numba is installed.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ...core.types import Integers, Mask, Reals, Vectors
from . import queues
from .compiled import helper, kernel, loose_helper
from .loop_arrays import ItemTable
from .timeline import Window

fill_queues = kernel(queues.fill_queues)


class QueueVersions(NamedTuple):
    """The queues that changed before a sync: which sync, client and class (U,), and the samples in it (U, S)."""

    sync: Integers
    client: Integers
    label: Integers
    contents: Integers


class PrototypeRows(NamedTuple):
    """Where prototypes go: ``vectors[places]`` (n, D), and which of them there are (n,)."""

    places: Integers
    vectors: Vectors
    seen: Mask


@kernel
def follow_queues(
    window: Window,
    pushed: Integers,
    offsets: Integers,
    items: ItemTable,
    local: Integers,
    touched: Mask,
    out: QueueVersions,
) -> int:
    """Follow the local memories (N, C, S) through the pushes of a window; write what changed, return how many rows.

    ``pushed`` (N,) counts the samples that every client had handled at its last push. ``touched`` (C,) is False
    everywhere, before and after.
    """
    count, sync = int(np.int64(0)), 0
    for m in range(len(window.members)):
        while window.starts[sync + 1] <= m:
            sync += 1
        i = window.members[m]
        begin = count
        for k in range(offsets[i] + pushed[i], offsets[i] + window.at[m]):
            y, s = items.pseudo[k], items.slot[k]
            if s < 0:
                continue
            local[i, y, s] = k
            if not touched[y]:
                touched[y] = True
                out.sync[count], out.client[count], out.label[count] = sync, i, y
                count += 1
        pushed[i] = window.at[m]
        for u in range(begin, count):
            y = out.label[u]
            for s in range(local.shape[2]):
                out.contents[u, s] = local[i, y, s]
            touched[y] = False
    return count


@kernel
def blend(items: ItemTable, contents: Integers, weights: Reals, total: Reals, out: PrototypeRows) -> None:
    """Write eq. 1 of the samples in queues (n, S), -1 for none, as LocalMemory.prototypes computes it.

    ``total`` (D,) is scratch space.
    """
    for r in range(len(contents)):
        if r == 0 or not _amend(items, contents, weights, r, total):
            for d in range(len(total)):
                total[d] = 0.0
            _add_all(items, contents[r], weights[r], total)
        square = _square(total)
        out.seen[r] = square > 0
        shrink = 1.0 / math.sqrt(square) if square > 0 else 1.0
        vector = out.vectors[out.places[r]]
        for d in range(len(total)):
            vector[d] = total[d] * shrink


@helper
def _amend(items: ItemTable, contents: Integers, weights: Reals, r: int, total: Reals) -> bool:
    """Turn the sum of queue ``r - 1`` into that of ``r``, where that is the same queue a little later.

    Returns whether it is. The sample that leaves a queue weighs least: to subtract it costs no accuracy.
    """
    before, after, weights_before, weights_after = contents[r - 1], contents[r], weights[r - 1], weights[r]
    changed, heaviest, factor = 0, 0.0, 0.0
    for s in range(len(after)):
        if before[s] != after[s]:
            changed += 1 if after[s] >= 0 else len(after)
        elif before[s] >= 0 and weights_before[s] > heaviest:  # the ratio of two that nearly vanish has few digits
            heaviest, factor = weights_before[s], weights_after[s] / weights_before[s]
    if factor <= 0 or 4 * changed > len(after):
        return False
    if factor != 1:
        for d in range(len(total)):
            total[d] *= factor
    for s in range(len(after)):
        old, new = before[s], after[s]
        if old != new:
            if old >= 0:
                _add(items.rows[items.row_of[old]], items.norms[old], -factor * weights_before[s], total)
            _add(items.rows[items.row_of[new]], items.norms[new], weights_after[s], total)
    return True


@helper
def _add_all(items: ItemTable, queue: Integers, weights: Reals, total: Reals) -> None:
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
        p, q = weights[s], weights[t] if s + 1 <= last else 0.0
        r, z = weights[u] if s + 2 <= last else 0.0, weights[v] if s + 3 <= last else 0.0
        a, b, c, d = rows[row_of[queue[s]]], rows[row_of[queue[t]]], rows[row_of[queue[u]]], rows[row_of[queue[v]]]
        _add_four(a, b, c, d, p, q, r, z, total)


@loose_helper
def _add_four(
    a: Vectors, b: Vectors, c: Vectors, d: Vectors, p: float, q: float, r: float, z: float, total: Reals
) -> None:
    for k in range(len(total)):
        total[k] += p * a[k] + q * b[k] + r * c[k] + z * d[k]


@helper
def _add(row: Vectors, norm: np.float32, weight: float, total: Reals) -> None:
    if norm == 1:
        for d in range(len(row)):
            total[d] += weight * row[d]
    else:
        for d in range(len(row)):
            total[d] += weight * np.float32(row[d] / norm)


@loose_helper
def _square(vector: Reals) -> float:
    total = 0.0
    for d in range(len(vector)):
        total += vector[d] * vector[d]
    return total
