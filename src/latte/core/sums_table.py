"""The class sums of everyone, a row per client."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .class_sums import ClassSums
from .neighbourhoods import Evidence
from .types import Integers, Reals

FEWEST = 8  # rows to begin with


class Rows(NamedTuple):
    """Room for M clients: ``counts`` (M, C), ``means`` (M, C, D), ``squares`` (M, C), ``digest`` (M,)."""

    counts: Reals
    means: Reals
    squares: Reals
    digest: NDArray[np.uint64]

    @classmethod
    def empty(cls, rows: int, classes: int, dim: int) -> Rows:
        """Return room for so many clients."""
        shape = (rows, classes)
        return cls(np.zeros(shape), np.zeros((*shape, dim)), np.zeros(shape), np.zeros(rows, np.uint64))

    def resized(self, rows: int) -> Rows:
        """Return a copy with more or fewer rows."""
        copy, n = Rows.empty(rows, *self.means.shape[1:]), min(rows, len(self.counts))
        for new, old in zip(copy, self, strict=True):
            new[:n] = old[:n]
        return copy


class SumsTable:
    """The latest upload of every client, in one growing array, in the order of joining."""

    def __init__(self, classes: int, dim: int) -> None:
        self._rows = Rows.empty(FEWEST, classes, dim)
        self.names: list[str] = []
        self._row_of: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.names)

    def __contains__(self, name: object) -> bool:
        return name in self._row_of

    def put(self, name: str, upload: ClassSums) -> None:
        """Store the checked upload of a client; a new one joins."""
        row, rows = self._joined(name), self._rows
        rows.counts[row], rows.means[row] = upload.counts, upload.means
        rows.squares[row] = np.einsum("cd,cd->c", upload.means, upload.means)
        content = hashlib.blake2b(upload.counts.tobytes(), digest_size=8)
        content.update(np.ascontiguousarray(upload.means))
        rows.digest[row] = int.from_bytes(content.digest(), "little")

    def _joined(self, name: str) -> int:
        if name not in self._row_of:
            if len(self) == len(self._rows.counts):
                self._rows = self._rows.resized(2 * len(self))
            self._row_of[name] = len(self)
            self.names.append(name)
        return self._row_of[name]

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
        return Evidence(*(array[: len(self)] for array in self._rows[:3]))

    @property
    def by_content(self) -> Integers:
        """The rows (n,) in an order that depends on what was uploaded, and neither on names nor on who came first."""
        return np.argsort(self._rows.digest[: len(self)], kind="stable")
