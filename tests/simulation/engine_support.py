"""Federations to run, and the comparison of the engine with the readable simulator."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from latte import Latte
from latte.core.zero_shot import ZeroShot
from latte.data.federation import ClientStream, Embeddings, Federation
from latte.engine import run_fast
from latte.methods import create_federation
from latte.simulation.simulator import Client, Schedule, simulate
from latte.simulation.wrapped import CountingExchange

TIE = 1e-5  # relative distance of two logits below which either may win


def unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)


def made_up(lengths, C: int, D: int, seed: int = 0, spread: float = 0.6, absent: int = 0) -> Federation:
    """Return clients of two domains with streams of ``lengths``; the last ``absent`` classes never occur."""
    rng = np.random.default_rng(seed)
    text = unit(rng.normal(size=D) + rng.normal(size=(C, D)))
    n = sum(lengths)
    labels = rng.integers(0, C - absent, n)
    domain = np.repeat(np.arange(len(lengths)) % 2, lengths)
    shift = unit(rng.normal(size=(2, D)))
    rows = unit(text[labels] + 0.5 * shift[domain] + spread * unit(rng.normal(size=(n, D))) * np.sqrt(D) / 3)
    zero_shot = ZeroShot(text, tuple(f"class {y}" for y in range(C)))
    embeddings = Embeddings("made up", zero_shot, rows[:, None], labels, domain, ("a", "b"))
    parts = np.split(np.arange(n), np.cumsum(lengths)[:-1])
    return Federation(embeddings, tuple(ClientStream(f"client {i}", i % 2, p) for i, p in enumerate(parts)))


def rescaled(federation: Federation, scale: float) -> Federation:
    """Return the same federation under another logit scale."""
    embeddings = federation.embeddings
    zero_shot = replace(embeddings.zero_shot, scale=scale)
    return replace(federation, embeddings=replace(embeddings, zero_shot=zero_shot))


@dataclass
class Comparison:
    """How many samples differ (all of them float ties), and whether the downloads are the same."""

    ties: int
    samples: int
    downloads_equal: bool


def compare(federation: Federation, name: str, params=None, schedule=None, seed=7) -> Comparison:
    """Run both; fail on a difference that is no float tie."""
    schedule = schedule or Schedule()
    logits, downloads = readable(federation, name, params, schedule, np.random.default_rng(seed))
    fast = run_fast(federation, name, params, schedule, np.random.default_rng(seed))
    ties = sum(count_ties(one, labels) for one, labels in zip(logits, fast.labels, strict=True))
    same = downloads is None or bool((downloads == fast.downloads).all())
    return Comparison(ties, federation.samples, same)


def readable(federation, name, params, schedule, rng):
    """Return the logits (n, C) of every client from the readable simulator, and the downloads."""
    zero_shot = federation.embeddings.zero_shot
    methods = create_federation(name, zero_shot, params, clients=len(federation))
    exchange = None
    if name == "latte":
        names = tuple(client.name for client in federation.clients)
        exchange = CountingExchange(Latte.exchange_for(zero_shot, methods[0].params, names), names)
    clients = [
        Client(client.name, method, federation.stream(client))
        for client, method in zip(federation.clients, methods, strict=True)
    ]
    logits = [np.full((len(client), zero_shot.classes), np.nan) for client in federation.clients]
    for step in simulate(clients, exchange, schedule, rng):
        logits[step.client][step.sample] = step.prediction.scores
    return logits, None if exchange is None else exchange.downloads


def count_ties(logits: np.ndarray, labels: np.ndarray) -> int:
    """Return how many labels are not the argmax of the logits; each must be within rounding of it."""
    if not len(labels):
        return 0
    best = logits.argmax(axis=1)
    different = np.flatnonzero(best != labels)
    for k in different:
        top, got = logits[k, best[k]], logits[k, labels[k]]
        assert top - got <= TIE * max(abs(top), 1e-3), (k, top, got)
    return len(different)
