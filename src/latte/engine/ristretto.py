"""Ristretto over a whole federation: between two syncs the head is fixed, so a stretch of images is one product."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from ..core.maths import softmax
from ..core.types import Integers
from ..core.validate import unit_rows
from ..data.federation import Federation
from ..methods.ristretto.client import Ristretto, RistrettoParams, RunningSums, keep_plausible, open_logits
from ..methods.ristretto.server import RistrettoExchange
from ..methods.ristretto.sums import ClassSums, Head
from ..simulation.results import Outcome, confidences_of
from ..simulation.simulator import Schedule, secret_of
from ..simulation.wrapped import TracedExchange
from .api import MethodEngine, ReplayOptions
from .streams import windows

WINDOW = 256  # rounds whose syncs are planned at a time
ROOM = 2**16  # numbers in the images that are handled at a time: they stay in the cache


class Walkers:
    """All clients with all their images: what :class:`Ristretto` does, with stretches of one length together."""

    def __init__(self, federation: Federation, params: RistrettoParams) -> None:
        self.eta, self.open = params.eta, params.trust == "open"
        self.zero_shot = zero_shot = federation.embeddings.zero_shot
        n = len(federation)
        self.classes, self.dim = zero_shot.text.shape
        self.views, self.text = federation.embeddings.views, zero_shot.precise_scaled.T
        self.samples = np.concatenate([client.samples for client in federation.clients])
        self.offsets = np.cumsum([0, *map(len, federation.clients)])
        self.labels, self.confidences = np.empty(len(self.samples), np.int64), np.empty(len(self.samples))
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
        plain = unit_rows("views", self.views[self.samples[samples.ravel()], 0]).astype(np.float64)
        logits = np.stack([open_logits(self.zero_shot, row) for row in plain]) if self.open else plain @ self.text
        zero_shot, vectors = (rows.reshape(*samples.shape, -1) for rows in (logits, plain))
        learnt = np.matmul(vectors, self.weights[group].transpose(0, 2, 1)) + self.bias[group, None]
        answers = zero_shot + learnt
        if self.open:
            answers = keep_plausible(zero_shot, answers)
        self.labels[samples] = answers.argmax(axis=2)
        self.confidences[samples] = confidences_of(answers, 1 + self.eta * self.trust[group, None, None])
        if self.open:  # one image after the other, to the last bit as a client adds them up (see span_of)
            soft = softmax(zero_shot)
            for k in range(length):
                self.counts[group] += soft[:, k]
                self.totals[group] += soft[:, k, :, None] * vectors[:, k, None]
        else:
            soft = softmax(zero_shot + self.trust[group, None, None] * learnt)  # (g, k, C)
            self.counts[group] += soft.sum(axis=1)
            self.totals[group] += np.matmul(soft.transpose(0, 2, 1), vectors)
        self.handled[group] += length


class RistrettoEngine(MethodEngine[RistrettoParams]):
    """Each client has sums of its own."""

    def run(self, federation: Federation, params: RistrettoParams, options: ReplayOptions) -> Outcome:
        """Return what the readable simulator would return."""
        return run_ristretto(federation, params, options.schedule, options.rng)


def run_ristretto(
    federation: Federation,
    params: RistrettoParams,
    schedule: Schedule,
    rng: np.random.Generator,
    exchange: TracedExchange | None = None,
) -> Outcome:
    """Return what the readable simulator would return, with an exchange of one's own if there is one."""
    if exchange is None:
        exchange = RistrettoExchange(federation.embeddings.zero_shot, params)
        exchange.use_secret(secret_of(rng))
    lengths = [len(client) for client in federation.clients]
    plan = windows(lengths, schedule.for_method(Ristretto.sync), rng, WINDOW)
    parts = ((window, slice(*cut)) for window in plan for cut in pairwise(window.starts.tolist()))
    walkers, n = Walkers(federation, params), len(federation)
    downloads = np.zeros((n, n))
    names = [client.name for client in federation.clients]
    position = {name: i for i, name in enumerate(names)}
    for window, part in parts:
        members, at = window.members[part], window.at[part]
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
    outcome = Outcome.fast(walkers.labels, walkers.confidences, walkers.offsets, downloads)
    return replace(outcome, approximation=getattr(exchange, "approximation", ""))
