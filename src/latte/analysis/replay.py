"""Replay a federation with the readable simulator and say, image by image, who answered and whether it was right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..core.contracts import Exchange
from ..core.types import Prediction
from ..data.benchmark import Federation
from ..simulation.schedule import Schedule
from ..simulation.simulator import Client, simulate


class ReplayedImage(NamedTuple):
    """An image that was predicted: the client and its number, the place in its stream, and the prediction."""

    client: Client
    number: int
    sample: int
    prediction: Prediction
    correct: bool


def replay(
    federation: Federation,
    clients: Sequence[Client],
    exchange: Exchange[Any, Any] | None,
    schedule: Schedule | None,
    rng: np.random.Generator | None,
) -> Iterator[ReplayedImage]:
    """Walk the streams of ``clients``, those of ``federation``; each is yielded as it is right after its prediction."""
    labels = [federation.labels(client) for client in federation.clients]
    for step in simulate(clients, exchange, schedule, rng):
        correct = bool(step.prediction.label == labels[step.client][step.sample])
        yield ReplayedImage(clients[step.client], step.client, step.sample, step.prediction, correct)
