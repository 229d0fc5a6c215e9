"""The readable simulator: it walks streams with any Method and any Exchange, one sample at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.contracts import Collaborative, Exchange, Method
from ..core.predict_many import needed_views
from ..core.sync import sync
from ..core.types import Prediction
from ..errors import refuse
from .schedule import Schedule, rounds


@dataclass(frozen=True, slots=True)
class Step:
    """One client handled one sample in a round; ``sample`` is its position in the client's stream."""

    round: int
    client: int
    sample: int
    prediction: Prediction


@dataclass(frozen=True, slots=True, repr=False)
class Client:
    """A name, a method of its own, and the stream that it sees: (n, V, D)."""

    name: str
    method: Method
    stream: Any

    def __repr__(self) -> str:
        return f"Client({self.name!r}, {self.method!r}, {len(self.stream)} images)"


def simulate(
    clients: Sequence[Client],
    exchange: Exchange[Any, Any] | None = None,
    schedule: Schedule | None = None,
    rng: np.random.Generator | None = None,
) -> Iterator[Step]:
    """Yield one :class:`Step` per sample.

    Each round, every client of the cohort handles its next sample, in a fixed order; then those whose turn it is
    sync. Without an ``exchange``, or with methods that do not collaborate, nobody syncs. ``rng`` draws the cohorts
    and is needed only when fewer than all participate.
    """
    schedule = (schedule or Schedule()).for_method("every")
    _check(clients, schedule, rng)
    handled = [0] * len(clients)
    lengths = [len(client.stream) for client in clients]
    for turn in rounds(lengths, schedule, rng or np.random.default_rng(0)):
        for i in turn.active:
            views = needed_views(clients[i].method, clients[i].stream[handled[i]])
            prediction = clients[i].method.predict(views)
            yield Step(turn.number, i, handled[i], prediction)
            handled[i] += 1
            if not schedule.barrier and handled[i] % schedule.period_of(i) == 0:
                _sync([clients[i]], exchange)
        if turn.members:
            _sync([clients[i] for i in turn.members], exchange)


def _sync(clients: Sequence[Client], exchange: Exchange[Any, Any] | None) -> None:
    if exchange is not None:
        sync([(c.name, c.method) for c in clients if isinstance(c.method, Collaborative)], exchange)


def _check(clients: Sequence[Client], schedule: Schedule, rng: np.random.Generator | None) -> None:
    if not clients:
        raise refuse("clients", "none", "at least one")
    if len({client.name for client in clients}) < len(clients):
        raise refuse("clients", "the same name twice", "a name of its own for every client")
    if schedule.participation < 1 and rng is None:
        raise refuse("rng", None, "a numpy Generator: participation below 1 draws cohorts")
