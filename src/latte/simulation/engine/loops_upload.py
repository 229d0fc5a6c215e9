"""What clients upload: the queues at every sync, and their prototypes, compiled.

Imported only where numba is installed.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ...core.types import Integers, Reals
from . import queues
from .array_types import Integers1, Integers2, Integers3, Mask1, Reals1, Reals2, Vectors2
from .compiled import helper, kernel, loose_helper
from .loop_arrays import ItemVectors, QueuePlaces
from .timeline import Window

fill_queues = kernel(queues.fill_queues)


class QueueVersions(NamedTuple):
    """The queues that changed before a sync: which sync, client and class (U,), and the samples in it (U, S)."""

    sync: Integers1
    client: Integers1
    label: Integers1
    contents: Integers2


class PrototypeRows(NamedTuple):
    """Where prototypes go: ``vectors[places]`` (n, D), and which of them there are (n,)."""

    places: Integers1
    vectors: Vectors2
    seen: Mask1


@kernel
def follow_queues(
    window: Window,
    pushed: Integers1,
    offsets: Integers1,
    places: QueuePlaces,
    local: Integers3,
    touched: Mask1,
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
            y, s = places.label[k], places.slot[k]
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
def blend(items: ItemVectors, contents: Integers2, weights: Reals2, total: Reals1, out: PrototypeRows) -> None:
    """Write eq. 1 of the samples in queues (n, S), -1 for none, as LocalMemory.prototypes computes it.

    ``total`` (D,) is scratch space.
    """
    for r in range(len(contents)):
        if r == 0 or not _amend(items, contents, weights, r, total):
            _add_all(items, contents[r], weights[r], total)
        square = _square(total)
        out.seen[r] = square > 0
        shrink = 1.0 / math.sqrt(square) if square > 0 else 1.0
        vector = out.vectors[out.places[r]]
        for d in range(len(total)):
            vector[d] = total[d] * shrink


@helper
def _amend(items: ItemVectors, contents: Integers, weights: Reals, r: int, total: Reals) -> bool:
    """Turn the sum of queue ``r - 1`` into that of ``r``, if that is the same queue a little later.

    Returns whether it is. The sample that leaves a queue weighs least: to subtract it costs no accuracy.
    """
    before, after, weights_before, weights_after = contents[r - 1], contents[r], weights[r - 1], weights[r]
    changed, heaviest, factor = 0, 0.0, 0.0
    for s in range(len(after)):
        if before[s] != after[s]:
            changed += 1 if after[s] >= 0 else len(after)
        elif before[s] >= 0 and weights_before[s] > heaviest:  # the ratio of two that nearly vanish has few digits
            heaviest, factor = weights_before[s], weights_after[s] / weights_before[s]
    if factor <= 0 or changed == 0 or 4 * changed > len(after):
        return False
    scale = factor
    for s in range(len(after)):
        if before[s] != after[s]:
            _exchange(items, before[s], after[s], factor * weights_before[s], weights_after[s], scale, total)
            scale = 1.0
    return True


@helper
def _exchange(
    items: ItemVectors, old: int, new: int, old_weight: float, new_weight: float, scale: float, total: Reals
) -> None:
    """Multiply a sum by ``scale``, then subtract the sample ``old`` (-1 for none) and add the sample ``new``."""
    if old >= 0 and items.norms[old] == 1 and items.norms[new] == 1:  # in one pass
        old_row, new_row = items.rows[items.row_of[old]], items.rows[items.row_of[new]]
        for d in range(len(total)):
            total[d] = scale * total[d] - old_weight * old_row[d] + new_weight * new_row[d]
        return
    for d in range(len(total)):
        total[d] *= scale
    if old >= 0:
        _add(items, old, -old_weight, total)
    _add(items, new, new_weight, total)


@helper
def _add_all(items: ItemVectors, queue: Integers, weights: Reals, total: Reals) -> None:
    for d in range(len(total)):
        total[d] = 0.0
    for s in range(len(queue)):
        if queue[s] < 0:
            break  # slots fill in order
        _add(items, queue[s], weights[s], total)


@helper
def _add(items: ItemVectors, sample: int, weight: float, total: Reals) -> None:
    row, norm = items.rows[items.row_of[sample]], items.norms[sample]
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
