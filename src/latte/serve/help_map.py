"""Which client helps which: how much of a client's next download comes from which other client.

It is what the exchange would answer now. Only clients on the screen are traced, a few at a time, between batches of
requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from ..coordination.hub import Hub
from ..core.contracts import Traced

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


class MappedRow(msgspec.Struct, frozen=True):
    """What one client gets from the clients on the map, and from all others."""

    client: str
    amounts: list[float]
    others: float


def trace_rows(hub: Hub, receivers: Sequence[str], donors: Sequence[str]) -> list[MappedRow]:
    """Return what ``receivers`` get from ``donors``, without clients that have left. The hub's thread calls it."""
    present = [name for name in receivers if name in hub.versions]
    traced = _amounts(hub, present)
    if traced is None:
        return []
    names, amounts = traced
    shown = set(donors)
    place = {name: column for column, name in enumerate(names) if name in shown}
    columns = np.array([place.get(name, -1) for name in donors], np.int64)
    rows = np.where(columns >= 0, amounts[:, columns], 0.0)
    others = amounts.sum(axis=1) - rows.sum(axis=1)
    return [
        MappedRow(name, [_short(value) for value in row], _short(rest))
        for name, row, rest in zip(present, rows, others, strict=True)
    ]


def helpers_of(hub: Hub, client: str) -> list[Helper]:
    """Return the clients that help one client, the most helpful first. The hub's thread calls it."""
    traced = _amounts(hub, [client]) if client in hub.versions else None
    if traced is None:
        return []
    names, (amounts,) = traced
    best = np.argsort(-amounts, kind="stable")[:MOST_HELPERS]
    return [Helper(names[i], _short(amounts[i])) for i in best if amounts[i] > 0]


def assemble(rows: Sequence[MappedRow], donors: Sequence[str], total: int) -> HelpMap:
    """Return the map of clients that are still there."""
    place = {name: column for column, name in enumerate(donors)}
    columns = [place[row.client] for row in rows]
    amounts = [[row.amounts[column] for column in columns] for row in rows]
    return HelpMap([row.client for row in rows], amounts, [row.others for row in rows], max(total - len(rows), 0))


def _amounts(hub: Hub, receivers: Sequence[str]) -> tuple[tuple[str, ...], Any] | None:
    """Return everyone's names (N,) and what ``receivers`` get from them (m, N), 0 from themselves."""
    exchange = hub.exchange
    if not isinstance(exchange, Traced) or not receivers:
        return None
    amounts = np.asarray(exchange.pull_traced(receivers)[1], np.float64)
    names = exchange.clients
    place = {name: column for column, name in enumerate(names)}
    amounts[np.arange(len(receivers)), [place[name] for name in receivers]] = 0.0
    return names, amounts


def _short(value: float) -> float:
    return float(f"{value:.4g}")
