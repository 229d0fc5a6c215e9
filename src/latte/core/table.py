"""The rows of the global memory."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .types import Mask, Reals, Vectors

FEWEST = 8  # rows to begin with


class Table(NamedTuple):
    """What is stored, a row per client and room for more.

    ``vectors`` (C, M, D): the prototypes of one class lie side by side, because a pull compares them with each other.
    ``entropy`` and ``seen`` (M, C). ``order`` (M,) decides ties: the lower number comes first.
    """

    vectors: Vectors
    entropy: Reals
    seen: Mask
    order: NDArray[np.uint64]

    @classmethod
    def empty(cls, rows: int, classes: int, dim: int) -> Table:
        """Return a table with nothing in it."""
        vectors = np.zeros((classes, rows, dim), np.float32)
        return cls(vectors, np.ones((rows, classes)), np.zeros((rows, classes), np.bool_), np.zeros(rows, np.uint64))

    def resized(self, rows: int) -> Table:
        """Return a copy with more or fewer rows."""
        classes, n, dim = self.vectors.shape
        copy, n = Table.empty(rows, classes, dim), min(rows, n)
        copy.vectors[:, :n], copy.entropy[:n] = self.vectors[:, :n], self.entropy[:n]
        copy.seen[:n], copy.order[:n] = self.seen[:n], self.order[:n]
        return copy

    def remove(self, row: int, last: int) -> None:
        """Remove ``row``: the ``last`` row takes its place and is then emptied."""
        self.vectors[:, row], self.entropy[row] = self.vectors[:, last], self.entropy[last]
        self.seen[row], self.order[row] = self.seen[last], self.order[last]
        self.vectors[:, last], self.entropy[last], self.seen[last], self.order[last] = 0, 1, False, 0

    def by_client(self) -> dict[str, NDArray[Any]]:
        """Return the arrays with a row per client first, as they are stored: ``vectors`` (M, C, D)."""
        return {**self._asdict(), "vectors": np.ascontiguousarray(self.vectors.transpose(1, 0, 2))}
