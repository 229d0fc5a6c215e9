"""Run one method on one federation with the readable simulator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..data.benchmark import Federation
from ..methods import create_exchange, create_federation, describe
from .collaboration import CountingExchange
from .outcome import Outcome
from .schedule import Schedule
from .simulator import Client, simulate


def run_readable(
    federation: Federation,
    method: str,
    params: Any = None,
    schedule: Schedule | None = None,
    rng: np.random.Generator | None = None,
    progress: Callable[[int], object] = lambda samples: None,
    text_encoder: Any = None,
    calibration: bool = False,
) -> Outcome:
    """Walk the federation sample by sample; ``progress(1)`` is called after each.

    ``text_encoder`` is for the methods that tune a prompt. With ``calibration``, the outcome has confidences too.

    >>> from latte.data.bundled import bundled
    >>> federation = bundled()
    >>> round(run_readable(federation, "clip").result(federation, "clip", {}, "default", 0).micro, 2)
    35.57
    """
    clients, exchange = set_up(federation, method, params, text_encoder)
    labels = [np.full(len(client), -1, np.int64) for client in federation.clients]
    confidences = [np.zeros(len(client)) for client in federation.clients]
    timing = (schedule or Schedule()).for_method(describe(method).sync)
    for step in simulate(clients, exchange, timing, rng):
        labels[step.client][step.sample] = step.prediction.label
        if calibration:
            confidences[step.client][step.sample] = step.prediction.probabilities[step.prediction.label]
        progress(1)
    downloads = None if exchange is None else exchange.downloads
    return Outcome(tuple(labels), downloads, confidences=tuple(confidences) if calibration else None)


def set_up(
    federation: Federation, method: str, params: Any = None, text_encoder: Any = None
) -> tuple[list[Client], CountingExchange | None]:
    """Return the clients of a federation, each with its method and stream, and the exchange that they need."""
    zero_shot = federation.embeddings.zero_shot
    methods = create_federation(method, zero_shot, len(federation), params, text_encoder=text_encoder)
    pairs = zip(federation.clients, methods, strict=True)
    clients = [Client(client.name, one, federation.stream(client)) for client, one in pairs]
    return clients, _exchange(federation, method, params)


def _exchange(federation: Federation, method: str, params: Any) -> CountingExchange | None:
    """Return the exchange that the clients of a method need, if they collaborate."""
    if not describe(method).collaborative:
        return None
    names = tuple(client.name for client in federation.clients)
    exchange = create_exchange(method, federation.embeddings.zero_shot, params, clients=names)
    return CountingExchange(exchange, names)
