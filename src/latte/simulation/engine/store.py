"""The prototypes of all clients: each version that a client may still read is stored once."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ...core.maths import entropy
from ...core.types import Integers, Mask, Reals, Vectors
from ...core.zero_shot import ZeroShot
from ...methods.latte import LatteParams
from .crew import Crew
from .loop_arrays import ItemTable, ItemVectors, PrototypeProducts, ZeroShotResults
from .loops_classify import classify
from .loops_upload import PrototypeRows, blend
from .streams import Streams, read_only

AT_ONCE = 256  # prototypes that are computed together: they stay in a processor's nearest large cache
Element = TypeVar("Element", bound=np.generic)


class PrototypeStore:
    """``vectors`` (P, D), ``entropy`` and ``exact`` (P,): places are used again once no client refers to them.

    The server may note in ``beside`` (P, N) and ``origin`` (P, 2) what it knows of a prototype.
    """

    def __init__(self, streams: Streams, params: LatteParams, crew: Crew) -> None:
        self.streams, self.params, self.crew = streams, params, crew
        self.vectors: Vectors = np.zeros((0, streams.zero_shot.dim), np.float32)
        self.entropy: Reals = np.ones(0)
        self.exact: Mask = np.zeros(0, np.bool_)
        self.beside: Vectors = np.zeros((0, 0), np.float32)
        self.origin: Integers = np.zeros((0, 2), np.int64)
        self._free: Integers = np.zeros(0, np.int64)
        self._soon: Integers = np.zeros(0, np.int64)

    @property
    def products(self) -> PrototypeProducts:
        """What the server notes of the prototypes."""
        return PrototypeProducts(self.beside, self.origin)

    def add(self, contents: Integers, items: ItemVectors) -> tuple[Integers, Mask]:
        """Store the prototypes of queues (n, S) of samples; return their places (n,) and which of them there are."""
        places, seen = self._take(len(contents)), np.zeros(len(contents), np.bool_)

        def store(part: slice) -> None:
            self._store(contents[part], items, places[part], seen[part])

        self.crew.share(store, (slice(start, start + AT_ONCE) for start in range(0, len(contents), AT_ONCE)))
        self.exact[places] = ~seen
        return places, seen

    def _store(self, contents: Integers, items: ItemVectors, places: Integers, seen: Mask) -> None:
        """Write some prototypes and their entropies."""
        zero_shot, valid, n = self.streams.zero_shot, contents >= 0, len(places)
        weights = self._weights(np.where(valid, self.streams.entropy[contents], np.inf), valid)
        room, results = np.empty((2, zero_shot.dim)), ZeroShotResults.empty(n, zero_shot.classes)
        blend(items, contents, weights, room[0], PrototypeRows(places, self.vectors, seen))
        # One row's entropy from a product of another shape may differ in the last bits: see make_exact.
        text = read_only(zero_shot.scaled)
        classify(read_only(self.vectors), places, np.ones(n, np.float32), text, 0.0, room, results)
        self.entropy[places] = np.where(seen, results.entropy, 1.0)

    def _weights(self, certain: Reals, valid: Mask) -> Reals:
        if self.params.prototype == "min_entropy":
            return np.where(np.arange(certain.shape[1]) == certain.argmin(axis=1)[:, None], valid, 0.0)
        rate = 0.0 if self.params.prototype == "mean" else self.params.prototype_rate(self.streams.zero_shot.classes)
        lowest = certain.min(axis=1, keepdims=True, initial=2.0)
        exponent = np.where(valid, rate * (lowest - np.where(valid, certain, 1.0)), -np.inf)
        return np.exp(exponent, out=exponent)

    def retain(self, places: Integers) -> None:
        """Free all places but these, though not before the next call: a window that is being read may need them."""
        free = np.ones(len(self.vectors), np.bool_)
        free[places] = False
        free[self._free] = False
        free[self._soon] = False
        self._free = np.concatenate([self._soon, self._free])  # places that were used before come first
        self._soon = np.flatnonzero(free)

    def _take(self, count: int) -> Integers:
        if count > len(self._free):
            self._grow(len(self.vectors) + count - len(self._free))
        places, self._free = self._free[:count], self._free[count:]
        return places

    def _grow(self, size: int) -> None:
        """Make room; what is not used yet takes no memory, since fresh zeros are pages that nothing has touched."""
        old, least = len(self.vectors), self.streams.clients * self.streams.zero_shot.classes
        size = max(size, old + old // 2) if old else 2 * max(size, least)
        self.vectors = _lengthen(self.vectors, size)
        self.beside = _lengthen(self.beside, size)
        self.origin = _lengthen(self.origin, size)
        self.entropy = _lengthen(self.entropy, size)
        self.exact = _lengthen(self.exact, size)
        self._free = np.concatenate([self._free, np.arange(old, size)])


def _lengthen(array: NDArray[Element], size: int) -> NDArray[Element]:
    longer = np.zeros((size, *array.shape[1:]), array.dtype)
    longer[: len(array)] = array
    return longer


def make_exact(zero_shot: ZeroShot, items: ItemTable, places: Integers, label: int) -> None:
    """Compute the entropies of prototypes of a class again, with the product that the readable method forms."""
    upload = np.zeros((zero_shot.classes, zero_shot.dim), np.float32)
    for place in places[~items.entropies.exact[places]]:
        upload[label] = items.vectors.prototypes[place]
        items.entropies.stored[place] = entropy(zero_shot.logits(upload))[label]
        items.entropies.exact[place] = True
