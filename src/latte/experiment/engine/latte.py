"""Latte over a whole federation: replay who holds what, window by window, then read in blocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ...core.types import Integers, Vectors
from ...core.validate import unit_where
from ...data.benchmark import Federation
from ...methods.latte import LatteParams
from ..schedule import Schedule
from .backend import Loops
from .pool import Pool
from .reader import Reader
from .server import Server
from .state import BOTH, EXTERNAL, LOCAL, Arrivals, Given, Items, Readout, Uploads
from .streams import Streams, lay_out, near_ties, owners, settle
from .timeline import Sync, Window, windows

MODES = {"both": BOTH, "local": LOCAL, "external": EXTERNAL}


class Grid(NamedTuple):
    """Labels (alphas, betas, n) of all samples, client after client, and who downloaded how much from whom."""

    labels: Integers
    downloads: Integers
    streams: Streams


def window_for(shape: tuple[int, int]) -> int:
    """Return how many rounds to replay before reading.

    A client's samples of a window are compared with everything that it holds at any time in the window: a short
    window compares in vain less often, a long one loads what stays less often.
    """
    import os
    return int(os.environ.get("WIN", 0)) or int(np.clip(shape[0] * shape[1] // 8, 8, 64))


class Replay:
    """Everything that happens in a run of Latte, except the reading."""

    def __init__(self, federation: Federation, params: LatteParams, loops: Loops) -> None:
        self.loops = loops
        self.streams = streams = lay_out(federation)
        group = owners(streams) * streams.zero_shot.classes + streams.pseudo
        settle(streams, near_ties(group, streams.entropy))
        self.shape = (streams.zero_shot.classes, params.k_l)
        self.slot = loops.fill_queues(
            np.arange(len(streams)), streams.offsets, streams.pseudo, streams.entropy, self.shape
        )
        self.pool = Pool(streams, params, loops.copy_units)
        names = tuple(client.name for client in federation.clients)
        self.server = Server(names, streams.zero_shot.classes, streams.zero_shot.dim, params.routing, loops)
        self.pushed = np.zeros(streams.clients, np.int64)
        self.local = np.full((streams.clients, *self.shape), -1, np.int64)

    @property
    def items(self) -> Items:
        """What the loops need to know of samples and prototypes."""
        s, pool = self.streams, self.pool
        known = (len(s), s.entropy, self.slot, s.pseudo, s.rows, s.index, s.norms, s.dots)
        return Items(*known, pool.entropy, pool.exact, pool.vectors)

    def run(self, window: Window) -> Arrivals:
        """Play the syncs of a window; return what each client was given, ordered by client and time."""
        parts: list[tuple[Given, Vectors]] = []
        when: list[Integers] = []
        before = np.zeros(self.streams.clients, np.int64)
        for sync, uploads in zip(window.syncs, self._uploads(window.syncs), strict=True):
            given, cross = self.server.sync(sync.members, uploads)
            before[sync.members] = sync.handled
            parts.append((given, cross))
            when.append(self.streams.offsets[given.client] + before[given.client])
        return self._arrivals(parts, when)

    def _uploads(self, syncs: list[Sync]) -> Iterator[Uploads]:
        """Compute the prototypes of all syncs together: what a client holds does not depend on the others."""
        s, items = self.streams, self.items
        raw = [
            self.loops.upload((sync.members, sync.handled), self.pushed, s.offsets, items, self.local)
            for sync in syncs
        ]
        if not raw:
            return
        client, label, contents = (np.concatenate(part) for part in zip(*raw, strict=True))
        number = np.repeat(np.arange(len(raw)), [len(part) for part, _, _ in raw])
        order = np.lexsort((client, label, number))
        client, label = client[order], label[order]
        places, seen = self.pool.add(contents[order], items)
        start = 0
        for part, _, _ in raw:
            now = slice(start, start + len(part))
            start = now.stop
            # what the global memory stores: it normalises what it is given
            vectors = unit_where("prototypes", self.pool.vectors[places[now]], seen[now], (len(part), s.zero_shot.dim))
            yield Uploads(client[now], label[now], vectors, len(s) + places[now], seen[now])

    def _arrivals(self, parts: list[tuple[Given, Vectors]], when: list[Integers]) -> Arrivals:
        none, slots = np.zeros(0, np.int64), self.server.rules.slots
        client = np.concatenate([none, *(given.client for given, _ in parts)])
        label = np.concatenate([none, *(given.label for given, _ in parts)])
        items = np.concatenate([np.zeros((0, slots), np.int64), *(given.items for given, _ in parts)])
        cross = np.concatenate([np.zeros((0, slots, slots), np.float32), *(products for _, products in parts)])
        order = np.argsort(client, kind="stable")
        bounds = np.searchsorted(client[order], np.arange(self.streams.clients + 1))
        sample = np.concatenate([none, *when])
        return Arrivals(sample[order], label[order], items[order], cross[order], bounds)

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
    readout = Readout(MODES[params.memory], alphas, betas, params.gamma, gate, s.zero_shot.scale)
    reader = Reader(replay, readout)
    labels = np.full((len(alphas), len(betas), len(s)), -1, np.int64)
    for window in windows(s.lengths, schedule, rng, window_for(replay.shape)):
        reader.read(window.handled, replay.run(window), labels)
        replay.forget()
    return Grid(labels, replay.server.downloads(), s)
