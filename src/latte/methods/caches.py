"""The memories of TDA and DMN: a :class:`LocalMemory` with other rules on order and on loading."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.local_memory import LocalMemory
from ..core.types import Arrays, Mask, Reals, Vectors
from ..core.validate import NORM_TOLERANCE, boolean, entropies, float32, refuse, unit_where

NAMES = ("vectors", "entropy", "valid")


def require(arrays: Arrays, names: Any) -> None:
    """Refuse arrays that lack one of ``names``."""
    missing = sorted(set(names) - set(arrays))
    if missing:
        raise refuse("arrays", f"no {', '.join(missing)}", "what state() returns")


class Cache(LocalMemory):
    """Replaces the first of the highest entropies; restores entropies bit for bit, even just outside [0, 1].

    With ``unit=False`` the vectors are means of unit vectors that were not normalised: of any length up to 1.
    """

    def __init__(self, classes: int, slots: int, dim: int, unit: bool = True) -> None:
        super().__init__(classes, slots, dim)
        self.unit = unit

    def put(self, label: int, vector: Vectors, entropy: float) -> int:
        """Offer one item; return its slot, -1 if the class is full of entropies that are not higher."""
        valid, stored = self.valid[label], self.entropy[label]
        slot = int(stored.argmax()) if valid[-1] else int(valid.argmin())
        if valid[-1] and entropy >= stored[slot]:
            return -1
        self.vectors[label, slot], stored[slot], valid[slot] = vector, entropy, True
        return slot

    def load(self, arrays: Arrays) -> None:
        """Continue from what :meth:`state` returned; nothing changes if it does not fit."""
        self.vectors, self.entropy, self.valid = self.checked(arrays)

    def checked(self, arrays: Arrays) -> tuple[Vectors, Reals, Mask]:
        """Return copies of the three arrays, or refuse them."""
        require(arrays, NAMES)
        valid = boolean("valid", arrays["valid"], self.valid.shape)
        if (valid[:, 1:] > valid[:, :-1]).any():
            raise refuse("valid", "a free slot before a filled one", "slots filled from the first on")
        entropies("entropy", arrays["entropy"], valid)
        uncertainty = np.where(valid, np.asarray(arrays["entropy"], np.float64), 1.0)
        return self._checked_vectors(arrays["vectors"], valid), uncertainty, valid

    def _checked_vectors(self, given: Any, valid: Mask) -> Vectors:
        if self.unit:
            unit_where("vectors", given, valid, self.vectors.shape)
        else:
            _within_unit_ball("vectors", given, valid, self.vectors.shape)
        vectors = np.zeros_like(self.vectors)
        vectors[valid] = np.asarray(given, np.float32)[valid]
        return vectors


class SortedCache(Cache):
    """Keeps the items of a class in the order of their entropy, as TDA's lists.

    What leaves a full class is its last item: among equal entropies the one that came last.

    >>> cache = SortedCache(classes=2, slots=2, dim=2)
    >>> [cache.insert(0, [1.0, 0.0], entropy) for entropy in (0.5, 0.2, 0.4, 0.4)]
    [0, 0, 1, -1]
    >>> cache.entropy[0]
    array([0.2, 0.4])
    """

    def put(self, label: int, vector: Vectors, entropy: float) -> int:
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
    """Put ``value`` at ``place`` of ``row`` (K, ...); those behind move up by one and the last falls out."""
    row[place + 1 :] = row[place:-1].copy()
    row[place] = value


def _within_unit_ball(name: str, value: Any, mask: Mask, shape: tuple[int, ...]) -> None:
    """Refuse vectors that are not finite or longer than 1 where ``mask``."""
    array = float32(name, value, f"shape {shape}")
    if array.shape != shape:
        raise refuse(name, f"shape {array.shape}", f"shape {shape}")
    lengths = np.sqrt(np.square(array[mask], dtype=np.float64).sum(axis=-1))
    if not bool(np.all(lengths <= 1 + NORM_TOLERANCE)):  # NaN fails the comparison
        raise refuse(name, "a vector that is not finite or longer than 1", "means of unit vectors")
