"""The class sums of everyone, a row per client."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .class_sums import ClassSums
from .neighbourhoods import Evidence
from .types import Integers, Reals

FEWEST = 8  # rows to begin with


class Rows(NamedTuple):
    """Room for M clients: ``counts`` (M, C), ``means`` (M, C, D), ``squares`` (M, C)."""

    counts: Reals
    means: NDArray[Any]
    squares: Reals

    @classmethod
    def empty(cls, rows: int, classes: int, dim: int, dtype: DTypeLike) -> Rows:
        """Return room for so many clients."""
        shape = (rows, classes)
        return cls(np.zeros(shape), np.zeros((*shape, dim), dtype), np.zeros(shape))


class SumsTable:
    """The latest upload of every client, in one growing array, in the order of joining.

    Means are stored as float64 or, for very many clients, as float32: half the memory, and half of what a pull reads.
    """

    def __init__(self, classes: int, dim: int, dtype: DTypeLike = np.float64) -> None:
        self._rows = Rows.empty(FEWEST, classes, dim, dtype)
        self.names: list[str] = []
        self._row_of: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.names)

    def __contains__(self, name: object) -> bool:
        return name in self._row_of

    @property
    def dtype(self) -> np.dtype[Any]:
        """That of the means."""
        return self._rows.means.dtype

    def narrowed(self) -> SumsTable:
        """Return the same with means of float32."""
        counts, means, _ = self.evidence
        table = SumsTable(means.shape[1], means.shape[2], np.float32)
        for name, *sums in zip(self.names, counts, means, strict=True):
            table.put(name, ClassSums(*sums))
        return table

    def put(self, name: str, upload: ClassSums) -> None:
        """Store the checked upload of a client; a new one joins."""
        row, rows = self._joined(name), self._rows
        rows.counts[row], rows.means[row] = upload.counts, upload.means
        stored = rows.means[row].astype(np.float64, copy=False)
        rows.squares[row] = np.einsum("cd,cd->c", stored, stored)

    def _joined(self, name: str) -> int:
        if name not in self._row_of:
            if len(self) == len(self._rows.counts):
                self._grow(2 * len(self))
            self._row_of[name] = len(self)
            self.names.append(name)
        return self._row_of[name]

    def _grow(self, size: int) -> None:
        old = self._rows
        _, classes, dim = old.means.shape
        self._rows = Rows.empty(size, classes, dim, old.means.dtype)
        for new, array in zip(self._rows, old, strict=True):
            new[: len(array)] = array

    def remove(self, name: str) -> None:
        """Remove a client: the last row takes its place."""
        row, last = self._row_of.pop(name), len(self) - 1
        for array in self._rows:
            array[row], array[last] = array[last], 0
        self.names[row] = self.names[last]
        del self.names[last]
        if row < last:
            self._row_of[self.names[row]] = row

    def rows_of(self, names: list[str]) -> Integers:
        """Return the rows of clients that are there."""
        return np.array([self._row_of[name] for name in names], np.int64)

    @property
    def evidence(self) -> Evidence:
        """What everyone uploaded, by row."""
        return Evidence(*(array[: len(self)] for array in self._rows))

    @property
    def by_content(self) -> Integers:
        """The rows (n,) in an order that depends on what was uploaded, and neither on names nor on who came first."""
        counts, _, squares = self.evidence
        return np.lexsort(np.concatenate([squares, counts], axis=1).T)
