"""Reads the memories: the samples of a window of every client against everything that it holds meanwhile."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from ...core.types import Integers
from .crew import SharedJob
from .loop_arrays import EXTERNAL, Arrivals, HeldItems, Memories, ReadoutGrid, WindowSpan, WindowTask
from .loops_read import DONE, read_clients
from .read_room import ReadRooms
from .store import make_exact
from .streams import find_near_ties

if TYPE_CHECKING:
    from .latte_engine import LatteReplay

PARTS = 16  # of a window, which threads share out


class WindowReader:
    """Follows the memory of every client; with several threads, up to one window behind the replay."""

    def __init__(self, replay: LatteReplay, readout: ReadoutGrid, labels: Integers) -> None:
        self.replay, self.readout, self.labels = replay, readout, labels
        n, (classes, slots, _) = replay.streams.clients, replay.shape
        wide = replay.server.rules.slots
        width = wide if readout.mode == EXTERNAL else slots
        local, external, merged = (np.full((n, classes, k), -1, np.int64) for k in (slots, wide, width))
        gram = np.zeros((n, classes, width, width), np.float32)
        self.memory = Memories(HeldItems(local, external, merged), gram)
        self.handled = np.zeros(n, np.int64)
        self.rooms = ReadRooms(self.memory.held)
        self._job: SharedJob[tuple[int, int]] | None = None

    def submit(self, handled: Integers, arrivals: Arrivals) -> None:
        """Read up to ``handled`` (N,) samples of every client: now, or while the replay goes on."""
        self.wait()
        offsets, crew, n = self.replay.streams.offsets, self.replay.crew, len(handled)
        finished = self.handled == np.diff(offsets)
        span = WindowSpan(offsets[:-1] + self.handled, offsets[:-1] + handled, finished)
        self.handled = handled
        task = WindowTask(span, self.replay.items, arrivals)
        cuts = np.linspace(0, n, min(n, PARTS if crew.threads > 1 else 1) + 1).astype(int).tolist()
        self._job = crew.start(lambda part: self._read(task, *part), pairwise(cuts))
        if crew.threads == 1:
            self.wait()

    def wait(self) -> None:
        """Help with the window that is being read until it is done."""
        if self._job:
            self._job.finish()
        self._job = None

    def _read(self, task: WindowTask, at: int, end: int) -> None:
        """Read some clients. If the loop stops at a decision that needs exact numbers, compute them and continue."""
        size, room = self.rooms.take(at, end, task.span, task.arrivals)
        while at != DONE:
            at, label = read_clients(at, end, task, self.memory, self.readout, room, self.labels)
            if at != DONE:
                self._make_exact(task, at, label)
        self.rooms.put_back(size, room)

    def _make_exact(self, task: WindowTask, client: int, label: int) -> None:
        """Make exact what decides the merges of a class in this window.

        These are the entropies of prototypes that the client holds meanwhile, if they are close to another entropy.
        """
        arrivals, items, streams = task.arrivals, task.items, self.replay.streams
        part = slice(arrivals.bounds[client], arrivals.bounds[client + 1])
        received = arrivals.items[arrivals.row[part][arrivals.label[part] == label]]
        held = np.unique(np.concatenate([self.memory.held.external[client, label], received.ravel()]))
        places = held[held >= 0] - items.vectors.samples
        mine = slice(streams.offsets[client], streams.offsets[client + 1])
        own = streams.entropy[mine][streams.pseudo[mine] == label]
        values = np.concatenate([items.entropies.stored[places], own])
        close = find_near_ties(np.zeros(len(values), np.int64), values, 2.0)[: len(places)]
        make_exact(streams.zero_shot, items, places[close], label)
