"""The replay of Latte, window by window: what every client holds, uploads and receives; and what it reads meanwhile.

Imported only where numba is installed.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from itertools import pairwise

import numpy as np

from ..core.types import Integers
from ..data.federation import Federation
from ..methods.latte.client import LatteParams
from .loops import arrays
from .loops.arrays import Arrivals, ItemTable, ReadoutGrid, Window, WindowTask
from .loops.queues import ALWAYS, LAST, QueueShape, queue_room
from .loops.read import DONE, ROUGHLY, Events, ReadRoom, merge_room, read_clients, readout_room
from .loops.route import fill_queues, follow_queues
from .server import BlockServer, PrototypeStore, RouteServer, make_exact
from .streams import Crew, SharedJob, find_near_ties, lay_out, read_only, settle

SIMILARITY_BYTES = 1 << 30  # of similarities between clients that stay in memory; with more, syncs compare in blocks
PARTS = 16  # of a window, which threads share out


class LatteReplay:
    """Everything that happens in a run of Latte, except the reading."""

    def __init__(self, federation: Federation, params: LatteParams, crew: Crew) -> None:
        self.crew = crew
        self.streams = s = lay_out(federation, crew, compiled=True)
        classes, n = s.zero_shot.classes, s.clients
        settle(s, find_near_ties(np.repeat(np.arange(n), s.lengths) * classes + s.pseudo, s.entropy))
        self.shape = shape = QueueShape(classes, params.k_l, ALWAYS if params.replace == "always" else LAST)
        self.slot = np.full(len(s), -1, np.int64)  # that every sample takes in its client's queue
        fill_queues(np.arange(len(s)), s.offsets, s.pseudo, s.entropy, shape, queue_room(shape), self.slot)
        self.in_blocks = 4 * n**2 * classes > SIMILARITY_BYTES
        self.store = PrototypeStore(s, params, crew, 0 if self.in_blocks else n)
        names = tuple(client.name for client in federation.clients)
        self.server = (BlockServer if self.in_blocks else RouteServer)(names, params, self.store)
        self.pushed = np.zeros(n, np.int64)
        self.local = np.full((n, classes, params.k_l), -1, np.int64)

    @property
    def items(self) -> ItemTable:
        """What the loops need to know of samples and prototypes."""
        s, store = self.streams, self.store
        samples = (len(s), s.rows, s.index, s.norms, s.logits, s.pseudo, self.slot, s.entropy)
        prototypes = read_only(store.vectors)  # as the rows are: the loops multiply both
        return ItemTable(*samples, prototypes, store.entropy, store.exact, store.beside, store.origin)

    def run(self, window: Window) -> Arrivals:
        """Play the syncs of a window; return the lists that arrive at each client, ordered by client and time."""
        none, slots = np.zeros(0, np.int64), self.server.rules.slots
        parts = [arrays.ListChanges(none, none, none, none.reshape(0, slots), none > 0)]
        if len(window.members):
            parts += self.server.play(window, self._uploads(window))
        client, label, at, items, _ = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        few = client.astype(np.uint16) if self.streams.clients < 1 << 16 else client  # these are sorted much faster
        order = np.argsort(few, kind="stable")
        bounds = np.searchsorted(client[order], np.arange(self.streams.clients + 1))
        return Arrivals((self.streams.offsets[client] + at)[order], label[order], order, items, bounds)

    def _uploads(self, window: Window) -> arrays.UploadBatch:
        """Compute the prototypes of all syncs together: what a client holds locally depends on no other client."""
        s, store = self.streams, self.store
        rows = int((window.handled - self.pushed).sum())
        sync, client, label = (np.empty(rows, np.int64) for _ in range(3))
        out = arrays.QueueVersions(sync, client, label, np.empty((rows, self.shape.slots), np.int64))
        touched = np.zeros(self.shape.classes, np.bool_)
        count = follow_queues(window, self.pushed, s.offsets, s.pseudo, self.slot, self.local, touched, out)
        sync, client, label, contents = (array[:count] for array in out)
        # the contents of one queue at two syncs are almost the same: one after the other they come from a cache
        by_queue = np.lexsort((label, client))
        order = np.lexsort((client, label, sync))
        places, seen = np.empty(count, np.int64), np.empty(count, np.bool_)
        places[by_queue], seen[by_queue] = store.add(contents[by_queue], self.items)
        starts = np.searchsorted(sync, np.arange(len(window.starts)))
        uploaded = (client[order], label[order], len(s) + places[order], seen[order], starts)
        return arrays.UploadBatch(*uploaded, len(s), store.vectors, store.beside, store.origin)

    def forget(self) -> None:
        """Free the prototypes that neither the server nor any external memory refers to."""
        used = self.server.referenced()
        self.store.retain(used[used >= 0] - len(self.streams))


class WindowReader:
    """Follows the memory of every client; with several threads, up to one window behind the replay."""

    def __init__(self, replay: LatteReplay, readout: ReadoutGrid, labels: Integers) -> None:
        self.replay, self.readout, self.labels = replay, readout, labels
        n, (classes, slots, _) = replay.streams.clients, replay.shape
        wide = replay.server.rules.slots
        width = wide if readout.mode == arrays.EXTERNAL else slots
        local, external, merged = (np.full((n, classes, k), -1, np.int64) for k in (slots, wide, width))
        self.memory = arrays.Memories(local, external, merged, np.zeros((n, classes, width, width), np.float32))
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
            before=arrays.ClientItems(*(np.empty_like(array[0]) for array in memory[:3])),
            merge=merge_room(memory.local.shape[2], memory.external.shape[2]),
            events=Events(integers(events), integers(events), integers(events, slots)),
            columns=arrays.ColumnRoom(
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
