"""Whose summaries the clients of a federation download."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.types import Exchange, Integers, Reals, Traced


class CountingExchange:
    """An exchange that counts: ``downloads`` (N, N), row i what client i received, column j from which client.

    Latte's are numbers of prototypes. Of an exchange that cannot say where its answers come from, they are None.
    """

    def __init__(self, exchange: Exchange[Any, Any], clients: tuple[str, ...]) -> None:
        self.exchange = exchange
        self._position = {name: i for i, name in enumerate(clients)}
        n = len(clients)
        self.downloads: Integers | Reals | None = np.zeros((n, n), np.int64) if isinstance(exchange, Traced) else None

    @property
    def task(self) -> str:
        """The fingerprint of the task that the exchange serves."""
        return self.exchange.task

    def push(self, client: str, upload: Any) -> None:
        """Pass the upload on."""
        self.exchange.push(client, upload)

    def pull(self, client: str) -> Any:
        """Pass the download on, and count it."""
        return self.pull_many([client])[0]

    def pull_many(self, clients: Sequence[str]) -> Sequence[Any]:
        """Pass the downloads on, and count them."""
        if self.downloads is None or not isinstance(self.exchange, Traced):
            return self.exchange.pull_many(clients)
        downloads, counts = self.exchange.pull_traced(clients)
        columns = [self._position[name] for name in self.exchange.clients]
        rows = [self._position[name] for name in clients]
        self.downloads = self.downloads.astype(np.result_type(self.downloads, counts), copy=False)
        self.downloads[np.ix_(rows, columns)] += counts
        return downloads


def share_inside(downloads: Integers | Reals, groups: Integers) -> float:
    """Return the share of downloads in per cent that stay inside a group: ``groups`` (N,) numbers that of each."""
    total = downloads.sum()
    same = groups[:, None] == groups[None, :]
    return float(100 * downloads[same].sum() / total) if total else float("nan")
