"""Reads the memories: every client's samples of a window against everything that it holds meanwhile."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...core.types import Integers
from .crew import Job
from .state import EXTERNAL, Arrivals, Items, Memory, Readout, Span
from .streams import near_ties
from .versions import make_exact

if TYPE_CHECKING:
    from .latte_engine import Replay

CHUNKS = 16  # parts of a window that threads share out


class Task(NamedTuple):
    """One window to read: a snapshot of what the replay knew at its end."""

    span: Span
    items: Items
    arrivals: Arrivals


class Reader:
    """Follows every client's memory; with several threads, up to one window behind the replay."""

    def __init__(self, replay: Replay, readout: Readout, labels: Integers) -> None:
        self.replay, self.readout, self.labels = replay, readout, labels
        n, (classes, slots) = replay.streams.clients, replay.shape
        wide = replay.server.rules.slots
        width = wide if readout.mode == EXTERNAL else slots
        local, external, merged = (np.full((n, classes, k), -1, np.int64) for k in (slots, wide, width))
        gram = np.zeros((n, classes, width, width), np.float32)
        self.memory = Memory(local, external, merged, gram)
        self.handled = np.zeros(n, np.int64)
        self._job: Job | None = None

    def submit(self, handled: Integers, arrivals: Arrivals) -> None:
        """Read up to ``handled`` (N,) samples of every client: now, or while the replay goes on."""
        self.wait()
        offsets, crew, n = self.replay.streams.offsets, self.replay.crew, len(handled)
        finished = self.handled == np.diff(offsets)
        span = Span(offsets[:-1] + self.handled, offsets[:-1] + handled, finished)
        self.handled = handled
        task = Task(span, self.replay.items, arrivals)
        cuts = np.linspace(0, n, min(n, CHUNKS if crew.threads > 1 else 1) + 1).astype(int).tolist()
        self._job = crew.start(lambda part: self._read(task, *part), pairwise(cuts))
        if crew.threads == 1:
            self.wait()

    def wait(self) -> None:
        """Help with what is being read until it is done."""
        if self._job:
            self._job.finish()
        self._job = None

    def _read(self, task: Task, at: int, end: int) -> None:
        while at >= 0:
            at, label = self.replay.loops.read_clients(
                (at, end), task.span, task.items, self.memory, task.arrivals, self.readout, self.labels
            )
            if at >= 0:
                self._make_exact(task, at, label)

    def _make_exact(self, task: Task, client: int, label: int) -> None:
        """Make exact what decides the merges of a class in this window.

        These are the entropies of prototypes that the client holds meanwhile, if they are close to another entropy.
        """
        arrivals, items, streams = task.arrivals, task.items, self.replay.streams
        part = slice(arrivals.bounds[client], arrivals.bounds[client + 1])
        given = arrivals.items[arrivals.row[part][arrivals.label[part] == label]]
        held = np.unique(np.concatenate([self.memory.external[client, label], given.ravel()]))
        places = held[held >= 0] - items.samples
        mine = slice(streams.offsets[client], streams.offsets[client + 1])
        own = streams.entropy[mine][streams.pseudo[mine] == label]
        values = np.concatenate([items.stored[places], own])
        close = near_ties(np.zeros(len(values), np.int64), values, 2.0)[: len(places)]
        make_exact(streams.zero_shot, items, places[close], label)
