"""Equations 4 to 7 for one sample, compiled. Imported only where numba is installed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...core.readout import CANCELLED
from .compiled import exactly, loosely, tightly
from .state import Readout

NOTHING = float(np.finfo(np.float64).min)
LOWEST = -708.0  # exp of less is not a normal number: so much as 0
LOG2_E, ROUND = 1 / math.log(2), 1.5 * 2.0**52  # a number to which this is added is rounded to a whole one
LN2_HIGH, LN2_LOW = 0.6931471803691238, 1.9082149292705877e-10  # ln 2 in two parts, the first with trailing zeros
# of the exponential series, enough for |x| <= ln 2 / 2
A0, A1, A2, A3, A4, A5, A6, A7, A8, A9, A10, A11, A12, A13 = (1 / math.factorial(n) for n in range(14))


@exactly
def readout_room(classes: int, slots: int) -> Any:
    """Return what :func:`cosines` writes into: weights and similarities (C, K), then room for exponentials."""
    rounded, power = np.empty(classes * slots), np.empty(classes * slots, np.int64)
    weights, near = np.empty((classes, slots)), np.empty((classes, slots))
    return weights, near, weights.reshape(-1), (rounded, rounded.view(np.int64), power, power.view(np.float64))


@tightly
def cosines(memory: Any, beta: float, readout: Readout, room: Any, answer: Any) -> None:
    """Write f · normalise(Σ w m) per class (C,) into ``answer``; 0 where there is nothing to read."""
    similarity, uncertainty, columns, gram = memory
    weights, near, flat, scratch = room
    ceiling = 1.0 if readout.gate >= 0 else np.inf  # rounding can put a cosine above 1, which only B8 would notice
    for y in range(len(columns)):
        row, w, s = columns[y], weights[y], near[y]
        largest = -np.inf
        for k in range(len(row)):
            w[k], s[k] = -np.inf, 0.0
            if row[k] >= 0:
                s[k] = similarity[row[k]]
                w[k] = beta * min(s[k], ceiling) - readout.gamma * uncertainty[row[k]]
                largest = max(largest, w[k])
        # B8: exp(beta (s - 1)); a common factor matters only with the gate of B1
        # where nothing is stored the largest is -inf, and any shift will do
        shift = beta if readout.gate >= 0 else max(largest, NOTHING)
        for k in range(len(row)):
            w[k] = max(w[k] - shift, LOWEST)
    _exponentials(flat, scratch)
    for y in range(len(columns)):
        answer[y] = _cosine(weights[y], near[y], gram[y], readout.gate)


@tightly
def _exponentials(values: Any, scratch: Any) -> None:
    """Replace values from LOWEST on by their exponentials, several at a time: x = k ln 2 + r, e^x = 2^k e^r.

    A float64 that was rounded by adding a large number has k in its last bits; moved up, they are the exponent of 2^k.
    """
    rounded, bits, power, scale = scratch
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


@loosely
def _cosine(weights: Any, near: Any, gram: Any, gate: float) -> Any:
    dots, squares = 0.0, 0.0
    for s in range(len(weights)):
        dots += weights[s] * near[s]
        part = 0.0
        for t in range(len(weights)):
            part += weights[t] * gram[s, t]
        squares += weights[s] * part
    limit = gate * gate if gate >= 0 else CANCELLED
    return dots / math.sqrt(squares) if squares > limit else 0.0


@tightly
def label(logits: Any, cosine: Any, alpha: float, scale: float) -> Any:
    """Return the class with the largest z + alpha z_mem (eq. 7), the first among equals."""
    best, top = 0, -np.inf
    for y in range(len(cosine)):
        value = logits[y] + (alpha * scale) * cosine[y]
        if value > top:
            best, top = y, value
    return best
