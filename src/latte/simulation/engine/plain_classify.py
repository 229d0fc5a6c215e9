"""Lengths, logits and entropies of many rows in numpy, for the methods that need no compiled loops."""

from __future__ import annotations

import numpy as np

from ...core.maths import entropy
from ...core.types import Integers, Reals, Vectors
from .loop_arrays import ZeroShotResults


def squares(rows: Vectors, index: Integers, out: Vectors) -> None:
    """Write the squared lengths (n,) of the rows ``index``."""
    chosen = rows[index]
    out[:] = np.einsum("nd,nd->n", chosen, chosen)


def classify(
    rows: Vectors, index: Integers, norms: Vectors, text: Reals, near: float, room: Reals, out: ZeroShotResults
) -> None:
    """Classify the rows ``index``, divided by ``norms``, with ``text``; products are summed in float64."""
    del room  # numpy allocates what it needs
    np.matmul((rows[index] / norms[:, None]).astype(np.float64), text.T, out=out.logits)
    out.pseudo[:], out.entropy[:] = out.logits.argmax(axis=1), entropy(out.logits)
    two = np.partition(out.logits, out.logits.shape[1] - 2, axis=1)[:, -2:]
    out.close[:] = two[:, 1] - two[:, 0] < near
