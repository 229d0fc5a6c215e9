"""Servers that check what they get or store everything, and clients that lie to them: for hostile_checks.py."""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hostile import MethodSpec
from latte.core.global_memory import GlobalMemory, PreparedRow
from latte.core.maths import entropy
from latte.core.types import Prototypes
from latte.core.zero_shot import ZeroShot
from latte.simulation.hostile import HostileExchange
from latte.simulation.wrapped_exchange import TracedExchange, WrappedExchange

SINGLE = 2.0**-24  # how far single precision can have moved an upload on its way
LENGTH = 100.0  # of the class means in the attack "long"
STEP = 0.02  # by which a careful liar moves a prototype towards the text of its class, until the check lets it pass
CERTAIN = ", entropy 0"
LIES = ("random", "flipped", "colluding")


@dataclass(frozen=True)
class Case:
    method: MethodSpec
    attack: str
    checks: bool
    share: float
    seed: int


# --- liars ----------------------------------------------------------------------------------------------------


class Liars(HostileExchange):
    """The attacks of benchmarks/hostile.py, and two more.

    ``careful``: flipped prototypes, moved towards the text of the class that they are sent as until the check passes.
    ``long``: flipped class means, a hundred times as long as any mean of unit vectors.
    """

    def __init__(self, exchange: TracedExchange, hostile: frozenset[str], case: Case, zero_shot: ZeroShot) -> None:
        self.own, self.zero_shot = case.attack.removesuffix(CERTAIN), zero_shot
        known = self.own if self.own in LIES else "flipped"
        super().__init__(exchange, hostile, known, np.random.default_rng([case.seed, 1]))

    def push(self, client: str, upload: Any) -> None:
        lie = self.lie(upload) if client in self.hostile else upload
        WrappedExchange.push(self, client, lie)

    def lie(self, upload: Any) -> Any:
        altered = self.alter(upload)
        if self.own == "long":
            return replace(altered, means=LENGTH * altered.means)
        if self.own == "careful":
            return replace(altered, vectors=passing(altered, self.zero_shot))
        return altered


def passing(upload: Prototypes, zero_shot: ZeroShot) -> Any:
    """Return the vectors of an upload, each moved towards the text of its class until zero-shot agrees."""
    text = zero_shot.text.astype(np.float64)
    towards, vectors = text - text.mean(axis=0), upload.vectors.astype(np.float64)
    moved = vectors.copy()
    for _ in range(int(4 / STEP)):
        logits = zero_shot.logits(moved.astype(np.float32))
        wrong = logits.argmax(axis=1) != np.arange(len(logits))
        if not wrong.any():
            break
        moved[wrong] += STEP * towards[wrong]
        moved /= np.maximum(np.linalg.norm(moved, axis=1, keepdims=True), 1e-12)
    return moved.astype(np.float32)


# --- servers --------------------------------------------------------------------------------------------------


class Serving(WrappedExchange):
    """Counts what of the hostile clients is stored. Who has nothing stored gets nothing."""

    def __init__(self, exchange: Any, hostile: frozenset[str], nothing: Any) -> None:
        super().__init__(exchange)
        self.hostile, self.nothing = hostile, nothing
        self.offered = self.stored = 0
        self._known: set[str] = set()

    def push(self, client: str, upload: Any) -> None:
        self.offered += client in self.hostile
        try:
            self.accept(client, upload)
        except ValueError:
            assert client in self.hostile, "an honest upload was refused"
            return
        self.stored += client in self.hostile
        self._known.add(client)

    def accept(self, client: str, upload: Any) -> None:
        raise NotImplementedError

    def pull_traced(self, clients: Sequence[str]) -> tuple[list[Any], Any]:
        known = [client for client in clients if client in self._known]
        downloads, routes = super().pull_traced(known)
        answers = dict(zip(known, zip(downloads, routes, strict=True), strict=True))
        none = (self.nothing, np.zeros(routes.shape[1], routes.dtype))
        chosen = [answers.get(client, none) for client in clients]
        return [download for download, _ in chosen], np.array([route for _, route in chosen])


class CheckingServer(Serving):
    """Stores what the exchange accepts from a stranger."""

    def accept(self, client: str, upload: Any) -> None:
        self.exchange.store(client, self.exchange.prepare(upload, SINGLE))  # type: ignore[attr-defined]


class TrustingServer(Serving):
    """Stores what it gets. ``certain``: hostile clients claim an entropy of 0; everyone else claims the true one."""

    def __init__(self, exchange: Any, hostile: frozenset[str], nothing: Any, certain: bool) -> None:
        super().__init__(exchange, hostile, nothing)
        self.certain = certain

    def accept(self, client: str, upload: Any) -> None:
        self.exchange.store(client, self.believed(client, upload))  # type: ignore[attr-defined]

    def believed(self, client: str, upload: Any) -> Any:
        if not isinstance(self.exchange, GlobalMemory):
            return upload
        claimed = entropy(self.exchange.zero_shot.logits(upload.vectors))
        if self.certain and client in self.hostile:
            claimed = np.zeros_like(claimed)
        return PreparedRow(upload.vectors, np.where(upload.seen, claimed, 1.0), upload.seen)
