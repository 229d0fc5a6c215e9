"""Reads the memories: every client's samples of a window against everything that it holds meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...core.types import Integers
from .state import EXTERNAL, Arrivals, Memory, Readout, Span

if TYPE_CHECKING:
    from .latte import Replay


class Reader:
    """Follows every client's memory, a window behind the replay at most."""

    def __init__(self, replay: Replay, readout: Readout) -> None:
        self.replay, self.readout = replay, readout
        n, (classes, slots) = replay.streams.clients, replay.shape
        wide = replay.server.rules.slots
        width = wide if readout.mode == EXTERNAL else slots
        gram = np.zeros((n, classes, width, width), np.float32)
        crossed = replay.server.rules.crossed
        cross = np.zeros((n, classes, crossed, crossed), np.float32)
        local, external, merged = (np.full((n, classes, k), -1, np.int64) for k in (slots, wide, width))
        self.memory = Memory(local, external, merged, gram, cross)
        self.handled = np.zeros(n, np.int64)

    def read(self, handled: Integers, arrivals: Arrivals, labels: Integers) -> None:
        """Predict up to ``handled`` (N,) samples of every client, into ``labels`` (alphas, betas, n)."""
        offsets = self.replay.streams.offsets[:-1]
        finished = self.handled == np.diff(self.replay.streams.offsets)
        span = Span(offsets + self.handled, offsets + handled, finished)
        self.handled = handled
        at, items = 0, self.replay.items
        while at >= 0:
            who = (at, self.replay.streams.clients)
            at, label = self.replay.loops.read_clients(who, span, items, self.memory, arrivals, self.readout, labels)
            if at >= 0:
                self._make_exact(arrivals, at, label)

    def _make_exact(self, arrivals: Arrivals, client: int, label: int) -> None:
        """Make exact the entropies of all prototypes of a class that a client holds in this window."""
        part = slice(arrivals.bounds[client], arrivals.bounds[client + 1])
        rows = arrivals.items[part][arrivals.label[part] == label]
        held = np.unique(np.concatenate([self.memory.external[client, label], rows.ravel()]))
        self.replay.pool.make_exact(held[held >= 0] - len(self.replay.streams), label)
