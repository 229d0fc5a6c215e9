"""The memory that is read, and how: merge local and external (eq. 3), weigh (eq. 4), read (eq. 5 and 6).

The norm of a weighted sum of memory vectors needs no second pass over them: with the Gram matrix G of a class,
``|Σ w m|² = wᵀ G w``, and the sum's product with f is ``Σ w (f·m)``. G changes only when the class does.
"""

from __future__ import annotations

import numpy as np

from .types import External, Integers, Mask, Reals, Vectors

GATE = 1e-3  # B1: the released code silences a class whose weighted sum is not longer than this


class MergedMemory:
    """What a client reads from: ``vectors`` (C, K, D), ``entropy`` and ``valid`` (C, K), ``gram`` (C, K, K)."""

    def __init__(self, classes: int, slots: int, dim: int) -> None:
        self.vectors: Vectors = np.zeros((classes, slots, dim), np.float32)
        self.entropy: Reals = np.ones((classes, slots))
        self.valid: Mask = np.zeros((classes, slots), np.bool_)
        self.gram: Reals = np.zeros((classes, slots, slots))
        self._flat = self.vectors.reshape(-1, dim)

    def replace_class(self, label: int, vectors: Vectors, entropy: Reals, valid: Mask) -> None:
        """Replace what is stored for one class: (K, D), (K,), (K,)."""
        self.vectors[label] = vectors
        self.entropy[label] = entropy
        self.valid[label] = valid
        wide = vectors.astype(np.float64)
        np.matmul(wide, wide.T, out=self.gram[label])

    def replace_all(self, vectors: Vectors, entropy: Reals, valid: Mask) -> None:
        """Replace everything: (C, K, D), (C, K), (C, K)."""
        self.vectors[...] = vectors
        self.entropy[...] = entropy
        self.valid[...] = valid
        for label, rows in enumerate(vectors):  # one class at a time keeps the float64 copy small
            wide = rows.astype(np.float64)
            np.matmul(wide, wide.T, out=self.gram[label])

    def cosines(self, vector: Vectors, beta: float, gamma: float, gate: float | None = None) -> Reals:
        """Return f · c_y per class (C,), eq. 4 to 6 without the scale; 0 for a class with nothing to read."""
        similarity = (self._flat @ vector).reshape(self.valid.shape).astype(np.float64)
        return read_out(similarity, self, beta, gamma, gate)


def read_out(similarity: Reals, memory: MergedMemory, beta: float, gamma: float, gate: float | None = None) -> Reals:
    """Return f · normalise(Σ w m) per class (C,), from the similarities f · m (C, K)."""
    weights = _weights(similarity, memory, beta, gamma, gate is None)
    dots = (weights * similarity).sum(axis=1)
    squares = (weights * (memory.gram @ weights[:, :, None])[:, :, 0]).sum(axis=1)
    # B2: the paper leaves the empty class undefined (a sum over nothing), the released code gives 0; so do we.
    # B1: the paper's formula has no threshold; the released one compares the length of the sum with 1e-3.
    live = squares > (np.finfo(np.float64).tiny if gate is None else gate * gate)
    lengths = np.sqrt(squares, where=live, out=np.ones_like(squares))
    cosines: Reals = np.where(live, dots, 0.0) / lengths
    return cosines


def _weights(similarity: Reals, memory: MergedMemory, beta: float, gamma: float, scale_free: bool) -> Reals:
    """Return w = exp(beta s - gamma h) (C, K), eq. 4, 0 in free slots."""
    exponent = beta * similarity - gamma * memory.entropy
    exponent[~memory.valid] = -np.inf
    if not scale_free:
        exponent -= beta  # B8: exp(beta (s - 1)), which matters only with the gate of B1
        return np.exp(exponent)
    # A common factor cancels (eq. 5): subtracting the largest exponent of a class keeps exp in range.
    largest = exponent.max(axis=1, keepdims=True, initial=np.finfo(np.float64).min)
    weights: Reals = np.exp(exponent - largest)
    return weights


def most_certain(entropy: Reals, valid: Mask, size: int) -> Integers:
    """Return the positions (..., size) of the lowest entropies among the valid, ties to the first (eq. 3)."""
    ranked = np.where(valid, entropy, np.inf)
    order: Integers = np.argsort(ranked, axis=-1, kind="stable")[..., :size]
    return order


def concatenated(local: tuple[Vectors, Reals, Mask], external: External) -> tuple[Vectors, Reals, Mask]:
    """Return local and external candidates side by side: (C, S + E, D), (C, S + E), (C, S + E)."""
    vectors, entropy, valid = local
    return (
        np.concatenate([vectors, external.vectors], axis=1),
        np.concatenate([entropy, external.entropy], axis=1),
        np.concatenate([valid, external.valid], axis=1),
    )
