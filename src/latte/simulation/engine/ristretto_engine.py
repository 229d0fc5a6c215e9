"""Ristretto over a whole federation: between two syncs the head is fixed, so a stretch of images is one product."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np

from ...core.class_sums import ClassSums, Head
from ...core.maths import softmax
from ...core.ristretto_exchange import RistrettoExchange
from ...core.types import Integers, Reals
from ...core.validate import unit_rows
from ...data.benchmark import Federation
from ...methods.ristretto import Ristretto, RistrettoParams, RunningSums
from ..outcome import Outcome
from ..schedule import Schedule
from ..wrapped_exchange import TracedExchange
from .timeline import Sync, windows

WINDOW = 256  # rounds whose syncs are planned at a time
ROOM = 2**22  # numbers in the images that are handled at a time


class Walkers:
    """All clients with all their images: what :class:`Ristretto` does, with stretches of one length together."""

    def __init__(self, federation: Federation) -> None:
        zero_shot, n = federation.embeddings.zero_shot, len(federation)
        self.classes, self.dim = zero_shot.text.shape
        self.images = np.concatenate([_images(federation, i) for i in range(n)])
        self.zero_shot = self.images @ (zero_shot.scale * zero_shot.precise_text).T
        self.offsets = np.cumsum([0, *map(len, federation.clients)])
        self.labels = np.empty(len(self.images), np.int64)
        self.handled = np.zeros(n, np.int64)
        self.counts, self.totals = np.zeros((n, self.classes)), np.zeros((n, self.classes, self.dim))
        self.weights, self.bias, self.trust = np.zeros_like(self.totals), np.zeros_like(self.counts), np.zeros(n)

    def receive(self, client: int, head: Head) -> None:
        """Let a client use another head from here on."""
        self.weights[client], self.bias[client], self.trust[client] = head.weights, head.bias, head.trust

    def upload(self, client: int, task: str) -> ClassSums:
        """Return what a client uploads."""
        return RunningSums(self.counts[client], self.totals[client]).upload(task)

    def handle(self, clients: Integers, ends: Integers) -> None:
        """Let clients predict, and learn from, all their images before ``ends``."""
        lengths = ends - self.handled[clients]
        for length in np.unique(lengths[lengths > 0]).tolist():
            group = clients[lengths == length]
            size = max(1, ROOM // (length * self.dim))
            for start in range(0, len(group), size):
                self._stretch(group[start : start + size], length)

    def _stretch(self, group: Integers, length: int) -> None:
        samples = (self.offsets[group] + self.handled[group])[:, None] + np.arange(length)  # (g, k)
        vectors, zero_shot = self.images[samples], self.zero_shot[samples]
        learnt = np.matmul(vectors, self.weights[group].transpose(0, 2, 1)) + self.bias[group, None]
        self.labels[samples] = (zero_shot + learnt).argmax(axis=2)
        soft = softmax(zero_shot + self.trust[group, None, None] * learnt)  # (g, k, C)
        self.counts[group] += soft.sum(axis=1)
        self.totals[group] += np.matmul(soft.transpose(0, 2, 1), vectors)
        self.handled[group] += length


def run_ristretto(
    federation: Federation,
    params: RistrettoParams,
    schedule: Schedule,
    rng: np.random.Generator,
    exchange: TracedExchange | None = None,
) -> Outcome:
    """Return what the readable simulator would return."""
    lengths = [len(client) for client in federation.clients]
    plan = windows(lengths, schedule.for_method(Ristretto.sync), rng, WINDOW)
    syncs = (sync for window in plan for sync in _syncs(window.members, window.at, window.starts))
    if exchange is None:
        exchange = RistrettoExchange(federation.embeddings.zero_shot, params)
    return walk(federation, exchange, syncs)


def _syncs(members: Integers, at: Integers, starts: Integers) -> Iterator[Sync]:
    for first, last in pairwise(starts.tolist()):
        yield members[first:last], at[first:last]


def walk(federation: Federation, exchange: TracedExchange, syncs: Iterable[Sync]) -> Outcome:
    """Walk a federation with these ``syncs``: who takes part, and how many images each of them has handled by then."""
    walkers, n = Walkers(federation), len(federation)
    downloads = np.zeros((n, n))
    names = [client.name for client in federation.clients]
    position = {name: i for i, name in enumerate(names)}
    for members, at in syncs:
        walkers.handle(members, at)
        ready = members[at > 0]  # a client without an image has nothing to share yet
        for i in ready:
            exchange.push(names[i], walkers.upload(i, exchange.task))
        heads, routes = exchange.pull_traced([names[i] for i in ready])
        columns = np.array([position[name] for name in exchange.clients], np.int64)
        downloads[np.ix_(ready, columns)] += routes
        for i, head in zip(ready, heads, strict=True):
            walkers.receive(i, head)
    walkers.handle(np.arange(n), np.diff(walkers.offsets))
    return Outcome(tuple(np.split(walkers.labels, walkers.offsets[1:-1])), downloads, "fast")


def _images(federation: Federation, client: int) -> Reals:
    """Return the plain views of a client's images (n, D) as unit rows."""
    rows = federation.stream(federation.clients[client])[:, 0]
    return unit_rows("views", rows).astype(np.float64) if len(rows) else rows.astype(np.float64)
