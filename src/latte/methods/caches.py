"""The memories of TDA and DMN: a :class:`LocalMemory` with other rules on order and on what may be stored."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.local_memory import LocalMemory
from ..core.stored import finite_vectors
from ..core.types import Arrays, Mask, Reals, Vectors
from ..core.validate import NORM_TOLERANCE
from ..errors import refuse


class Cache(LocalMemory):
    """Replaces the first of the highest entropies.

    With ``unit=False`` the vectors are means of unit vectors that were not normalised: of any length up to 1.
    """

    def __init__(self, classes: int, slots: int, dim: int, unit: bool = True, near_copy: float = 0.0) -> None:
        super().__init__(classes, slots, dim, near_copy=near_copy)
        self.unit = unit

    def store(self, label: int, vector: Vectors, entropy: float) -> int:
        """Offer one item; return its slot, -1 if the class is full of entropies that are not higher."""
        valid, stored = self.valid[label], self.entropy[label]
        slot = int(stored.argmax()) if valid[-1] else int(valid.argmin())
        if valid[-1] and entropy >= stored[slot]:
            return -1
        self.vectors[label, slot], stored[slot], valid[slot] = vector, entropy, True
        return slot

    def checked_vectors(self, value: object, valid: Mask) -> Vectors:
        """Return a copy of the vectors, or refuse them."""
        if self.unit:
            return super().checked_vectors(value, valid)
        vectors = finite_vectors("vectors", value, valid, self.vectors.shape[2])
        if (np.square(vectors, dtype=np.float64).sum(axis=-1) > (1 + NORM_TOLERANCE) ** 2).any():
            raise refuse("vectors", "a vector longer than 1", "means of unit vectors")
        return vectors


class SortedCache(Cache):
    """Keeps the items of a class in the order of their entropy, as TDA's lists.

    What leaves a full class is its last item: among equal entropies the latest.

    >>> cache = SortedCache(classes=2, slots=2, dim=2)
    >>> [cache.insert(0, [1.0, 0.0], entropy) for entropy in (0.5, 0.2, 0.4, 0.4)]
    [0, 0, 1, -1]
    >>> cache.entropy[0]
    array([0.2, 0.4])
    """

    def store(self, label: int, vector: Vectors, entropy: float) -> int:
        """Offer one item; return its place, -1 if the class is full of entropies that are not higher."""
        count = int(self.valid[label].sum())
        if count == self.valid.shape[1] and entropy >= self.entropy[label, -1]:
            return -1
        place = int(self.entropy[label, :count].searchsorted(entropy, side="right"))
        push(self.vectors[label], place, vector)
        push(self.entropy[label], place, entropy)
        push(self.valid[label], place, True)
        return place

    def checked(self, arrays: Arrays) -> tuple[Vectors, Reals, Mask]:
        """Return copies of the three arrays, or refuse them."""
        vectors, uncertainty, valid = super().checked(arrays)
        if (valid[:, 1:] & (uncertainty[:, 1:] < uncertainty[:, :-1])).any():
            raise refuse("entropy", "a lower entropy after a higher one", "each class in ascending order")
        return vectors, uncertainty, valid


def push(row: Any, place: int, value: Any) -> None:
    """Put ``value`` at ``place`` of ``row`` (K, ...); the items behind it move up by one, and the last falls out."""
    row[place + 1 :] = row[place:-1].copy()
    row[place] = value
