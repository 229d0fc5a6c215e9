"""The vectors of a table in the form in which a server sends them, stored so that each is encoded only once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from .types import Integers, Mask, Reals, Vectors

RowForm: TypeAlias = Callable[[Vectors], NDArray[Any]]  # (n, D) vectors -> (n, width), row by row


class Picked(NamedTuple):
    """What m clients get, without the vectors: the ``rows`` (m, C, E) of a table, ``valid``, and ``entropy``."""

    rows: Integers
    valid: Mask
    entropy: Reals

    def of(self, places: Any) -> Picked:
        """Return the arrays of some of the clients."""
        return Picked(*(array[places] for array in self))


class RowCopies:
    """The vectors (C, M, D) of a table in a ``form``; a vector is encoded when it is first taken after a change."""

    def __init__(self, form: RowForm, vectors: Vectors) -> None:
        example = form(np.zeros((1, vectors.shape[2]), np.float32))
        self._form = form
        self._copies = np.empty((vectors.shape[0] * vectors.shape[1], example.shape[1]), example.dtype)
        self._fresh = np.zeros(vectors.shape[:2], np.bool_)

    def change(self, row: int) -> None:
        """Note that the vectors of a row have changed."""
        self._fresh[:, row] = False

    def take(self, vectors: Vectors, places: Integers) -> NDArray[Any]:
        """Return the copies (p, width) of vectors at ``places`` (p,), which count the rows of all classes."""
        fresh = self._fresh.reshape(-1)
        stale = np.unique(places[~fresh[places]])
        if len(stale):
            self._copies[stale] = self._form(vectors.reshape(-1, vectors.shape[2])[stale])
            fresh[stale] = True
        return self._copies.take(places, axis=0)


@runtime_checkable
class ManyAtOnce(Protocol):
    """An exchange of prototypes that checks many uploads at once, and tells which rows many clients get."""

    def prepare_many(self, uploads: Any, roundings: Reals) -> Sequence[Any]:
        """Return what ``prepare`` returns for each of m stacked uploads; None if it has to check one alone."""

    def pick(self, clients: Sequence[str]) -> Picked:
        """Return the rows of the prototypes that each of ``clients`` gets."""

    def picked_vectors(self, picked: Picked, name: str, form: RowForm | None) -> NDArray[Any]:
        """Return these prototypes in a ``form`` with a ``name``: (m, C E, width)."""
