"""Ristretto over a whole federation: between two syncs the head is fixed, so a stretch of images is one product."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np

from ...core.class_sums import Head
from ...core.ristretto_exchange import RistrettoExchange
from ...core.types import Integers, Reals
from ...core.validate import unit_rows
from ...core.zero_shot import ZeroShot
from ...data.benchmark import Federation
from ...methods.ristretto import RistrettoParams, Sums, TwoLogits
from ..outcome import Outcome
from ..schedule import Schedule
from ..wrapped_exchange import TracedExchange
from .timeline import Sync, windows

WINDOW = 256  # rounds whose syncs are planned at a time


class Walker:
    """One client with all its images (n, D): what :class:`Ristretto` does with a stretch of them."""

    def __init__(self, zero_shot: ZeroShot, images: Reals) -> None:
        classes, dim = zero_shot.text.shape
        self.zero_shot, self.images = zero_shot, images
        self.labels = np.empty(len(images), np.int64)
        self.handled = 0
        self.sums = Sums(np.zeros(classes), np.zeros((classes, dim)))
        self.receive(Head.empty(zero_shot))

    def receive(self, head: Head) -> None:
        """Use another head from here on."""
        self.two = TwoLogits(self.zero_shot, head)

    def handle(self, end: int) -> None:
        """Predict, and learn from, all images before ``end``."""
        stretch = slice(self.handled, end)
        vectors, matrix = self.images[stretch], self.two.matrix
        if not len(vectors):
            return
        logits = vectors @ matrix[:, :-1].T + matrix[:, -1]
        self.labels[stretch] = logits[:, self.zero_shot.classes :].argmax(axis=1)
        self.sums = self.sums.plus(self.two.labels(logits), vectors)
        self.handled = end


def run_ristretto(
    federation: Federation,
    params: RistrettoParams,
    schedule: Schedule,
    rng: np.random.Generator,
    exchange: TracedExchange | None = None,
) -> Outcome:
    """Return what the readable simulator would return."""
    lengths = [len(client) for client in federation.clients]
    plan = windows(lengths, schedule, rng, WINDOW)
    syncs = (sync for window in plan for sync in _syncs(window.members, window.at, window.starts))
    if exchange is None:
        exchange = RistrettoExchange(federation.embeddings.zero_shot, params)
    return walk(federation, exchange, syncs)


def _syncs(members: Integers, at: Integers, starts: Integers) -> Iterator[Sync]:
    for first, last in pairwise(starts.tolist()):
        yield members[first:last], at[first:last]


def walk(federation: Federation, exchange: TracedExchange, syncs: Iterable[Sync]) -> Outcome:
    """Walk a federation with these ``syncs``: who takes part, and how many images each of them has handled by then."""
    zero_shot, n = federation.embeddings.zero_shot, len(federation)
    walkers = [Walker(zero_shot, _images(federation, i)) for i in range(n)]
    downloads = np.zeros((n, n))
    names = [client.name for client in federation.clients]
    position = {name: i for i, name in enumerate(names)}
    for members, at in syncs:
        ready = members[at > 0]  # a client without an image has nothing to share yet
        for i, end in zip(members, at, strict=True):
            walkers[i].handle(int(end))
        for i in ready:
            exchange.push(names[i], walkers[i].sums.upload(exchange.task))
        heads, routes = exchange.pull_traced([names[i] for i in ready])
        columns = np.array([position[name] for name in exchange.clients], np.int64)
        downloads[np.ix_(ready, columns)] += routes
        for i, head in zip(ready, heads, strict=True):
            walkers[i].receive(head)
    for walker in walkers:
        walker.handle(len(walker.images))
    return Outcome(tuple(walker.labels for walker in walkers), downloads, "fast")


def _images(federation: Federation, client: int) -> Reals:
    """Return the plain views of a client's images (n, D) as unit rows."""
    rows = federation.stream(federation.clients[client])[:, 0]
    return unit_rows("views", rows).astype(np.float64) if len(rows) else rows.astype(np.float64)
