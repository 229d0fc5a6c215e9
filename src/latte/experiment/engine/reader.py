"""Reads the memories of one client after the other: a block of samples against everything that it reads meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...core.types import Integers, Reals, Vectors
from .state import EXTERNAL, Arrivals, Block, Items, Memory, Readout, empty_events

if TYPE_CHECKING:
    from .latte import Replay


class Reader:
    """Follows every client's memory, a window behind the replay at most."""

    def __init__(self, replay: Replay, mode: int, readout: Readout) -> None:
        self.replay, self.mode, self.readout = replay, mode, readout
        n, (classes, slots) = replay.streams.clients, replay.shape
        wide = replay.server.rules.slots
        self.width = wide if mode == EXTERNAL else slots
        self.local = np.full((n, classes, slots), -1, np.int64)
        self.external = np.full((n, classes, wide), -1, np.int64)
        self.merged = np.full((n, classes, self.width), -1, np.int64)
        self.gram = np.zeros((n, classes, self.width, self.width), np.float32)
        self.handled = np.zeros(n, np.int64)

    def read(self, handled: Integers, arrivals: Arrivals, labels: Integers) -> None:
        """Predict up to ``handled`` (N,) samples of every client, into ``labels`` (alphas, betas, n)."""
        offsets, bounds = self.replay.streams.offsets, self.replay.bounds
        for i in range(self.replay.streams.clients):
            if self.handled[i] == offsets[i + 1] - offsets[i]:
                continue  # finished: nothing that arrives will be read
            span = (int(offsets[i] + self.handled[i]), int(offsets[i] + handled[i]))
            part = slice(bounds[i], bounds[i + 1])
            mine = Arrivals(arrivals.sample[part], arrivals.label[part], arrivals.items[part])
            labels[:, :, span[0] : span[1]] = self._one(i, span, mine)
        self.handled = handled.copy()

    def _one(self, i: int, span: tuple[int, int], arrivals: Arrivals) -> Integers:
        read, items = self.replay.loops.read, self.replay.items
        start = self.merged[i].copy()
        events, count = self._walk(i, span, arrivals, items)
        first, later, used = read.number(start, events, count)
        vectors, entropy = self._gather(used, items)
        own = self.replay.streams.vectors(np.arange(*span))
        block = Block(span[0], self.replay.streams.dots[span[0] : span[1]], own @ vectors.T, vectors, entropy)
        labels: Integers = read.read(block, events, (first, later), self.gram[i], self.readout)
        return labels

    def _walk(self, i: int, span: tuple[int, int], arrivals: Arrivals, items: Items):  # type: ignore[no-untyped-def]
        """Return the events of one client, and how many they are."""
        memory = Memory(self.local[i], self.external[i], self.merged[i])
        before = [array.copy() for array in memory]
        events = empty_events(span[1] - span[0] + len(arrivals.sample), self.width)
        while (count := self.replay.loops.read.walk((*span, self.mode), items, memory, arrivals, events)) < 0:
            label = -1 - count
            held = memory.external[label]
            self.replay.pool.make_exact(held[held >= 0] - items.samples, label)
            for array, old in zip(memory, before, strict=True):
                array[...] = old
        return events, count

    def _gather(self, used: Integers, items: Items) -> tuple[Vectors, Reals]:
        """Return the vectors (U, D) and the entropies (U,) of items."""
        pool, streams = self.replay.pool, self.replay.streams
        stored = used >= items.samples
        places, samples = used[stored] - items.samples, used[~stored]
        vectors = np.empty((len(used), streams.zero_shot.dim), np.float32)
        entropy = np.empty(len(used))
        vectors[stored], entropy[stored] = pool.vectors[places], pool.entropy[places]
        vectors[~stored], entropy[~stored] = streams.vectors(samples), streams.entropy[samples]
        return vectors, entropy
