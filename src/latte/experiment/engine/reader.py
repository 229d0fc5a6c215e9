"""Reads the memories: every client's samples of a window against everything that it holds meanwhile."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...core.types import Integers
from .pool import make_exact
from .state import EXTERNAL, Arrivals, Items, Memory, Readout, Span

if TYPE_CHECKING:
    from .latte import Replay

CHUNKS = 16  # parts of a window that threads share out


class Job(NamedTuple):
    """One window to read: a snapshot of what the replay knew at its end, and the clients that nobody took yet."""

    span: Span
    items: Items
    arrivals: Arrivals
    chunks: deque[tuple[int, int]]


class Reader:
    """Follows every client's memory; with several threads, up to one window behind the replay."""

    def __init__(self, replay: Replay, readout: Readout, labels: Integers, threads: int) -> None:
        self.replay, self.readout, self.labels = replay, readout, labels
        n, (classes, slots) = replay.streams.clients, replay.shape
        wide = replay.server.rules.slots
        width = wide if readout.mode == EXTERNAL else slots
        local, external, merged = (np.full((n, classes, k), -1, np.int64) for k in (slots, wide, width))
        gram = np.zeros((n, classes, width, width), np.float32)
        self.memory = Memory(local, external, merged, gram)
        self.handled = np.zeros(n, np.int64)
        self._helpers = ThreadPoolExecutor(threads - 1) if threads > 1 else None
        self._threads = threads
        self._running: tuple[Job, list[Future[None]]] | None = None

    def submit(self, handled: Integers, arrivals: Arrivals) -> None:
        """Read up to ``handled`` (N,) samples of every client: now, or while the replay goes on."""
        self.wait()
        offsets = self.replay.streams.offsets
        finished = self.handled == np.diff(offsets)
        span = Span(offsets[:-1] + self.handled, offsets[:-1] + handled, finished)
        self.handled = handled
        n = len(handled)
        cuts = np.linspace(0, n, min(n, CHUNKS if self._helpers else 1) + 1).astype(int).tolist()
        job = Job(span, self.replay.items, arrivals, deque(pairwise(cuts)))
        helpers = [self._helpers.submit(self._work, job) for _ in range(self._threads - 1)] if self._helpers else []
        self._running = (job, helpers)
        if not helpers:
            self.wait()

    def wait(self) -> None:
        """Help with what is being read until it is done."""
        if self._running is None:
            return
        job, helpers = self._running
        self._running = None
        self._work(job)
        for helper in helpers:
            helper.result()

    def close(self) -> None:
        """Finish."""
        self.wait()
        if self._helpers:
            self._helpers.shutdown()

    def _work(self, job: Job) -> None:
        while True:
            try:
                at, end = job.chunks.popleft()
            except IndexError:
                return
            while at >= 0:
                at, label = self.replay.loops.read_clients(
                    (at, end), job.span, job.items, self.memory, job.arrivals, self.readout, self.labels
                )
                if at >= 0:
                    self._make_exact(job, at, label)

    def _make_exact(self, job: Job, client: int, label: int) -> None:
        """Make exact the entropies of all prototypes of a class that a client holds in this window."""
        arrivals = job.arrivals
        part = slice(arrivals.bounds[client], arrivals.bounds[client + 1])
        rows = arrivals.items[part][arrivals.label[part] == label]
        held = np.unique(np.concatenate([self.memory.external[client, label], rows.ravel()]))
        make_exact(self.replay.streams.zero_shot, job.items, held[held >= 0] - job.items.samples, label)
