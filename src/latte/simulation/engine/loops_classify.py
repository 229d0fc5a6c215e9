"""Lengths, logits and entropies of many rows, compiled. Imported only where numba is installed."""

from __future__ import annotations

import math

import numpy as np

from ...core.types import Reals, Vectors
from .array_types import FixedReals2, FixedVectors2, Integers1, Reals2, Vectors1
from .compiled import helper, kernel, loose_helper
from .loop_arrays import ZeroShotResults
from .tiles import tile


@kernel
def squares(rows: FixedVectors2, index: Integers1, out: Vectors1) -> None:
    """Write the squared lengths (n,) of the rows ``index``."""
    for k in range(len(index)):
        out[k] = _square32(rows[index[k]])


@loose_helper
def _square32(row: Vectors) -> np.float32:
    total = np.float32(0.0)
    for d in range(len(row)):
        total += row[d] * row[d]
    return total


@kernel
def classify(
    rows: FixedVectors2,
    index: Integers1,
    norms: Vectors1,
    text: FixedReals2,
    near: float,
    room: Reals2,
    out: ZeroShotResults,
) -> None:
    """Classify the rows ``index``, divided by ``norms``, with ``text``; products are summed in float64.

    Two logits are close if they differ by less than ``near``. ``room`` (2, D) is scratch space.
    """
    last = len(index) - 1
    for k in range(0, last + 1, 2):
        m = min(k + 1, last)
        _widen(rows[index[k]], norms[k], room[0])
        _widen(rows[index[m]], norms[m], room[1])
        _multiply(room[0], room[1], text, out.logits[k], out.logits[m])
    for k in range(len(index)):
        _judge(out.logits[k], near, k, out)


@helper
def _widen(row: Vectors, norm: np.float32, out: Reals) -> None:
    if norm == 1:
        for d in range(len(row)):
            out[d] = row[d]
    else:
        for d in range(len(row)):
            out[d] = np.float32(row[d] / norm)


@loose_helper
def _multiply(a: Reals, b: Reals, text: Reals, of_a: Reals, of_b: Reals) -> None:
    end = len(text) - 1
    for u in range(0, end + 1, 4):
        v, w, x = min(u + 1, end), min(u + 2, end), min(u + 3, end)
        ap, aq, ar, az, bp, bq, br, bz = tile(a, b, text[u], text[v], text[w], text[x], 0.0)
        of_a[u], of_a[v], of_a[w], of_a[x] = ap, aq, ar, az
        of_b[u], of_b[v], of_b[w], of_b[x] = bp, bq, br, bz


@helper
def _judge(logits: Reals, near: float, k: int, out: ZeroShotResults) -> None:
    """Write what follows from the logits (C,) of row ``k``."""
    best, second = 0, -np.inf
    for y in range(1, len(logits)):
        if logits[y] > logits[best]:
            best, second = y, logits[best]
        elif logits[y] > second:
            second = logits[y]
    largest = logits[best]
    total, nats = 0.0, 0.0
    for y in range(len(logits)):
        shifted = logits[y] - largest
        weight = math.exp(shifted)
        total += weight
        nats += weight * shifted
    out.pseudo[k] = best
    out.entropy[k] = min(max(math.log(total) - nats / total, 0.0) / math.log(len(logits)), 1.0)
    out.close[k] = largest - second < near
