"""Which client helps which: how much of a client's next download comes from which other client.

It is what the exchange would answer now. Only clients on the screen are traced, a few at a time, between batches of
requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from ..coordination.hub import Hub
from ..core.contracts import Traced
from ..core.types import Reals

MOST_MAPPED = 60  # clients: more could not be distinguished on a screen
TRACED_TOGETHER = 8  # clients that are traced at a time: requests wait no longer than for a small batch
MOST_HELPERS = 20  # of one client


class HelpMap(msgspec.Struct, frozen=True):
    """``amounts`` (m, m): what client i (row) gets from client j (column); ``others`` (m,): from clients not shown.

    The unit depends on the method: prototypes for Latte, the share of the donor's evidence for Ristretto.
    """

    clients: list[str]
    amounts: list[list[float]]
    others: list[float]
    left_out: int


class Helper(msgspec.Struct, frozen=True):
    """A client that helps another, and how much."""

    client: str
    amount: float


@dataclass(frozen=True, slots=True, eq=False)
class Tracing:
    """What some ``receivers`` get from all ``donors``: ``amounts`` (m, N), 0 from themselves."""

    receivers: list[str]
    donors: tuple[str, ...]
    amounts: NDArray[np.float32]


def trace(hub: Hub, receivers: Sequence[str]) -> Tracing | None:
    """Return what ``receivers`` get; those that have left are left out. The hub's thread calls it."""
    exchange, present = hub.exchange, [name for name in receivers if name in hub.versions]
    if not isinstance(exchange, Traced) or not present:
        return None
    amounts = np.array(exchange.pull_traced(present)[1], np.float32)
    donors = exchange.clients
    place = {name: column for column, name in enumerate(donors)}
    amounts[np.arange(len(present)), [place[name] for name in present]] = 0.0
    return Tracing(present, donors, amounts)


def helpers_of(hub: Hub, client: str) -> list[Helper]:
    """Return the clients that help one client, the most helpful first. The hub's thread calls it."""
    traced = trace(hub, [client])
    return [] if traced is None else _most(traced.donors, traced.amounts[0])


def helped_by(tracings: Sequence[Tracing], client: str) -> list[Helper] | None:
    """Return the receivers that a client helps, the most helped first; None if it was not there at the tracing."""
    names: list[str] = []
    columns = []
    for tracing in tracings:
        with suppress(ValueError):
            columns.append(tracing.amounts[:, tracing.donors.index(client)])
            names += tracing.receivers
    return _most(names, np.concatenate(columns)) if columns else None


def _most(names: Sequence[str], amounts: NDArray[np.float32]) -> list[Helper]:
    best = np.argsort(-amounts, kind="stable")[:MOST_HELPERS]
    return [Helper(names[i], _short(amounts[i])) for i in best if amounts[i] > 0]


def map_of(tracings: Sequence[Tracing], total: int) -> HelpMap:
    """Return the map of the receivers of all ``tracings``, of ``total`` clients."""
    clients = [name for tracing in tracings for name in tracing.receivers]
    amounts: list[list[float]] = []
    others: list[float] = []
    for tracing in tracings:
        rows = _columns(tracing, clients)
        rest = tracing.amounts.sum(axis=1, dtype=np.float64) - rows.sum(axis=1)
        amounts += [[_short(value) for value in row] for row in rows]
        others += [_short(value) for value in rest]
    return HelpMap(clients, amounts, others, max(total - len(clients), 0))


def _columns(tracing: Tracing, clients: Sequence[str]) -> Reals:
    """Return what the receivers get from ``clients`` (m, len(clients)); 0 from those that were not there."""
    mapped = set(clients)
    place = {name: column for column, name in enumerate(tracing.donors) if name in mapped}
    columns = np.array([place.get(name, -1) for name in clients], np.int64)
    return np.where(columns >= 0, tracing.amounts[:, columns], 0.0).astype(np.float64)


def _short(value: float) -> float:
    return float(f"{value:.4g}")
