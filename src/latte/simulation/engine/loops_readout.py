"""Equations 4 to 7 for one sample, compiled. Imported only where numba is installed."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ...core.maths import MATCH_STEPS, MATCH_TOLERANCE
from ...core.readout import CANCELLED
from ...core.types import Integers, Reals, Vectors
from .array_types import Integers1, Reals1, Reals2
from .compiled import helper, loose_helper
from .loop_arrays import ReadoutGrid

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
def predict_label(logits: Reals, cosines: Reals, alpha: float, scale: float) -> int:
    """Return the class with the largest z + alpha z_mem (eq. 7), the first of equal ones."""
    best, top = 0, -np.inf
    for y in range(len(cosines)):
        value = logits[y] + (alpha * scale) * cosines[y]
        if value > top:
            best, top = y, value
    return best


@helper
def compute_confidence(logits: Reals, uncertainty: float, alpha: float, scale: float, room: ReadoutRoom) -> float:
    """Return the probability of that class: at the temperature of ``match_entropy`` in :mod:`latte.core.maths`.

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
