"""Readout of Latte: merge local and external memory (eq. 3), weigh what is left (eq. 4), read it (eq. 5 and 6).

The norm of a weighted sum of memory vectors needs no second pass over them: with the Gram matrix G of a class,
``|Σ w m|² = wᵀ G w``, and the sum's product with f is ``Σ w (f·m)``. G changes only when the class does.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...core.exchange import WholeCopy
from ...core.memory import LocalMemory
from ...core.types import External, Integers, Mask, Reals, Vectors

GATE = 1e-3  # B1: the released code silences a class whose weighted sum is not longer than this
# The largest weight of a class is 1: a weighted sum whose squared length is below this is rounding, without direction.
CANCELLED = 1e-12
EVERY = slice(None)
_LOWEST = np.finfo(np.float64).min


class MergedItems(NamedTuple):
    """The S most certain items of each class: (C, S, D), (C, S), (C, S); ``external`` (C, S): from other clients."""

    vectors: Vectors
    entropy: Reals
    valid: Mask
    external: Mask


def items_of(memory: LocalMemory | External | MergedItems, classes: slice = EVERY) -> MergedItems:
    """Return what a memory holds of some classes."""
    valid = memory.valid[classes]
    return MergedItems(memory.vectors[classes], memory.entropy[classes], valid, np.zeros_like(valid))


def merge_memories(
    local: LocalMemory | MergedItems, external: External | MergedItems, classes: slice = EVERY
) -> MergedItems:
    """Return the most certain items of each of ``classes`` (eq. 3), as many as ``local`` has slots.

    The local ones come first, each kind in the order of its slots. So what is read, down to the order in which it is
    summed, follows from what the two memories hold, not from when or how often they were merged.
    """
    if not external.valid[classes].any():  # a client on its own: nothing to choose from
        return items_of(local, classes)
    vectors = np.concatenate([local.vectors[classes], external.vectors[classes]], axis=1)
    entropy = np.concatenate([local.entropy[classes], external.entropy[classes]], axis=1)
    valid = np.concatenate([local.valid[classes], external.valid[classes]], axis=1)
    slots = local.valid.shape[1]
    positions = most_certain(entropy, valid, slots)
    at = np.arange(len(positions))[:, None], positions
    return MergedItems(vectors[at], entropy[at], valid[at], positions >= slots)


def most_certain(entropy: Reals, valid: Mask, size: int) -> Integers:
    """Return the positions (..., size), ascending, of the lowest entropies among the valid, ties to the first."""
    ranked = np.where(valid, entropy, np.inf)
    positions: Integers = np.argsort(ranked, axis=-1, kind="stable")[..., :size]
    positions.sort(axis=-1)
    return positions


class MergedMemory(WholeCopy):
    """What a client reads from.

    ``vectors`` (C, K, D); ``offset`` (C, K) is -gamma h, the certainty's part of the exponent of eq. 4, and -inf in a
    free slot; ``gram`` (C, K, K).
    """

    def __init__(self, classes: int, slots: int, dim: int, gamma: float) -> None:
        self.gamma = gamma
        self.vectors: Vectors = np.zeros((classes, slots, dim), np.float32)
        self.offset: Reals = np.full((classes, slots), -np.inf)
        self.gram: Reals = np.zeros((classes, slots, slots))

    def replace(self, vectors: Vectors, entropy: Reals, valid: Mask, classes: slice = EVERY) -> None:
        """Replace what is stored for some ``classes``: (c, K, D), (c, K), (c, K)."""
        self.vectors[classes] = vectors
        self.offset[classes] = np.where(valid, -self.gamma * entropy, -np.inf)
        for label in range(len(self.gram))[classes]:  # one at a time: the float64 copy stays small
            wide = self.vectors[label].astype(np.float64)
            np.matmul(wide, wide.T, out=self.gram[label])

    def cosines(self, vector: Vectors, beta: float, gate: float | None = None) -> Reals:
        """Return f · c_y per class (C,), eq. 4 to 6 without the scale; 0 for a class with nothing to read."""
        # reshaped here: a view that is stored is no view any more in a copy of this object
        similarity = self.vectors.reshape(-1, len(vector)).dot(vector).astype(np.float64).reshape(self.offset.shape)
        if gate is None:  # a common factor cancels in eq. 5: subtracting the largest exponent keeps exp in range
            exponent = beta * similarity + self.offset
            exponent -= np.maximum.reduce(exponent, axis=1, keepdims=True, initial=_LOWEST)
            limit = CANCELLED  # B1: the paper's formula has no threshold
        else:  # B8: exp(beta (s - 1)), which matters only with the gate of B1; rounding can put a cosine above 1
            exponent = beta * np.minimum(similarity - 1.0, 0.0) + self.offset
            limit = gate * gate
        weights = np.exp(exponent, out=exponent)  # eq. 4, 0 in free slots
        dots: Reals = np.einsum("ck,ck->c", weights, similarity)
        squares = np.einsum("ck,ck->c", weights, (self.gram @ weights[:, :, None])[:, :, 0])
        lengths = np.maximum(squares, limit)
        dots /= np.sqrt(lengths, out=lengths)
        # B2: the paper leaves the empty class undefined (a sum over nothing), the released code gives 0; so do we
        dots[squares <= limit] = 0.0
        return dots
