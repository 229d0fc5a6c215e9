"""What clients hold and read, without numba: a client's samples of a window together, a class at a time."""

from __future__ import annotations

import numpy as np

from ...core.readout import CANCELLED
from ...core.types import Integers, Mask, Reals, Vectors
from .state import BOTH, EXTERNAL, LOCAL, NEAR_ENTROPY, NOISE, Arrivals, Items, Memory, Readout, Span


def read_clients(
    who: tuple[int, int],
    span: Span,
    items: Items,
    memory: Memory,
    arrivals: Arrivals,
    readout: Readout,
    labels: Integers,
) -> tuple[int, int]:
    """Follow the clients ``who`` through a window and write their ``labels`` (alphas, betas, n).

    Returns (client, class) where a merge hangs on prototypes whose entropies are not exact yet, with that client's
    memories as they were: the caller makes them exact and continues with this client. (-1, -1) when done.
    """
    for i in range(*who):
        if span.finished[i]:
            continue
        mine = Memory(*(array[i] for array in memory))
        before = [array.copy() for array in mine[:3]]
        first, last = int(span.first[i]), int(span.last[i])
        when, label, candidates = _walk((first, last), items, mine, _of(arrivals, i), readout.mode)
        rows, doubtful = _merge(items, candidates, mine.merged.shape[1], readout.mode)
        if doubtful.any():
            for array, old in zip(mine[:3], before, strict=True):
                array[...] = old
            return i, int(label[doubtful.argmax()])
        held = _snapshots((first, last), mine.merged, (when, label, rows))
        if last > first:
            labels[:, :, first:last] = _answers(items, (first, last), held, readout)
    return -1, -1


def _of(arrivals: Arrivals, i: int) -> Arrivals:
    part = slice(arrivals.bounds[i], arrivals.bounds[i + 1])
    a = arrivals
    return Arrivals(a.sample[part], a.label[part], a.row[part], a.items, a.bounds)


def _walk(
    span: tuple[int, int], items: Items, memory: Memory, arrivals: Arrivals, mode: int
) -> tuple[Integers, Integers, Integers]:
    """Return before which samples (X,) which classes (X,) may change, and the candidates for them (X, S + E)."""
    first, last = span
    slot, pseudo = items.slot[first:last].tolist(), items.pseudo[first:last].tolist()
    when: list[int] = []
    label: list[int] = []
    rows: list[Integers] = []
    at, arrive = 0, arrivals.sample.tolist()
    for k in range(first, last + 1):
        changed = []
        while at < len(arrive) and arrive[at] <= k:
            y = int(arrivals.label[at])
            memory.external[y] = arrivals.items[arrivals.row[at]]
            changed += [y] if mode != LOCAL else []
            at += 1
        if k < last and slot[k - first] >= 0:
            y = pseudo[k - first]
            memory.local[y, slot[k - first]] = k
            changed += [y] if mode != EXTERNAL else []
        for y in changed:
            when.append(k)
            label.append(y)
            rows.append(np.concatenate([memory.local[y], memory.external[y]]))
    width = memory.local.shape[1] + memory.external.shape[1]
    table = np.array(rows, np.int64).reshape(len(rows), width)
    return np.array(when, np.int64), np.array(label, np.int64), table


def _merge(items: Items, candidates: Integers, width: int, mode: int) -> tuple[Integers, Mask]:
    """Return the most certain of each row (X, K), eq. 3, and which rows hang on a guess (X,)."""
    certain = np.zeros(len(candidates), np.bool_)
    if mode == LOCAL:
        return candidates[:, :width], certain
    if mode == EXTERNAL:
        return candidates[:, candidates.shape[1] - width :], certain
    assert mode == BOTH
    ranked = np.where(candidates >= 0, _entropies(items, candidates), np.inf)
    order = np.argsort(ranked, axis=1, kind="stable")
    kept = np.take_along_axis(candidates, order, axis=1)
    if kept.shape[1] == width:
        return kept, certain
    pair, value = kept[:, width - 1 : width + 1], np.take_along_axis(ranked, order, axis=1)[:, width - 1 : width + 1]
    both = np.isfinite(value[:, 1])
    gap = np.where(both, value[:, 1], 1.0) - np.where(both, value[:, 0], 0.0)
    close = both & (gap <= NEAR_ENTROPY * np.where(both, value[:, 1], 0.0) + NOISE)
    guessed = (
        (pair >= items.samples) & ~items.exact[np.maximum(pair - items.samples, 0)] if len(items.exact) else pair < -1
    )
    return kept[:, :width], close & guessed.any(axis=1)


def _entropies(items: Items, table: Integers) -> Reals:
    """Return the entropy of every item of a table; 1 for none."""
    everything = np.concatenate([items.entropy, items.stored, [1.0]])  # -1 picks the last
    return everything[table]


def _snapshots(span: tuple[int, int], merged: Integers, events: tuple[Integers, Integers, Integers]) -> Integers:
    """Return what is read for every sample (B, C, K); ``merged`` (C, K) is left as it is after the last."""
    first, last = span
    held = np.empty((last - first, *merged.shape), np.int64)
    at = 0
    when, label, rows = events
    for k in range(first, last + 1):
        while at < len(when) and when[at] <= k:
            merged[label[at]] = rows[at]
            at += 1
        if k < last:
            held[k - first] = merged
    return held


def _answers(items: Items, span: tuple[int, int], held: Integers, readout: Readout) -> Integers:
    """Return the labels (alphas, betas, B) of consecutive samples that read ``held`` (B, C, K)."""
    own = _vectors(items, np.arange(*span))
    cosines = np.zeros((len(readout.betas), *held.shape[:2]))
    for y in range(held.shape[1]):
        used, column = np.unique(held[:, y], return_inverse=True)
        if not len(used) or used[-1] < 0:
            continue
        there = np.zeros((len(own), len(used)), np.bool_)
        np.put_along_axis(there, column.reshape(len(own), -1), True, axis=1)
        there[:, used < 0] = False
        vectors = _vectors(items, np.maximum(used, 0))
        wide = vectors.astype(np.float64)
        block = ((own @ vectors.T).astype(np.float64), there, _entropies(items, used), wide @ wide.T)
        for b, beta in enumerate(readout.betas):
            cosines[b, :, y] = _cosines(block, float(beta), readout)
    logits = items.logits[span[0] : span[1]] + (readout.alphas * readout.scale)[:, None, None, None] * cosines
    labels: Integers = logits.argmax(axis=-1)
    return labels


def _vectors(items: Items, used: Integers) -> Vectors:
    """Return the unit vectors of items (U, D)."""
    vectors = np.empty((len(used), items.rows.shape[1]), np.float32)
    stored = used >= items.samples
    vectors[stored] = items.prototypes[used[stored] - items.samples]
    samples = used[~stored]
    vectors[~stored] = items.rows[items.row_of[samples]] / items.norms[samples, None]
    return vectors


def _cosines(block: tuple[Reals, Mask, Reals, Reals], beta: float, readout: Readout) -> Reals:
    """Return f · normalise(Σ w m) (B,) of one class, eq. 4 to 6; 0 where there is nothing to read."""
    similarity, there, uncertainty, gram = block
    near = np.minimum(similarity, 1.0) if readout.gate >= 0 else similarity  # rounding can put a cosine above 1
    exponent = np.where(there, beta * near - readout.gamma * uncertainty, -np.inf)
    if readout.gate >= 0:
        weights = np.exp(exponent - beta)
    else:
        largest = exponent.max(axis=1, keepdims=True)
        weights = np.exp(exponent - np.where(np.isfinite(largest), largest, 0.0))
    squares = ((weights @ gram) * weights).sum(axis=1)
    live = squares > (readout.gate**2 if readout.gate >= 0 else CANCELLED)
    dots = np.where(live, (weights * similarity).sum(axis=1), 0.0)
    cosines: Reals = dots / np.sqrt(squares, where=live, out=np.ones_like(squares))
    return cosines
