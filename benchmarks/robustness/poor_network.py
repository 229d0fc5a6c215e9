"""Poor networks: syncs that clients miss, and messages in eight bits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latte.core.types import External, Prototypes, Reals
from latte.errors import refuse
from latte.methods.ristretto.sums import ClassSums, Head
from latte.simulation.wrapped import TracedExchange, WrappedExchange

LEVELS = 127  # of a signed byte on each side of zero


class LossyExchange(WrappedExchange):
    """Every client misses a share ``missing`` of its syncs, at random: then nothing goes up, and nothing comes down.

    A client that missed a sync continues with its last download; before its first, with what ``nothing`` returns.
    """

    def __init__(
        self, exchange: TracedExchange, missing: float, nothing: Callable[[], Any], rng: np.random.Generator
    ) -> None:
        super().__init__(exchange)
        if not 0 <= missing < 1:
            raise refuse("missing", missing, "a share in [0, 1)")
        self.missing, self.nothing, self.rng = missing, nothing, rng
        self._last: dict[str, Any] = {}
        self._away: set[str] = set()

    def push(self, client: str, upload: Any) -> None:
        """Pass the upload on, unless the client misses this sync."""
        if self.rng.random() < self.missing:
            self._away.add(client)
            return
        self._away.discard(client)
        super().push(client, upload)

    def pull_traced(self, clients: Sequence[str]) -> tuple[list[Any], NDArray[Any]]:
        """Return new downloads for the clients that take part, and the last downloads for the others."""
        here = [name for name in clients if name not in self._away]
        downloads, routes = super().pull_traced(here)
        self._last.update(zip(here, downloads, strict=True))
        everyone = np.zeros((len(clients), routes.shape[1]), routes.dtype)
        everyone[[name not in self._away for name in clients]] = routes
        return [self._last[name] if name in self._last else self.nothing() for name in clients], everyone


class QuantisedExchange(WrappedExchange):
    """Carries the matrices of messages in eight bits per number, and a scale per row; vectors stay as they are."""

    def push(self, client: str, upload: Any) -> None:
        """Pass the upload on as it arrives."""
        super().push(client, quantised(upload))

    def pull_traced(self, clients: Sequence[str]) -> tuple[list[Any], NDArray[Any]]:
        """Pass the downloads on as they arrive."""
        downloads, routes = super().pull_traced(clients)
        return [quantised(download) for download in downloads], routes


def in_eight_bits(rows: NDArray[Any]) -> Reals:
    """Return rows (..., D) after a way through signed bytes with one scale per row.

    >>> in_eight_bits(np.array([[127.0, 0.4, -63.6]])).tolist()
    [[127.0, 0.0, -64.0]]
    """
    scale = np.abs(rows).max(axis=-1, keepdims=True).astype(np.float64) / LEVELS
    safe = np.where(scale > 0, scale, 1.0)
    restored: Reals = np.rint(rows / safe) * safe
    return restored


@singledispatch
def quantised(message: Any) -> Any:
    """Return a message as it is after a way through signed bytes."""
    raise refuse("message", type(message).__name__, "one of Latte or Ristretto")


@quantised.register
def _(message: ClassSums) -> ClassSums:
    means = in_eight_bits(message.means)
    lengths = np.linalg.norm(means, axis=1, keepdims=True)
    return replace(message, means=means / np.maximum(lengths, 1.0))  # no mean of unit vectors is longer than 1


@quantised.register
def _(message: Head) -> Head:
    return replace(message, weights=in_eight_bits(message.weights))


@quantised.register(Prototypes)
@quantised.register(External)
def _(message: Any) -> Any:
    rows = in_eight_bits(message.vectors)
    lengths = np.linalg.norm(rows, axis=-1, keepdims=True)
    return replace(message, vectors=(rows / np.where(lengths > 0, lengths, 1.0)).astype(np.float32))
