"""Lengths, logits and entropies of many rows in numpy, for the methods that need no compiled loops."""

from __future__ import annotations

import numpy as np

from ...core.maths import entropy
from ...core.types import Integers, Mask, Reals, Vectors


def squares(rows: Vectors, index: Integers, out: Vectors) -> None:
    """Write the squared lengths (n,) of the rows ``index``."""
    chosen = rows[index]
    out[:] = np.einsum("nd,nd->n", chosen, chosen)


def classify(rows: Vectors, index: Integers, norms: Vectors, text: Reals, room: Reals, logits: Reals) -> None:
    """Write the products (n, C) of the rows ``index``, divided by ``norms``, with ``text``, summed in float64."""
    del room  # numpy allocates what it needs
    np.matmul((rows[index] / norms[:, None]).astype(np.float64), text.T, out=logits)


def judge(logits: Reals, near: float, pseudo: Integers, uncertainty: Reals, close: Mask) -> None:
    """Write the argmax and the entropy of logits (n, C), and whether the two best logits are closer than ``near``."""
    pseudo[:], uncertainty[:] = logits.argmax(axis=1), entropy(logits)
    two = np.partition(logits, logits.shape[1] - 2, axis=1)[:, -2:]
    close[:] = two[:, 1] - two[:, 0] < near
