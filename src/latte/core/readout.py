"""The memory that is read, and how: merge local and external (eq. 3), weigh (eq. 4), read (eq. 5 and 6).

The norm of a weighted sum of memory vectors needs no second pass over them: with the Gram matrix G of a class,
``|Σ w m|² = wᵀ G w``, and the sum's product with f is ``Σ w (f·m)``. G changes only when the class does.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .copying import WholeCopy
from .local_memory import LocalMemory
from .types import External, Integers, Mask, Reals, Vectors

GATE = 1e-3  # B1: the released code silences a class whose weighted sum is not longer than this
# The largest weight of a class is 1: a weighted sum whose squared length is below this is rounding, without direction.
CANCELLED = 1e-12
_LOWEST = np.finfo(np.float64).min
_TOGETHER = 16  # classes whose Gram matrices are computed by one call; each has the bits of one by itself


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

    def replace_class(self, label: int, vectors: Vectors, entropy: Reals, valid: Mask) -> None:
        """Replace what is stored for one class: (K, D), (K,), (K,)."""
        self.vectors[label] = vectors
        self.offset[label] = np.where(valid, -self.gamma * entropy, -np.inf)
        wide = vectors.astype(np.float64)
        np.matmul(wide, wide.T, out=self.gram[label])

    def replace_all(self, vectors: Vectors, entropy: Reals, valid: Mask) -> None:
        """Replace everything: (C, K, D), (C, K), (C, K)."""
        self.vectors[:] = vectors
        self.offset[:] = np.where(valid, -self.gamma * entropy, -np.inf)
        for first in range(0, len(vectors), _TOGETHER):  # a few classes at a time keep the float64 copy small
            wide = vectors[first : first + _TOGETHER].astype(np.float64)
            np.matmul(wide, wide.transpose(0, 2, 1), out=self.gram[first : first + _TOGETHER])

    def cosines(self, vector: Vectors, beta: float, gate: float | None = None) -> Reals:
        """Return f · c_y per class (C,), eq. 4 to 6 without the scale; 0 for a class with nothing to read."""
        # reshaped here: a view that is stored is no view any more in a copy of this object
        similarity = self.vectors.reshape(-1, len(vector)).dot(vector).astype(np.float64).reshape(self.offset.shape)
        weights = self._weights(similarity, beta, scale_free=gate is None)
        dots: Reals = np.einsum("ck,ck->c", weights, similarity)
        squares = np.einsum("ck,ck->c", weights, (self.gram @ weights[:, :, None])[:, :, 0])
        # B2: the paper leaves the empty class undefined (a sum over nothing), the released code gives 0; so do we.
        limit = CANCELLED if gate is None else gate * gate  # B1: the paper's formula has no threshold
        lengths = np.maximum(squares, limit)
        dots /= np.sqrt(lengths, out=lengths)
        dots[squares <= limit] = 0.0
        return dots

    def _weights(self, similarity: Reals, beta: float, scale_free: bool) -> Reals:
        """Return w = exp(beta s - gamma h) (C, K), eq. 4, 0 in free slots."""
        if scale_free:  # a common factor cancels in eq. 5: subtracting the largest exponent keeps exp in range
            exponent = beta * similarity + self.offset
            exponent -= np.maximum.reduce(exponent, axis=1, keepdims=True, initial=_LOWEST)
        else:  # B8: exp(beta (s - 1)), which matters only with the gate of B1; rounding can put a cosine above 1
            exponent = beta * np.minimum(similarity - 1.0, 0.0) + self.offset
        return np.exp(exponent, out=exponent)


class MergedItems(NamedTuple):
    """The S most certain items of every class: (C, S, D), (C, S), (C, S); ``external`` (C, S): from other clients."""

    vectors: Vectors
    entropy: Reals
    valid: Mask
    external: Mask


def merge_class(local: LocalMemory, external: External, label: int) -> tuple[Vectors, Reals, Mask]:
    """Return the S most certain items of one class (eq. 3): (S, D), (S,), (S,).

    The local ones come first, each kind in the order of its slots. So what is read, down to the order in which it is
    summed, follows from what the two memories hold, not from when or how often they were merged.
    """
    vectors, entropy, valid = local.vectors[label], local.entropy[label], local.valid[label]
    if not external.valid[label].any():  # then the positions would be 0 to S - 1
        return vectors, entropy, valid
    vectors = np.concatenate([vectors, external.vectors[label]])
    entropy = np.concatenate([entropy, external.entropy[label]])
    valid = np.concatenate([valid, external.valid[label]])
    positions = most_certain(entropy, valid, local.valid.shape[1])
    return vectors[positions], entropy[positions], valid[positions]


def merge_memories(local: LocalMemory, external: External) -> MergedItems:
    """Return the S most certain items of every class, in the order of :func:`merge_class`."""
    if not external.valid.any():
        nothing = np.zeros_like(local.valid)
        return MergedItems(local.vectors, local.entropy, local.valid, nothing)
    positions = merged_positions(local, external)
    vectors = np.concatenate([local.vectors, external.vectors], axis=1)
    entropy = np.concatenate([local.entropy, external.entropy], axis=1)
    valid = np.concatenate([local.valid, external.valid], axis=1)
    return MergedItems(
        np.take_along_axis(vectors, positions[:, :, None], axis=1),
        np.take_along_axis(entropy, positions, axis=1),
        np.take_along_axis(valid, positions, axis=1),
        positions >= local.valid.shape[1],
    )


def merged_positions(local: LocalMemory, external: External) -> Integers:
    """Return where the S most certain items of every class are (C, S): 0 to S - 1 local, from S on external."""
    entropy = np.concatenate([local.entropy, external.entropy], axis=1)
    valid = np.concatenate([local.valid, external.valid], axis=1)
    return most_certain(entropy, valid, local.valid.shape[1])


def most_certain(entropy: Reals, valid: Mask, size: int) -> Integers:
    """Return the positions (..., size), ascending, of the lowest entropies among the valid, ties to the first."""
    ranked = np.where(valid, entropy, np.inf)
    positions: Integers = np.argsort(ranked, axis=-1, kind="stable")[..., :size]
    positions.sort(axis=-1)
    return positions
