"""The class sums of everyone, a row per client."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .class_sums import ClassSums
from .neighbourhoods import Evidence
from .table import FEWEST
from .types import Integers


class NamedRows:
    """Arrays with a row per client, which grow as clients join."""

    def __init__(self, *arrays: NDArray[Any]) -> None:
        self._room = arrays  # with rows for more clients than there are
        self.names: list[str] = []
        self._row_of: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.names)

    def __contains__(self, name: object) -> bool:
        return name in self._row_of

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        """The rows that are in use."""
        return tuple(array[: len(self)] for array in self._room)

    def set(self, name: str, *values: Any) -> None:
        """Replace the row of a client, one value per array; a new client joins."""
        row = self._ensure_row(name)
        for array, value in zip(self._room, values, strict=True):
            array[row] = value

    def _ensure_row(self, name: str) -> int:
        if name not in self._row_of:
            if len(self) == len(self._room[0]):
                self._grow(2 * len(self))
            self._row_of[name] = len(self)
            self.names.append(name)
        return self._row_of[name]

    def _grow(self, size: int) -> None:
        old = self._room
        self._room = tuple(np.zeros_like(array, shape=(size, *array.shape[1:])) for array in old)  # in the same layout
        for new, array in zip(self._room, old, strict=True):
            new[: len(array)] = array

    def remove(self, name: str) -> None:
        """Remove a client: the last row takes its place."""
        row, last = self._row_of.pop(name), len(self) - 1
        for array in self._room:
            array[row], array[last] = array[last], 0
        self.names[row] = self.names[last]
        del self.names[last]
        if row < last:
            self._row_of[self.names[row]] = row

    def rows_of(self, names: list[str]) -> Integers:
        """Return the rows of clients that are there."""
        return np.array([self._row_of[name] for name in names], np.int64)


class SumsTable(NamedRows):
    """What everyone uploaded, in float64."""

    def __init__(self, classes: int, dim: int) -> None:
        shape = (FEWEST, classes)
        super().__init__(np.zeros(shape), np.zeros((*shape, dim)), np.zeros(shape))

    def put(self, name: str, upload: ClassSums) -> None:
        """Store the checked upload of a client; a new one joins."""
        self.set(name, upload.counts, upload.means, np.einsum("cd,cd->c", upload.means, upload.means))

    @property
    def evidence(self) -> Evidence:
        """What everyone uploaded, by row."""
        return Evidence(*self.arrays)

    @property
    def by_content(self) -> Integers:
        """The rows (n,) in an order that depends on the uploads only, neither on names nor on the order of joining."""
        counts, _, squares = self.arrays
        return np.lexsort(np.concatenate([squares, counts], axis=1).T)
