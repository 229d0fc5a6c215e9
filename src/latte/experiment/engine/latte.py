"""Latte over a whole federation: replay who holds what, window by window, then read in blocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ...core.types import Integers
from ...data.benchmark import Federation
from ...methods.latte import LatteParams
from ..schedule import Schedule
from .backend import Loops
from .pool import Pool
from .reader import Reader
from .server import Server, Uploads
from .state import BOTH, EXTERNAL, LOCAL, Arrivals, Given, Items, Readout
from .streams import Streams, lay_out, near_ties, owners, settle
from .timeline import Sync, Window, windows

MODES = {"both": BOTH, "local": LOCAL, "external": EXTERNAL}


class Grid(NamedTuple):
    """Labels (alphas, betas, n) of all samples, client after client, and who downloaded how much from whom."""

    labels: Integers
    downloads: Integers
    streams: Streams


class Replay:
    """Everything that happens in a run of Latte, except the reading."""

    def __init__(self, federation: Federation, params: LatteParams, loops: Loops) -> None:
        self.loops = loops
        self.streams = streams = lay_out(federation)
        group = owners(streams) * streams.zero_shot.classes + streams.pseudo
        settle(streams, near_ties(group, streams.entropy))
        self.shape = (streams.zero_shot.classes, params.k_l)
        self.slot = loops.share.fill_queues(
            np.arange(len(streams)), streams.offsets, streams.pseudo, streams.entropy, self.shape
        )
        self.pool = Pool(streams, params)
        names = tuple(client.name for client in federation.clients)
        self.server = Server(names, streams.zero_shot.classes, streams.zero_shot.dim, params.routing, loops.share)
        self.pushed = np.zeros(streams.clients, np.int64)
        self.local = np.full((streams.clients, *self.shape), -1, np.int64)

    @property
    def items(self) -> Items:
        """What the loops need to know of samples and prototypes."""
        s = self.streams
        return Items(len(s), s.entropy, self.slot, s.pseudo, self.pool.entropy, self.pool.exact)

    def run(self, window: Window) -> Arrivals:
        """Play the syncs of a window; return what each client was given, ordered by client and time."""
        uploads = self._uploads(window.syncs)
        parts: list[tuple[Given, Integers]] = []
        for sync, upload in zip(window.syncs, uploads, strict=True):
            self.server.push(upload)
            given = self.server.pull(sync.members)
            before = np.empty(self.streams.clients, np.int64)
            before[sync.members] = sync.handled
            parts.append((given, self.streams.offsets[given.client] + before[given.client]))
        return self._arrivals(parts)

    def _uploads(self, syncs: list[Sync]) -> Iterator[Uploads]:
        """Compute the prototypes of all syncs together: what a client holds does not depend on the others."""
        s, items = self.streams, self.items
        raw = [
            self.loops.share.upload((sync.members, sync.handled), self.pushed, s.offsets, items, self.local)
            for sync in syncs
        ]
        if not raw:
            return
        places, seen = self.pool.add(np.concatenate([contents for _, _, contents in raw]))
        start = 0
        for client, label, contents in raw:
            part = slice(start, start + len(contents))
            start = part.stop
            vectors = self.pool.vectors[places[part]]
            yield Uploads(client, label, vectors, len(s) + places[part], seen[part])

    def _arrivals(self, parts: list[tuple[Given, Integers]]) -> Arrivals:
        slots = self.server.rules.slots
        sample = np.concatenate([np.zeros(0, np.int64), *(when for _, when in parts)])
        label = np.concatenate([np.zeros(0, np.int64), *(given.label for given, _ in parts)])
        items = np.concatenate([np.zeros((0, slots), np.int64), *(given.items for given, _ in parts)])
        # a sync after a client's last sample falls on the next client's first: keep owners apart by the client
        client = np.concatenate([np.zeros(0, np.int64), *(given.client for given, _ in parts)])
        order = np.argsort(client, kind="stable")
        self.bounds = np.searchsorted(client[order], np.arange(self.streams.clients + 1))
        return Arrivals(sample[order], label[order], items[order])

    def forget(self) -> None:
        """Free the prototypes that neither the server nor anybody's external memory refers to."""
        routes, n = self.server.routes, len(self.streams)
        used = np.concatenate([routes.current.ravel(), routes.external.ravel()])
        self.pool.keep(np.unique(used[used >= 0]) - n)


def run_latte(
    federation: Federation,
    params: LatteParams,
    grid: tuple[Any, Any],
    schedule: Schedule,
    rng: np.random.Generator,
    loops: Loops,
) -> Grid:
    """Return the predictions for every alpha and beta of ``grid``."""
    replay = Replay(federation, params, loops)
    s = replay.streams
    gate = -1.0 if params.gate is None else params.gate
    alphas, betas = (np.asarray(axis, np.float64) for axis in grid)
    readout = Readout(alphas, betas, params.gamma, gate, s.zero_shot.scale)
    reader = Reader(replay, MODES[params.memory], readout)
    labels = np.full((len(alphas), len(betas), len(s)), -1, np.int64)
    for window in windows(s.lengths, schedule, rng):
        arrivals = replay.run(window)
        reader.read(window.handled, arrivals, labels)
        replay.forget()
    return Grid(labels, replay.server.downloads(), s)
