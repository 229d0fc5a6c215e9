"""Equations 4 to 7 for one sample, compiled. Imported only where numba is installed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .compiled import loosely, tightly
from .state import Readout

TINY = float(np.finfo(np.float64).tiny)


@tightly
def cosines(memory: Any, beta: float, readout: Readout, room: Any, answer: Any) -> None:
    """Write f · normalise(Σ w m) per class (C,) into ``answer``; 0 where there is nothing to read."""
    similarity, uncertainty, columns, gram = memory
    weights, near = room
    for y in range(len(columns)):
        row, w, s = columns[y], weights[y], near[y]
        largest = -np.inf
        for k in range(len(row)):
            w[k] = -np.inf
            s[k] = 0.0
            if row[k] >= 0:
                s[k] = similarity[row[k]]
                w[k] = beta * s[k] - readout.gamma * uncertainty[row[k]]
                largest = max(largest, w[k])
        if readout.gate >= 0:
            largest = beta  # B8: exp(beta (s - 1)); a common factor matters only with the gate of B1
        for k in range(len(row)):
            w[k] = math.exp(w[k] - largest) if row[k] >= 0 else 0.0
        answer[y] = _cosine(w, s, gram[y], readout.gate)


@loosely
def _cosine(weights: Any, near: Any, gram: Any, gate: float) -> Any:
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


@tightly
def label(logits: Any, cosine: Any, alpha: float, scale: float) -> Any:
    """Return the class with the largest z + alpha z_mem (eq. 7), the first among equals."""
    best, top = 0, -np.inf
    for y in range(len(cosine)):
        value = logits[y] + (alpha * scale) * cosine[y]
        if value > top:
            best, top = y, value
    return best
