"""Latte over a whole federation: replay what every client holds, window by window, then read the window.

Imported only where numba is installed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...core.types import Integers, Reals
from ...data.benchmark import Federation
from ...methods.latte import LatteParams
from . import loops_classify
from .blocks import BlockServer
from .crew import Crew
from .loop_arrays import (
    BOTH,
    EXTERNAL,
    LOCAL,
    Arrivals,
    ItemEntropies,
    ItemTable,
    ItemVectors,
    ListChanges,
    QueuePlaces,
    ReadoutGrid,
    UploadBatch,
)
from .loops_upload import QueueVersions, fill_queues, follow_queues
from .method_engine import ReadoutAxes, ReplayOptions
from .queues import ALWAYS, LAST, QueueShape, queue_room
from .reader import WindowReader
from .server import RouteServer
from .store import PrototypeStore
from .streams import Streams, find_near_ties, lay_out, owners_of, read_only, settle
from .timeline import WINDOW, Window, windows

SIMILARITY_BYTES = 1 << 30  # of similarities between clients that stay in memory; with more, syncs compare in blocks
MEMORY_CODES = {"both": BOTH, "local": LOCAL, "external": EXTERNAL}


class LatteLabels(NamedTuple):
    """Labels and confidences (alphas, betas, n) of all samples, client after client, and the downloads (N, N)."""

    labels: Integers
    confidences: Reals | None
    downloads: Integers | None
    streams: Streams
    in_blocks: bool


class LatteReplay:
    """Everything that happens in a run of Latte, except the reading."""

    def __init__(self, federation: Federation, params: LatteParams, crew: Crew) -> None:
        self.crew = crew
        self.streams = streams = lay_out(federation, loops_classify, crew)
        classes, n = streams.zero_shot.classes, streams.clients
        settle(streams, find_near_ties(owners_of(streams) * classes + streams.pseudo, streams.entropy))
        self.shape = QueueShape(classes, params.k_l, ALWAYS if params.replace == "always" else LAST)
        self.slot = self._slots()
        self.store = PrototypeStore(streams, params, crew)
        names = tuple(client.name for client in federation.clients)
        self.in_blocks = needs_blocks(n, classes)
        self.server: RouteServer | BlockServer
        if self.in_blocks:
            self.server = BlockServer(names, params, self.store)
        else:
            self.server = RouteServer(names, classes, streams.zero_shot.dim, params)
            self.store.beside = np.zeros((0, n), np.float32)
        self.pushed = np.zeros(n, np.int64)
        self.local = np.full((n, classes, params.k_l), -1, np.int64)

    def _slots(self) -> Integers:
        """Return the slot that every sample takes in its client's queue, -1 for none."""
        s, shape = self.streams, self.shape
        slot = np.full(len(s), -1, np.int64)
        fill_queues(np.arange(len(s)), s.offsets, s.pseudo, s.entropy, shape, queue_room(shape), slot)
        return slot

    @property
    def items(self) -> ItemTable:
        """What the loops need to know of samples and prototypes."""
        s, store = self.streams, self.store
        prototypes = read_only(store.vectors)  # as the rows are: the loops multiply both
        return ItemTable(
            ItemVectors(len(s), s.rows, s.index, s.norms, prototypes),
            ItemEntropies(len(s), s.entropy, store.entropy, store.exact),
            QueuePlaces(s.pseudo, self.slot),
            store.products,
            s.logits,
        )

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
        s, items, store = self.streams, self.items, self.store
        version = self._follow(window, items.places)
        # the contents of one queue at two syncs are almost the same: one after the other they come from a cache
        by_queue = np.lexsort((version.label, version.client))
        order = np.lexsort((version.client, version.label, version.sync))
        places, seen = np.empty(len(order), np.int64), np.empty(len(order), np.bool_)
        places[by_queue], seen[by_queue] = store.add(version.contents[by_queue], items.vectors)
        starts = np.searchsorted(version.sync, np.arange(len(window.starts)))
        upload = (version.client[order], version.label[order], store.vectors, len(s) + places[order], seen[order])
        return UploadBatch(*upload, starts, len(s), store.products)

    def _follow(self, window: Window, places: QueuePlaces) -> QueueVersions:
        """Return the queues that change before a sync of the window."""
        rows = int((window.handled - self.pushed).sum())
        sync, client, label = (np.empty(rows, np.int64) for _ in range(3))
        out = QueueVersions(sync, client, label, np.empty((rows, self.shape.slots), np.int64))
        touched = np.zeros(self.shape.classes, np.bool_)
        count = follow_queues(window, self.pushed, self.streams.offsets, places, self.local, touched, out)
        return QueueVersions(*(array[:count] for array in out))

    def forget(self) -> None:
        """Free the prototypes that neither the server nor any external memory refers to."""
        used = self.server.referenced()
        self.store.retain(used[used >= 0] - len(self.streams))


def needs_blocks(clients: int, classes: int) -> bool:
    """Say whether the similarities between so many clients are too many to stay in memory."""
    return 4 * clients**2 * classes > SIMILARITY_BYTES


def run_latte(federation: Federation, params: LatteParams, axes: ReadoutAxes, options: ReplayOptions) -> LatteLabels:
    """Return the predictions for every alpha and beta."""
    with Crew(options.threads) as crew:
        replay = LatteReplay(federation, params, crew)
        s, (alphas, betas) = replay.streams, axes
        gamma, gate = params.readout_rate(s.zero_shot.classes), -1.0 if params.gate is None else params.gate
        numbers = (float(gamma), float(gate), float(s.zero_shot.scale))  # a whole number would be another type
        labels = np.full((len(alphas), len(betas), len(s)), -1, np.int64)
        confidences = np.zeros(labels.shape if options.calibration else (0, 0, 0))
        readout = ReadoutGrid(MEMORY_CODES[params.memory], alphas, betas, *numbers, confidences)
        reader = WindowReader(replay, readout, labels)
        for window in windows(s.lengths, options.schedule, options.rng, WINDOW):
            reader.submit(window.handled, replay.run(window))
            replay.forget()
        reader.wait()
    recorded = confidences if options.calibration else None
    return LatteLabels(labels, recorded, replay.server.downloads(), s, replay.in_blocks)
