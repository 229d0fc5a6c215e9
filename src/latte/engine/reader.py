"""The reading of memories: the samples of a window of every client against everything that it holds meanwhile.

Imported only where numba is installed.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from itertools import pairwise

import numpy as np

from ..core.types import Integers
from .loops.arrays import EXTERNAL, Arrivals, ClientItems, ColumnRoom, Memories, ReadoutGrid, WindowTask
from .loops.merge import ROUGHLY, Events, merge_room
from .loops.read import DONE, ReadRoom, read_clients, readout_room
from .replay import LatteReplay
from .server import make_exact
from .streams import SharedJob, find_near_ties

PARTS = 16  # of a window, which threads share out


class WindowReader:
    """Follows the memory of every client; with several threads, up to one window behind the replay."""

    def __init__(self, replay: LatteReplay, readout: ReadoutGrid, labels: Integers) -> None:
        self.replay, self.readout, self.labels = replay, readout, labels
        n, (classes, slots, _) = replay.streams.clients, replay.shape
        wide = replay.server.rules.slots
        width = wide if readout.mode == EXTERNAL else slots
        local, external, merged = (np.full((n, classes, k), -1, np.int64) for k in (slots, wide, width))
        self.memory = Memories(local, external, merged, np.zeros((n, classes, width, width), np.float32))
        self.handled = np.zeros(n, np.int64)
        self._job: SharedJob[tuple[int, int]] | None = None
        # scratch space with its size, used again and again: to get fresh memory for every window takes time
        self._rooms: deque[tuple[int, int, ReadRoom]] = deque()
        self._largest = 0, 0  # samples and events of a client so far

    def submit(self, handled: Integers, arrivals: Arrivals) -> None:
        """Read up to ``handled`` (N,) samples of every client: now, or while the replay goes on."""
        self.wait()
        offsets, crew, n = self.replay.streams.offsets, self.replay.crew, len(handled)
        first, last, finished = offsets[:-1] + self.handled, offsets[:-1] + handled, self.handled == np.diff(offsets)
        self.handled = handled
        task = WindowTask(first, last, finished, self.replay.items, arrivals)
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
        counts = task.last - task.first
        least, most = (int(sizes[at:end].max(initial=0)) for sizes in (counts, counts + np.diff(task.arrivals.bounds)))
        self._largest = max(least, self._largest[0]), max(most, self._largest[1])
        samples, events, room = *self._largest, None
        with suppress(IndexError):
            samples, events, room = self._rooms.pop()
        if room is None or samples < least or events < most:
            samples, events = self._largest
            room = self._make_room(samples, events)
        while at != DONE:
            at, label = read_clients(at, end, task, self.memory, self.readout, room, self.labels)
            if at != DONE:
                self._make_exact(task, at, label)
        self._rooms.append((samples, events, room))

    def _make_room(self, samples: int, events: int) -> ReadRoom:
        """Return scratch space for a client with so many samples and events."""
        memory, (classes, slots) = self.memory, self.memory.merged.shape[1:]
        wide = (classes + events) * slots

        def integers(*shape: int) -> Integers:
            return np.empty(shape, np.int64)

        return ReadRoom(
            before=ClientItems(*(np.empty_like(array[0]) for array in (memory.local, memory.external, memory.merged))),
            merge=merge_room(memory.local.shape[2], memory.external.shape[2]),
            events=Events(integers(events), integers(events), integers(events, slots)),
            columns=ColumnRoom(
                item=integers(wide),
                born=integers(wide),
                dead=integers(wide),
                order=integers(wide),
                scale=np.empty(wide, np.float32),
                entropy=np.empty(wide),
                client=integers(wide),
                sync=integers(wide),
                start=integers(classes, slots),
                now=integers(classes, slots),
                ends=integers(samples // ROUGHLY + 3),
            ),
            readout=readout_room(classes, slots),
            missing=integers(slots),
            near=np.empty(samples * wide, np.float32),
        )

    def _make_exact(self, task: WindowTask, client: int, label: int) -> None:
        """Make exact what decides the merges of a class in this window.

        These are the entropies of prototypes that the client holds meanwhile, if they are close to another entropy.
        """
        arrivals, items, streams = task.arrivals, task.items, self.replay.streams
        part = slice(arrivals.bounds[client], arrivals.bounds[client + 1])
        received = arrivals.items[arrivals.row[part][arrivals.label[part] == label]]
        held = np.unique(np.concatenate([self.memory.external[client, label], received.ravel()]))
        places = held[held >= 0] - items.samples
        mine = slice(streams.offsets[client], streams.offsets[client + 1])
        own = streams.entropy[mine][streams.pseudo[mine] == label]
        values = np.concatenate([items.stored[places], own])
        close = find_near_ties(np.zeros(len(values), np.int64), values, 2.0)[: len(places)]
        make_exact(streams.zero_shot, items, places[close], label)
