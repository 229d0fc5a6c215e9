"""Local memory: per class, the S most certain embeddings a client has seen, with near copies left out."""

from __future__ import annotations

from dataclasses import field
from typing import Any

import numpy as np

from ..errors import refuse
from .exchange import WholeCopy
from .maths import normalised, weighted_sums
from .types import Arrays, Mask, MemoryFill, Reals, State, Vectors
from .validate import at_least, choice, exactly, real, require, stored_entropies, stored_mask, stored_vectors, unit_rows

PROTOTYPE_KINDS = ("exp_weighted", "mean", "min_entropy")
REPLACEMENTS = ("lower", "always")
NAMES = ("vectors", "entropy", "valid")
NEAR_COPY = 0.99  # cosine of embeddings of the same picture or scene, for devices
MOST_NEAR_COPY = 0.9999  # a cosine of float32 vectors is exact to about 1e-7: a copy must not miss its threshold
RECENT_IMAGES = 1024  # different images that RecentImages compares with: 2 MB at 512 dimensions, 0.1 ms
NEUTRAL = "neutral"  # in the metadata of a field: at its default it changes nothing, and records leave it out


def near_copy_field() -> float:
    """Return the field of a parameter ``near_copy``: 0 by default, which looks for no copies."""
    return field(default=0.0, metadata={NEUTRAL: True})


def check_near_copy(value: object) -> float:
    """Return a cosine from which two embeddings count as copies; 0 for none."""
    return real("near_copy", value, 0.0, MOST_NEAR_COPY)


def near_copies(stored: Vectors, vector: Vectors, cosine: float) -> Mask:
    """Return which of ``stored`` (n, D) have at least this ``cosine`` with ``vector`` (D,); they need not be unit rows.

    >>> near_copies(np.eye(2, dtype=np.float32), np.array([0.1, 0.99], np.float32), 0.98)
    array([False,  True])
    """
    lengths = np.sqrt(np.einsum("nd,nd->n", stored, stored) * np.dot(vector, vector))
    copies: Mask = (stored @ vector >= np.float32(cosine) * lengths) & (lengths > 0)
    return copies


class RecentImages(WholeCopy):
    """The last :data:`RECENT_IMAGES` different images, for a method that stores no images but must not count one twice.

    >>> recent = RecentImages(dim=2, cosine=0.98)
    >>> [recent.is_new(np.array(image, np.float32)) for image in ([1, 0], [0, 1], [1, 0])]
    [True, True, False]
    """

    def __init__(self, dim: int, cosine: float) -> None:
        self.cosine = cosine
        self._vectors: Vectors = np.zeros((RECENT_IMAGES if cosine else 0, dim), np.float32)
        self._count = 0  # of all that were new: they go round

    def is_new(self, vector: Any) -> bool:
        """Return whether an image is no near copy of a recent image; if it is new, remember it."""
        if not self.cosine:
            return True
        row = np.asarray(vector, np.float32)
        if (self._vectors[: self._count] @ row >= self.cosine).any():  # unit rows: their products are cosines
            return False
        self._vectors[self._count % RECENT_IMAGES] = row
        self._count += 1
        return True

    def vectors(self) -> Vectors:
        """Return the images (k, D), the oldest first."""
        start = self._count % RECENT_IMAGES if self._count > RECENT_IMAGES else 0
        return np.roll(self._vectors[: self._count], -start, axis=0)

    def load(self, vectors: Vectors) -> None:
        """Continue with these ``vectors``; without a cosine to compare with, they are left out."""
        if self.cosine:
            self._vectors[: len(vectors)], self._count = vectors, len(vectors)

    @staticmethod
    def checked(value: Any, dim: int) -> Vectors:
        """Return what :meth:`vectors` returned, or refuse it."""
        count = len(value) if np.ndim(value) else 0
        vectors = exactly("recent", value, np.float32, (count, dim))
        if count > RECENT_IMAGES:
            raise refuse("recent", f"{count} images", f"at most {RECENT_IMAGES}")
        return unit_rows("recent", vectors, dim) if count else vectors


class LocalMemory(WholeCopy):
    """C independent queues of S slots.

    ``vectors`` (C, S, D), ``entropy`` (C, S), ``valid`` (C, S). Slots of a class fill in order. A new embedding then
    replaces the one with the highest entropy: only if its own is ``lower``, as the paper's Lemma and the released code
    have it, or ``always``, as the paper's text has it (B7). With a ``near_copy`` above 0, an embedding is left out if
    its cosine with a stored one of its class is at least that.

    >>> memory = LocalMemory(classes=2, slots=1, dim=2)
    >>> memory.insert(0, [1.0, 0.0], entropy=0.5)
    0
    >>> memory.insert(0, [0.0, 1.0], entropy=0.9)    # full, and less certain than what is there
    -1
    """

    def __init__(self, classes: int, slots: int, dim: int, replace: str = "lower", near_copy: float = 0.0) -> None:
        choice("replace", replace, REPLACEMENTS)
        self.always = replace == "always"
        self.near_copy = check_near_copy(near_copy)
        shape = (at_least("classes", classes, 2), at_least("slots", slots, 1), at_least("dim", dim, 1))
        self.vectors: Vectors = np.zeros(shape, np.float32)
        self.entropy: Reals = np.ones(shape[:2])
        self.valid: Mask = np.zeros(shape[:2], np.bool_)

    def __repr__(self) -> str:
        (classes, slots, dim), items = self.vectors.shape, int(self.valid.sum())
        return f"{type(self).__name__}({items} items, C={classes}, S={slots}, D={dim})"

    def insert(self, label: int, vector: Any, entropy: float) -> int:
        """Offer one embedding; return the slot it went into, -1 if it was not certain enough or is there already."""
        at_least("label", label, 0, len(self.valid) - 1)
        vector = unit_rows("vector", np.asarray(vector)[None], self.vectors.shape[2])[0]
        real("entropy", entropy, most=1.0)  # divided by ln C
        return self.put(label, vector, entropy)

    def put(self, label: int, vector: Vectors, entropy: float) -> int:
        """Do what :meth:`insert` does, for arguments that were checked already."""
        return -1 if self.has_copy(label, vector) else self.store(label, vector, entropy)

    def has_copy(self, label: int, vector: Vectors) -> bool:
        """Return whether a class has a near copy of ``vector`` (D,); always False if ``near_copy`` is 0."""
        if not self.near_copy:
            return False
        return bool(near_copies(self.vectors[label][self.valid[label]], vector, self.near_copy).any())

    def store(self, label: int, vector: Vectors, entropy: float) -> int:
        """Offer one embedding that is no copy; return its slot, -1 if it was not certain enough."""
        valid = self.valid[label]
        if valid[-1]:  # full: slots fill in order
            slot = len(valid) - 1 - int(self.entropy[label][::-1].argmax())  # among equals the last
            if entropy >= self.entropy[label, slot] and not self.always:  # B7
                return -1
        else:
            slot = int(valid.argmin())
        self.vectors[label, slot] = vector
        self.entropy[label, slot] = entropy
        valid[slot] = True
        return slot

    def prototypes(self, kind: str = "exp_weighted", gamma: float = 0.0) -> tuple[Vectors, Mask]:
        """Return one unit vector per class (C, D), eq. 1, and which classes have one (C,)."""
        choice("prototype", kind, PROTOTYPE_KINDS)
        weights = self._prototype_weights(kind, gamma)
        sums = weighted_sums(weights, self.vectors)
        return normalised(sums), np.logical_and(self.valid.any(axis=1), sums.any(axis=1))

    def means(self, kind: str = "exp_weighted", gamma: float = 0.0) -> Reals:
        """Return the weighted mean of each class (C, D), which is not normalised; zero where nothing is stored."""
        weights = self._prototype_weights(kind, gamma)
        total: Reals = np.where(self.valid, weights, 0.0).sum(axis=1)
        return weighted_sums(weights, self.vectors) / np.maximum(total, 1.0)[:, None]  # the largest weight is 1

    def _prototype_weights(self, kind: str, gamma: float) -> Reals:
        """Return the weight of each slot (C, S), largest 1 in a class that has any."""
        certain = np.where(self.valid, self.entropy, np.inf)
        lowest = certain.min(axis=1, keepdims=True, initial=2.0)
        if kind == "min_entropy":
            return np.where(np.arange(certain.shape[1]) == certain.argmin(axis=1)[:, None], self.valid, 0.0)
        rate = 0.0 if kind == "mean" else gamma
        # A common factor cancels in the normalisation, so the smallest entropy may be subtracted first.
        exponent = np.where(self.valid, rate * (lowest - self.entropy), -np.inf)
        return np.exp(exponent, out=exponent)

    def fill(self) -> MemoryFill:
        """Return how full the memory is."""
        return MemoryFill(int(self.valid.sum()), self.valid.size, int(self.valid.any(axis=1).sum()))

    def state(self) -> State:
        """Return a copy of the three arrays."""
        return {name: getattr(self, name).copy() for name in NAMES}

    def load(self, arrays: Arrays) -> None:
        """Continue from what :meth:`state` returned; nothing changes if it does not fit."""
        self.vectors, self.entropy, self.valid = self.checked(arrays)

    def checked(self, arrays: Arrays) -> tuple[Vectors, Reals, Mask]:
        """Return copies of the three arrays with nothing in the free slots, or refuse them."""
        require(arrays, NAMES)
        valid = stored_mask("valid", arrays["valid"], self.valid.shape)
        if (valid[:, 1:] > valid[:, :-1]).any():
            raise refuse("valid", "a free slot before a filled one", "slots filled from the first on")
        entropy = stored_entropies("entropy", arrays["entropy"], valid)
        return self.checked_vectors(arrays["vectors"], valid), entropy, valid

    def checked_vectors(self, value: object, valid: Mask) -> Vectors:
        """Return a copy of the vectors, or refuse them."""
        return stored_vectors("vectors", value, valid, self.vectors.shape[2])
