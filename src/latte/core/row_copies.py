"""The vectors of a table in another form: what a server sends, kept so that it is not made anew for every receiver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from .types import Integers, Mask, Reals, Vectors

RowForm: TypeAlias = Callable[[Vectors], NDArray[Any]]  # (n, D) vectors -> (n, width), row by row


class Picked(NamedTuple):
    """What many clients get, without the vectors: the ``rows`` (m, C, E) of a table, ``valid``, and ``entropy``."""

    rows: Integers
    valid: Mask
    entropy: Reals

    def of(self, places: Any) -> Picked:
        """Return that of some of the clients."""
        return Picked(*(array[places] for array in self))


class RowCopies:
    """The vectors (C, M, D) of a table in a ``form``, each made when it is first asked for after a change."""

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
    """An exchange of prototypes that checks many uploads at once, and says whose many clients get, not only what."""

    def prepare_many(self, uploads: Any, roundings: Reals) -> Sequence[Any]:
        """Return what ``prepare`` returns for each of m uploads whose arrays are stacked; None where one is odd."""

    def pick(self, clients: Sequence[str]) -> Picked:
        """Return whose prototypes each of ``clients`` gets."""

    def picked_vectors(self, picked: Picked, name: str, form: RowForm | None) -> NDArray[Any]:
        """Return these prototypes in a ``form`` with a ``name``: (m, C E, width)."""
