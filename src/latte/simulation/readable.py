"""Run one method on one federation with the readable simulator."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..core.contracts import Secretive
from ..data.benchmark import Embeddings, Federation
from ..errors import refuse
from ..methods import create_exchange, create_federation, describe
from ..methods.parameters import ParameterChoice
from .collaboration import CountingExchange
from .outcome import Outcome
from .schedule import Schedule, secret_of
from .simulator import Client, simulate


def run_readable(
    federation: Federation,
    name: str,
    params: ParameterChoice = None,
    schedule: Schedule | None = None,
    rng: np.random.Generator | None = None,
    *,
    text_encoder: Any = None,
    calibration: bool = True,
) -> Outcome:
    """Walk the federation sample by sample.

    ``text_encoder`` is for the methods that tune a prompt. Without ``calibration``, the outcome has no confidences.

    >>> from latte.data.bundled import bundled
    >>> federation = bundled()
    >>> round(run_readable(federation, "clip").result(federation, "clip", {}, "default", 0).micro, 2)
    35.57
    """
    check_data_views(name, federation.embeddings)
    clients, exchange = set_up(federation, name, params, text_encoder, rng)
    labels = [np.full(len(client), -1, np.int64) for client in federation.clients]
    confidences = [np.zeros(len(client)) for client in federation.clients]
    timing = (schedule or Schedule()).for_method(describe(name).sync)
    for step in simulate(clients, exchange, timing, rng):
        labels[step.client][step.sample] = step.prediction.label
        if calibration:
            confidences[step.client][step.sample] = step.prediction.probabilities[step.prediction.label]
    downloads = None if exchange is None else exchange.downloads
    outcome = Outcome(tuple(labels), downloads, confidences=tuple(confidences) if calibration else None)
    return outcome if exchange is None else replace(outcome, approximation=exchange.approximation)


def check_data_views(name: str, embeddings: Embeddings) -> None:
    """Refuse data with one view for a method that looks at several: it would only repeat zero-shot."""
    if describe(name).uses_views and embeddings.views.shape[1] < 2:
        want = f"several views of each image for {name} (latte embed --views)"
        raise refuse(f"benchmark {embeddings.name}", "one view of each image", want)


def set_up(
    federation: Federation,
    name: str,
    params: ParameterChoice = None,
    text_encoder: Any = None,
    rng: np.random.Generator | None = None,
) -> tuple[list[Client], CountingExchange | None]:
    """Return the clients of a federation, each with its method and stream, and the exchange that they need.

    What an exchange draws follows from the seed of ``rng``.
    """
    zero_shot = federation.embeddings.zero_shot
    methods = create_federation(name, zero_shot, params, clients=len(federation), text_encoder=text_encoder)
    pairs = zip(federation.clients, methods, strict=True)
    clients = [Client(stream.name, method, federation.stream(stream)) for stream, method in pairs]
    return clients, _exchange(federation, name, params, rng)


def _exchange(
    federation: Federation, name: str, params: ParameterChoice, rng: np.random.Generator | None
) -> CountingExchange | None:
    """Return the exchange that the clients of a method need, if they collaborate."""
    if not describe(name).collaborative:
        return None
    names = tuple(client.name for client in federation.clients)
    exchange = create_exchange(name, federation.embeddings.zero_shot, params, clients=names)
    if isinstance(exchange, Secretive):
        exchange.use_secret(secret_of(rng))
    return CountingExchange(exchange, names)
