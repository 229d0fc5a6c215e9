"""Hostile clients: their uploads are altered before the exchange sees them. Every altered upload is well formed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import singledispatchmethod
from typing import Any

import numpy as np

from ..core.class_sums import ClassSums
from ..core.types import Prototypes, Reals
from ..core.validate import choice
from ..errors import refuse
from .wrapped_exchange import TracedExchange, WrappedExchange

INFLATION = 100.0
ATTACKS_ON_COUNTS = ("inflated", "random-inflated", "flipped-inflated")  # for uploads that have counts
ATTACKS = ("random", "flipped", "colluding", "scatter", *ATTACKS_ON_COUNTS)


class HostileExchange(WrappedExchange):
    """Alters the uploads of the ``hostile`` clients, all with one ``attack``.

    - ``random``: every class mean or prototype has a new random direction in every upload.
    - ``flipped``: what was learnt about a class is sent as that of the next class.
    - ``colluding``: all send the same random directions, which are drawn once.
    - ``scatter``: all send one direction, drawn once, with alternating signs: the spread that a covariance measures
      is then all along it.
    - ``inflated``: counts are 100 times what they are, means are true. ``random-inflated`` and ``flipped-inflated``:
      that, and false means.

    Lengths of class means stay as they are (but with ``scatter``, where they are 1).
    """

    def __init__(
        self, exchange: TracedExchange, hostile: Collection[str], attack: str, rng: np.random.Generator
    ) -> None:
        super().__init__(exchange)
        choice("attack", attack, ATTACKS)
        self.hostile, self.attack, self.rng = frozenset(hostile), attack, rng
        self._lie = attack.removesuffix("inflated").removesuffix("-")  # about directions
        self._agreed: Reals | None = None

    def push(self, client: str, upload: Any) -> None:
        """Pass the upload on, altered if the client is hostile."""
        super().push(client, self.alter(upload) if client in self.hostile else upload)

    @singledispatchmethod
    def alter(self, upload: Any) -> Any:
        """Return what a hostile client sends instead of ``upload``."""
        raise refuse("upload", type(upload).__name__, "ClassSums or Prototypes")

    @alter.register
    def _(self, upload: ClassSums) -> ClassSums:
        counts, means = upload.counts, upload.means
        if self._lie == "flipped":
            counts, means = np.roll(counts, 1), np.roll(means, 1, axis=0)
        elif self._lie:
            lengths = 1.0 if self._lie == "scatter" else np.linalg.norm(means, axis=1, keepdims=True)
            means = lengths * self._directions(means.shape)
        factor = INFLATION if self.attack in ATTACKS_ON_COUNTS else 1.0
        return replace(upload, counts=factor * counts, means=means)

    @alter.register
    def _(self, upload: Prototypes) -> Prototypes:
        if self.attack in ATTACKS_ON_COUNTS:
            raise refuse("attack", repr(self.attack), "another one: prototypes have no counts")
        if self._lie == "flipped":
            return replace(upload, vectors=np.roll(upload.vectors, 1, axis=0), seen=np.roll(upload.seen, 1))
        vectors = self._directions(upload.vectors.shape).astype(np.float32)
        return replace(upload, vectors=vectors, seen=np.ones_like(upload.seen))

    def _directions(self, shape: tuple[int, ...]) -> Reals:
        """Return unit rows (C, D): new rows, or the rows that all hostile clients agreed on."""
        if self._lie == "random":
            return _unit(self.rng.normal(size=shape))
        if self._agreed is None:
            rows = self.rng.normal(size=shape)
            signs = np.where(np.arange(shape[0]) % 2, -1.0, 1.0)
            self._agreed = _unit(signs[:, None] * rows[0] if self._lie == "scatter" else rows)
        return self._agreed


def choose_hostile(clients: Sequence[str], share: float, rng: np.random.Generator) -> frozenset[str]:
    """Return the names of a random ``share`` of the clients.

    >>> len(choose_hostile([str(i) for i in range(40)], 0.3, np.random.default_rng(0)))
    12
    """
    if not 0 <= share < 1:
        raise refuse("share", share, "a share in [0, 1)")
    chosen = rng.choice(len(clients), round(share * len(clients)), replace=False)
    return frozenset(clients[i] for i in chosen)


def _unit(rows: Reals) -> Reals:
    scaled: Reals = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return scaled
