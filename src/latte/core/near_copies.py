"""Near copies: embeddings of the same picture or scene, of which a memory should store only one.

Otherwise a memory that sees the same pictures again fills its slots with copies of one vector, and a sum counts them as
further evidence. docs/near-copies.md has the measurements behind :data:`NEAR_COPY`.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

import numpy as np

from ..errors import refuse
from .copying import WholeCopy
from .stored import exactly
from .types import Mask, Vectors
from .validate import real, unit_rows

NEAR_COPY = 0.99  # cosine, for devices
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
