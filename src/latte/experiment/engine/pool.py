"""Prototypes of all clients: each version that somebody may still read is stored once."""

from __future__ import annotations

import numpy as np

from ...core.maths import entropy
from ...core.types import Integers, Mask, Reals, Vectors
from ...core.zero_shot import ZeroShot
from ...methods.latte import LatteParams
from .backend import Loops
from .state import Items
from .streams import Streams

CHUNK = 512  # prototypes that are computed at a time: they stay in a processor's nearest large cache


class Pool:
    """``vectors`` (P, D), ``entropy`` and ``exact`` (P,): places are reused once nobody refers to them.

    The server may note in ``beside`` (P, N) and ``origin`` (P, 2) what it knows of a prototype.
    """

    def __init__(self, streams: Streams, params: LatteParams, loops: Loops) -> None:
        self.streams, self.params, self.loops = streams, params, loops
        self.vectors: Vectors = np.zeros((0, streams.zero_shot.dim), np.float32)
        self.entropy: Reals = np.ones(0)
        self.exact: Mask = np.zeros(0, np.bool_)
        self.beside: Vectors = np.zeros((0, 0), np.float32)
        self.origin: Integers = np.zeros((0, 2), np.int64)
        self._free: Integers = np.zeros(0, np.int64)
        self._soon: Integers = np.zeros(0, np.int64)

    def add(self, contents: Integers, items: Items) -> tuple[Integers, Mask]:
        """Store the prototypes of local memories (n, S), given as samples; return places (n,) and who has one."""
        zero_shot, places = self.streams.zero_shot, self._take(len(contents))
        seen, exact = np.zeros(len(contents), np.bool_), self.exact
        room, ones = np.empty((2, zero_shot.dim)), np.ones(CHUNK, np.float32)
        logits, label, close = np.empty((CHUNK, zero_shot.classes)), np.empty(CHUNK, np.int64), np.empty(CHUNK, np.bool_)
        for start in range(0, len(contents), CHUNK):
            part = slice(start, start + CHUNK)
            valid, now = contents[part] >= 0, places[part]
            weights = self._weights(np.where(valid, self.streams.entropy[contents[part]], np.inf), valid)
            self.loops.blend(items, contents[part], weights, room, now, self.vectors)
            n, uncertainty = len(now), np.empty(len(now))
            # One row's entropy from a product of another shape may differ in the last bits: see make_exact.
            self.loops.classify(self.vectors, now, ones[:n], zero_shot.scaled, room, logits[:n])
            self.loops.judge(logits[:n], 0.0, label[:n], uncertainty, close[:n])
            seen[part] = np.logical_and(valid.any(axis=1), self.vectors[now].any(axis=1))
            self.entropy[now] = np.where(seen[part], uncertainty, 1.0)
        exact[places] = ~seen
        return places, seen

    def _weights(self, certain: Reals, valid: Mask) -> Reals:
        if self.params.prototype == "min_entropy":
            return np.where(np.arange(certain.shape[1]) == certain.argmin(axis=1)[:, None], valid, 0.0)
        rate = 0.0 if self.params.prototype == "mean" else self.params.prototype_rate
        lowest = certain.min(axis=1, keepdims=True, initial=2.0)
        return np.where(valid, np.exp(rate * (lowest - np.where(valid, certain, 1.0))), 0.0)

    def keep(self, places: Integers) -> None:
        """Let all places but these be reused, but not before the next call: somebody may still read the others."""
        free = np.ones(len(self.vectors), np.bool_)
        free[places] = False
        free[self._free] = False
        free[self._soon] = False
        self._free = np.concatenate([self._free, self._soon])
        self._soon = np.flatnonzero(free)

    def _take(self, count: int) -> Integers:
        if count > len(self._free):
            self._grow(len(self.vectors) + count - len(self._free))
        places, self._free = self._free[:count], self._free[count:]
        return places

    def _grow(self, size: int) -> None:
        old = len(self.vectors)
        size = max(size, old + old // 2)
        self.vectors = np.concatenate([self.vectors, np.zeros((size - old, self.vectors.shape[1]), np.float32)])
        self.beside = np.concatenate([self.beside, np.zeros((size - old, self.beside.shape[1]), np.float32)])
        self.origin = np.concatenate([self.origin, np.zeros((size - old, 2), np.int64)])
        self.entropy = np.concatenate([self.entropy, np.ones(size - old)])
        self.exact = np.concatenate([self.exact, np.zeros(size - old, np.bool_)])
        self._free = np.concatenate([self._free, np.arange(old, size)])


def make_exact(zero_shot: ZeroShot, items: Items, places: Integers, label: int) -> None:
    """Compute the entropies of prototypes of a class again, with the product that the readable method forms."""
    upload = np.zeros((zero_shot.classes, zero_shot.dim), np.float32)
    for place in places[~items.exact[places]]:
        upload[label] = items.prototypes[place]
        items.stored[place] = entropy(zero_shot.logits(upload))[label]
        items.exact[place] = True
