"""The global memory of the engine: similarities are kept, and only what changed is computed anew."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import NamedTuple

import numpy as np

from ...core.global_memory import GlobalMemory, Routing
from ...core.maths import top_k
from ...core.types import Integers, Mask, Vectors
from ...core.validate import unit_rows
from .state import CLIENT, NEAR_DOT, NONE, RELEASED, Counts, Given, Routes, Rules

FEW = 6  # from this many changed prototypes of a class on, a matrix product beats the plain loop
EMPTY = {"client": CLIENT, "none": NONE, "released": RELEASED}


class Uploads(NamedTuple):
    """What changed in one sync: whose prototype of which class, its vector, its item number, whether it exists."""

    client: Integers
    label: Integers
    vectors: Vectors
    items: Integers
    seen: Mask


class Server:
    """Keeps ``vectors`` (C, N, D) as the global memory stores them, and what follows from them."""

    def __init__(self, names: tuple[str, ...], classes: int, dim: int, routing: Routing, loops: ModuleType) -> None:
        n = len(names)
        slots = min(routing.external_slots, n - 1)
        self.loops = loops
        self.rules = Rules(slots, routing.drop_first_rank, EMPTY[routing.empty_query], NEAR_DOT)
        self.vectors: Vectors = np.zeros((classes, n, dim), np.float32)
        self.routes = Routes(
            similarity=np.zeros((classes, n, n), np.float32),
            seen=np.zeros((classes, n), np.bool_),
            common=np.zeros((n, n), np.int64),
            current=np.full((classes, n), -1, np.int64),
            ranking=ranking_of(names, routing),
            changed=np.full(classes, -1, np.int64),
            pulled=np.full(n, -1, np.int64),
            external=np.full((n, classes, slots), -1, np.int64),
            donors=np.full((n, classes, slots), -1, np.int64),
        )
        shape = (n, n), (n, classes), (n,)
        self.counts = Counts(*(np.zeros(one, np.int64) for one in shape))
        self.now = 0

    def push(self, uploads: Uploads) -> None:
        """Store what changed and compare it with everyone's."""
        self.now += 1
        for label, rows in _by_class(uploads.label):
            client, seen = uploads.client[rows], uploads.seen[rows]
            vectors = self.vectors[label]
            vectors[client] = 0
            if seen.any():
                vectors[client[seen]] = unit_rows("prototypes", uploads.vectors[rows][seen])
            self.routes.current[label, client] = np.where(seen, uploads.items[rows], -1)
            self._note_seen(label, client, seen)
            self._compare(label, client)
            self.routes.changed[label] = self.now

    def _compare(self, label: int, client: Integers) -> None:
        similarity, vectors = self.routes.similarity[label], self.vectors[label]
        if len(client) < FEW and self.loops.COMPILED:
            self.loops.compare(vectors, client, similarity)
            return
        products = vectors[client] @ vectors.T
        similarity[client] = products
        similarity[:, client] = products.T

    def _note_seen(self, label: int, client: Integers, seen: Mask) -> None:
        routes = self.routes
        for i in client[routes.seen[label, client] != seen]:
            others = routes.seen[label].copy()
            others[i] = True
            change = -1 if routes.seen[label, i] else 1
            routes.common[i, others] += change
            routes.common[others, i] += change
            routes.common[i, i] -= change
            routes.seen[label, i] = change > 0

    def pull(self, members: Integers) -> Given:
        """Return what is different now for ``members`` from what they were given before."""
        given: Given = self.loops.pull(self.routes, self.rules, self.counts, members, self.now)
        for row in np.flatnonzero(given.doubtful):
            client, label = int(given.client[row]), int(given.label[row])
            self.loops.accept(self.routes, self.counts, client, label, self._settled(client, label))
            given.items[row] = self.routes.external[client, label]
        return given

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
            rows = top_k(self._scores(own, label)[ranking], rules.slots + 1)[1:]
            return np.where(seen[rows], ranking[rows], -1)
        scores = self._scores(own, label) if routes.seen[label, own] else self._mean_scores(own)
        scores = np.where(seen & (ranking != own), scores[ranking], -np.inf)
        rows = top_k(scores, rules.slots)
        return np.where(np.isfinite(scores[rows]), ranking[rows], -1)

    def _scores(self, own: int, label: int) -> Vectors:
        vectors = self.vectors[label : label + 1]
        scores: Vectors = np.matmul(vectors, vectors[:, own, :, None])[0, :, 0].astype(np.float64)
        return scores

    def _mean_scores(self, own: int) -> Vectors:
        similarity = np.matmul(self.vectors, self.vectors[:, own, :, None])[:, :, 0].T.astype(np.float64)
        common = (self.routes.seen & self.routes.seen[:, own, None]).T
        count = common.sum(axis=1)
        total = np.where(common, similarity, 0.0).sum(axis=1)
        scores: Vectors = np.where(count > 0, total / np.maximum(count, 1), -2.0)
        return scores


def ranking_of(names: tuple[str, ...], routing: Routing) -> Integers:
    """Return the clients in the order that decides among equals, as the global memory has it."""
    memory = GlobalMemory(2, 1, routing, names)
    return np.argsort(memory.state()["order"], kind="stable")


def _by_class(label: Integers) -> Iterator[tuple[int, Integers]]:
    """Yield every class with the positions of its uploads."""
    order = np.argsort(label, kind="stable")
    cuts = np.flatnonzero(np.diff(label[order])) + 1
    for rows in np.split(order, cuts):
        if len(rows):
            yield int(label[rows[0]]), rows
