"""An exchange around another: what happens to messages on the way is said by a subclass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from numpy.typing import NDArray


class TracedExchange(Protocol):
    """An exchange of any messages that can say whose summaries a client gets."""

    @property
    def task(self) -> str:
        """The fingerprint of the task that the exchange serves."""

    @property
    def clients(self) -> tuple[str, ...]:
        """The names of the clients, in the order of the columns of what :meth:`pull_traced` returns."""

    def push(self, client: str, upload: Any) -> None:
        """Store the latest summary of ``client``."""

    def pull_traced(self, clients: Sequence[str]) -> tuple[list[Any], NDArray[Any]]:
        """Return the downloads, and how much of each comes from which client: (len(clients), N)."""


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

    def pull_many(self, clients: Sequence[str]) -> list[Any]:
        """Pass the downloads on."""
        return self.pull_traced(clients)[0]

    def pull_traced(self, clients: Sequence[str]) -> tuple[list[Any], NDArray[Any]]:
        """Pass the downloads on, and where they come from."""
        return self.exchange.pull_traced(clients)
