"""The global memory of the engine: similarities are kept, and only what changed is computed anew."""

from __future__ import annotations

import numpy as np

from ...core.global_memory import GlobalMemory
from ...core.routing import Routing
from ...core.types import Integers, Vectors
from ...core.zero_shot import ZeroShot
from ...methods.latte import LatteParams
from .backend import Loops
from .state import CLIENT, NONE, RELEASED, Counts, Given, Routes, Rules, Uploads
from .timeline import Window

SPARE = 4  # more clients than are wanted on a list, so that one that leaves it is replaced without a search
EMPTY = {"client": CLIENT, "none": NONE, "released": RELEASED}


class Server:
    """Keeps everyone's latest prototypes, and what follows from them."""

    def __init__(self, names: tuple[str, ...], classes: int, dim: int, params: LatteParams, loops: Loops) -> None:
        n, routing = len(names), params.routing
        slots = min(routing.external_slots, n - 1)
        more = min(n, slots + 2 + SPARE)
        self.loops, self.now = loops, 0
        self.rules = Rules(slots, routing.drop_first_rank, EMPTY[routing.empty_query], loops.near)
        self.routes = Routes(
            vectors=np.zeros((classes, n, dim), np.float32),
            similarity=np.zeros((classes, n, n), np.float32),
            seen=np.zeros((classes, n), np.bool_),
            common=np.zeros((n, n), np.int64),
            current=np.full((classes, n), -1, np.int64),
            stamp=np.full((classes, n), -1, np.int64),
            ranking=ranking_of(names, routing),
            changed=np.full(classes, -1, np.int64),
            pulled=np.full(n, -1, np.int64),
            external=np.full((n, classes, slots), -1, np.int64),
            donors=np.full((n, classes, slots), -1, np.int64),
            nearest=np.zeros((n, classes, more), np.int64),
            values=np.zeros((n, classes, more)),
            length=np.zeros((n, classes), np.int64),
            bound=np.full((n, classes), -np.inf),
        )
        self.counts = Counts(*(np.zeros(shape, np.int64) for shape in ((n, n), (n, classes), (n,))))

    def play(self, window: Window, uploads: Uploads, offsets: Integers) -> list[Given]:
        """Play the syncs of a window; return what is different after each for who pulled, in order."""
        parts: list[Given] = []
        at, syncs = 0, len(window.starts) - 1
        while at < syncs:
            progress = (at, self.now, offsets)
            at, given = self.loops.play(self.routes, self.rules, self.counts, window, uploads, progress)
            for row in np.flatnonzero(given.doubtful):
                self._settle(given, int(row))
            parts.append(given)
        self.now += syncs
        return parts

    def _settle(self, given: Given, row: int) -> None:
        client, label = int(given.client[row]), int(given.label[row])
        donors = self._settled(client, label)
        self.loops.accept(self.routes, self.counts, client, label, donors)
        given.items[row] = self.routes.external[client, label]

    def live(self) -> Integers:
        """Return every item that somebody may still read."""
        return np.concatenate([self.routes.current.ravel(), self.routes.external.ravel()])

    def downloads(self) -> Integers:
        """Return (N, N): how many prototypes of j client i was given."""
        routes, counts = self.routes, self.counts
        total = counts.downloads.copy()
        times = np.broadcast_to((counts.pulls[:, None] - counts.since)[:, :, None], routes.donors.shape)
        client, _, _ = at = np.nonzero(routes.donors >= 0)
        np.add.at(total, (client, routes.donors[at]), times[at])
        return total

    # --- choices too close for another order of summation -------------------------------------------------

    def _settled(self, own: int, label: int) -> Integers:
        """Return the donors (slots,), -1 for none, with the very operations of GlobalMemory.neighbours."""
        routes, rules, ranking = self.routes, self.rules, self.routes.ranking
        seen = routes.seen[label, ranking]
        if rules.drop_first:
            rows = _best(self._scores(own, label)[ranking], rules.slots + 1)[1:]
            return np.where(seen[rows], ranking[rows], -1)
        scores = self._scores(own, label) if routes.seen[label, own] else self._mean_scores(own)
        scores = np.where(seen & (ranking != own), scores[ranking], -np.inf)
        rows = _best(scores, rules.slots)
        return np.where(np.isfinite(scores[rows]), ranking[rows], -1)

    def _scores(self, own: int, label: int) -> Vectors:
        vectors = self.routes.vectors[label : label + 1]
        scores: Vectors = np.matmul(vectors, vectors[:, own, :, None])[0, :, 0].astype(np.float64)
        return scores

    def _mean_scores(self, own: int) -> Vectors:
        similarity = np.matmul(self.routes.vectors, self.routes.vectors[:, own, :, None])[:, :, 0].T.astype(np.float64)
        common = (self.routes.seen & self.routes.seen[:, own, None]).T
        count = common.sum(axis=1)
        total = np.where(common, similarity, 0.0).sum(axis=1)
        scores: Vectors = np.where(count > 0, total / np.maximum(count, 1), -2.0)
        return scores


def ranking_of(names: tuple[str, ...], routing: Routing) -> Integers:
    """Return the clients in the order that decides among equals, as the global memory has it."""
    memory = GlobalMemory(ZeroShot([[1.0], [-1.0]], ("a", "b")), routing, names)
    return np.argsort(memory.state()["order"], kind="stable")


def _best(scores: Vectors, k: int) -> Integers:
    """Return what core.maths.top_k returns, for one short row."""
    return np.argsort(-scores, kind="stable")[:k]
