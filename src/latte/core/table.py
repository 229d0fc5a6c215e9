"""The rows of the global memory."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .types import Mask, Reals, Vectors

FEWEST = 8  # rows to begin with


class Table(NamedTuple):
    """What is stored, a row per client and room for more.

    ``vectors`` (C, M, D): the prototypes of one class lie side by side, because a pull compares them with each other.
    ``entropy`` and ``seen`` (M, C). ``order`` (M,) decides ties: the lower number comes first. ``digests`` (M, C) are
    :func:`digests_of` the vectors: they follow from them, and are not stored.
    """

    vectors: Vectors
    entropy: Reals
    seen: Mask
    order: NDArray[np.uint64]
    digests: NDArray[np.uint64]

    @classmethod
    def empty(cls, rows: int, classes: int, dim: int) -> Table:
        """Return a table with nothing in it."""
        vectors = np.zeros((classes, rows, dim), np.float32)
        seen, order = np.zeros((rows, classes), np.bool_), np.zeros(rows, np.uint64)
        return cls(vectors, np.ones((rows, classes)), seen, order, np.zeros((rows, classes), np.uint64))

    def resized(self, rows: int) -> Table:
        """Return a copy with more or fewer rows."""
        classes, n, dim = self.vectors.shape
        copy, n = Table.empty(rows, classes, dim), min(rows, n)
        copy.vectors[:, :n], copy.entropy[:n] = self.vectors[:, :n], self.entropy[:n]
        copy.seen[:n], copy.order[:n], copy.digests[:n] = self.seen[:n], self.order[:n], self.digests[:n]
        return copy

    def put(self, row: int, vectors: Vectors, entropy: Reals, seen: Mask) -> None:
        """Store the ``vectors`` (C, D) of a client and what belongs to them."""
        fresh = (self.vectors[:, row] != vectors).any(axis=1)
        self.digests[row, fresh] = digests_of(vectors[fresh])
        self.vectors[:, row], self.entropy[row], self.seen[row] = vectors, entropy, seen

    def remove(self, row: int, last: int) -> None:
        """Remove ``row``: the ``last`` row takes its place and is then emptied."""
        self.vectors[:, row], self.entropy[row] = self.vectors[:, last], self.entropy[last]
        self.seen[row], self.order[row], self.digests[row] = self.seen[last], self.order[last], self.digests[last]
        self.vectors[:, last], self.entropy[last], self.seen[last], self.order[last] = 0, 1, False, 0
        self.digests[last] = 0

    def by_client(self) -> dict[str, NDArray[Any]]:
        """Return the arrays with a row per client first, as they are stored: ``vectors`` (M, C, D)."""
        vectors = np.ascontiguousarray(self.vectors.transpose(1, 0, 2))
        return {"vectors": vectors, "entropy": self.entropy, "seen": self.seen, "order": self.order}


def digests_of(vectors: Vectors) -> NDArray[np.uint64]:
    """Return 64 bits for each of ``vectors`` (n, D), which are the same for equal ones (0.0 equals -0.0); 0 for zeros.

    They tell which donors are tied without a look at the numbers. Two sums of the bits, each with weights that this
    process has drawn: who does not know them cannot make two vectors whose digests agree, and by chance they hardly do.
    """
    plain = np.ascontiguousarray(vectors, np.float32) + np.float32(0)  # -0.0 becomes 0.0
    bits, weights = plain.view(np.uint32).astype(np.uint64), _weights(plain.shape[1])
    first, second = (np.einsum("nd,d->n", bits, row) for row in weights)  # modulo 2^64; twice as fast as one product
    # what differs in high bits only changes high bits of a sum only: those of the second become its low ones
    digests: NDArray[np.uint64] = first ^ (second << np.uint64(32) | second >> np.uint64(32))
    return digests


@lru_cache
def _weights(dim: int) -> NDArray[np.uint64]:
    return np.frombuffer(os.urandom(16 * dim), np.uint64).reshape(2, dim)
