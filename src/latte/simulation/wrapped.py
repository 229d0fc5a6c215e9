"""Exchanges around another: what happens to messages on the way, and who downloads from whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from ..core.types import Exchange, Integers, Reals, Traced


class TracedExchange(Exchange[Any, Any], Traced, Protocol):
    """An exchange of any messages that can say whose summaries a client gets."""


class WrappedExchange:
    """Passes every call on. A subclass changes :meth:`push` or :meth:`pull_traced`; all pulls go through the latter."""

    def __init__(self, exchange: TracedExchange) -> None:
        self.exchange = exchange

    @property
    def task(self) -> str:
        """The fingerprint of the task that the exchange serves."""
        return self.exchange.task

    @property
    def clients(self) -> tuple[str, ...]:
        """The names of the clients that the exchange knows."""
        return self.exchange.clients

    def push(self, client: str, upload: Any) -> None:
        """Pass the upload on."""
        self.exchange.push(client, upload)

    def pull(self, client: str) -> Any:
        """Pass the download on."""
        return self.pull_many([client])[0]

    def pull_many(self, clients: Sequence[str]) -> Sequence[Any]:
        """Pass the downloads on."""
        return self.pull_traced(clients)[0]

    def pull_traced(self, clients: Sequence[str]) -> tuple[list[Any], NDArray[Any]]:
        """Pass the downloads on, and where they come from."""
        return self.exchange.pull_traced(clients)


class CountingExchange(WrappedExchange):
    """An exchange that counts: ``downloads`` (N, N), row i what client i received, column j from which client.

    For Latte they are numbers of prototypes. If the exchange cannot say where its answers come from, they are None.
    """

    def __init__(self, exchange: Exchange[Any, Any], clients: tuple[str, ...]) -> None:
        super().__init__(cast("TracedExchange", exchange))
        self._position = {name: i for i, name in enumerate(clients)}
        n = len(clients)
        self.downloads: Integers | Reals | None = np.zeros((n, n), np.int64) if isinstance(exchange, Traced) else None

    @property
    def approximation(self) -> str:
        """What the exchange answered approximately, in words; empty if it says nothing of that kind."""
        return str(getattr(self.exchange, "approximation", ""))

    def pull_many(self, clients: Sequence[str]) -> Sequence[Any]:
        """Pass the downloads on, and count them."""
        if self.downloads is None:
            return self.exchange.pull_many(clients)
        downloads, counts = self.pull_traced(clients)
        columns = [self._position[name] for name in self.clients]
        rows = [self._position[name] for name in clients]
        self.downloads = self.downloads.astype(np.result_type(self.downloads, counts), copy=False)
        self.downloads[np.ix_(rows, columns)] += counts
        return downloads


def share_inside(downloads: Integers | Reals, groups: Integers) -> float:
    """Return the share of downloads in per cent that stay inside a group: ``groups`` (N,) numbers that of each."""
    total = downloads.sum()
    same = groups[:, None] == groups[None, :]
    return float(100 * downloads[same].sum() / total) if total else float("nan")


@dataclass(frozen=True, slots=True)
class InsideShare:
    """How much of what clients download stays inside their domain, in per cent, and what to measure it by.

    inside: what stays
    chance: if every client drew evenly among all others
    best: if every client took all others of its own domain first, and others only if it takes more than its domain has
    """

    inside: float
    chance: float
    best: float


def inside_share(downloads: Integers | Reals, groups: Integers, slots: int | None = None) -> InsideShare:
    """Return what stays inside, with chance and ceiling; clients count by how much they download.

    ``downloads`` (N, N): entry (i, j) is what client i has of client j, 0 for i = j. ``groups`` (N,) numbers the
    domains. ``slots`` is how many others a client takes at once, k_e for Latte; None if it may take fewer.

    >>> counts = np.array([[0, 8, 2, 0], [7, 0, 0, 3], [0, 1, 0, 9], [5, 0, 5, 0]])
    >>> share = inside_share(counts, np.array([0, 0, 1, 1]), slots=1)
    >>> round(share.inside, 1), round(share.chance, 1), share.best
    (72.5, 33.3, 100.0)
    """
    others = max(len(groups) - 1, 1)
    peers = (groups[:, None] == groups[None, :]).sum(axis=1) - 1
    weights = downloads.sum(axis=1)
    total = float(weights.sum())
    if not total:
        return InsideShare(float("nan"), float("nan"), float("nan"))
    chance = float(100 * (weights * peers).sum() / others / total)
    # What a client (N,) can have of one other: it takes it at most once at a time, so its total divided by its slots.
    # If too few clients knew a class to fill the slots, more: at least the most that it did receive from one client.
    most = weights.astype(np.float64)
    if slots is not None:
        most = np.maximum(most / max(min(slots, others), 1), downloads.max(axis=1))
    best = float(100 * np.minimum(weights, peers * most).sum() / total)
    return InsideShare(share_inside(downloads, groups), chance, best)
