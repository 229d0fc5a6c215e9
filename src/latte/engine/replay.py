"""The replay of Latte: what every client holds, uploads and receives, window by window.

Imported only where numba is installed.
"""

from __future__ import annotations

import numpy as np

from ..data.federation import Federation
from ..methods.latte.client import LatteParams
from .blocks import BlockServer
from .loops.arrays import Arrivals, ItemTable, ListChanges, QueueVersions, UploadBatch, Window
from .loops.queues import ALWAYS, LAST, QueueShape, queue_room
from .loops.upload import fill_queues, follow_queues
from .server import PrototypeStore, RouteServer
from .streams import Crew, find_near_ties, lay_out, read_only, settle

SIMILARITY_BYTES = 1 << 30  # of similarities between clients that stay in memory; with more, syncs compare in blocks


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
        parts = [ListChanges(none, none, none, none.reshape(0, slots), none > 0)]
        if len(window.members):
            parts += self.server.play(window, self._uploads(window))
        client, label, at, items, _ = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        few = client.astype(np.uint16) if self.streams.clients < 1 << 16 else client  # these are sorted much faster
        order = np.argsort(few, kind="stable")
        bounds = np.searchsorted(client[order], np.arange(self.streams.clients + 1))
        return Arrivals((self.streams.offsets[client] + at)[order], label[order], order, items, bounds)

    def _uploads(self, window: Window) -> UploadBatch:
        """Compute the prototypes of all syncs together: what a client holds locally depends on no other client."""
        s, store = self.streams, self.store
        rows = int((window.handled - self.pushed).sum())
        sync, client, label = (np.empty(rows, np.int64) for _ in range(3))
        out = QueueVersions(sync, client, label, np.empty((rows, self.shape.slots), np.int64))
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
        return UploadBatch(*uploaded, len(s), store.vectors, store.beside, store.origin)

    def forget(self) -> None:
        """Free the prototypes that neither the server nor any external memory refers to."""
        used = self.server.referenced()
        self.store.retain(used[used >= 0] - len(self.streams))
