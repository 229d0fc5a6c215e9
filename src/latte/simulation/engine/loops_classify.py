"""Lengths, logits and entropies of many rows, compiled. Imported only where numba is installed."""

from __future__ import annotations

import math

import numpy as np

from ...core.types import Integers, Mask, Reals, Vectors
from .compiled import helper, kernel, loose_helper
from .tiles import tile


@kernel
def squares(rows: Vectors, index: Integers, out: Vectors) -> None:
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
def classify(rows: Vectors, index: Integers, norms: Vectors, text: Reals, room: Reals, logits: Reals) -> None:
    """Write the products (n, C) of the rows ``index``, divided by ``norms``, with ``text``, summed in float64.

    ``room`` (2, D) is scratch space.
    """
    last = len(index) - 1
    for k in range(0, last + 1, 2):
        m = min(k + 1, last)
        _widen(rows[index[k]], norms[k], room[0])
        _widen(rows[index[m]], norms[m], room[1])
        _multiply(room[0], room[1], text, logits[k], logits[m])


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


@kernel
def judge(logits: Reals, near: float, pseudo: Integers, uncertainty: Reals, close: Mask) -> None:
    """Write the argmax and the entropy of logits (n, C), and whether the two best logits are closer than ``near``."""
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
        uncertainty[k] = min(max(math.log(total) - nats / total, 0.0) / math.log(classes), 1.0)
        close[k] = largest - second < near
