"""Hostile clients: uploads that pass every check of a server, made to mislead the other clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import singledispatchmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latte.core.types import Prototypes, Reals, Verifying
from latte.core.validate import at_least, choice, real
from latte.core.zero_shot import ZeroShot
from latte.errors import refuse
from latte.methods.ristretto.sums import EPS, ClassSums
from latte.simulation.wrapped import TracedExchange, WrappedExchange

LIES = ("anti-0.25", "anti-0.5", "anti-1", "anti-2", "push-0.5", "push-1", "outside-1", "outside-2", "one-class")
ROUNDING = 2.0**-24  # how far single precision can have moved an upload on its way
STEP, MOST_STEPS = 0.02, 200  # by which a prototype is moved towards the text of its class until a server accepts it


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What attackers know of a domain: ``truth`` (C, D) the mean embedding of every class, from labelled images.

    ``counts`` (C,) and ``means`` (C, D) are what a client with these images, but without their labels, would upload.
    """

    truth: Reals
    counts: Reals
    means: Reals


@dataclass(frozen=True, slots=True)
class Attack:
    """What all attackers do, from the ``first``-th sync on.

    ``lie``: with class means S and true class means m, "anti-s" sends S_c - s (m_c - mean m) as that of class c,
    "push-s" sends S_c + s (m_c+1 - m_c), "outside-s" what "anti-s" does outside the span of the text embeddings, and
    "one-class" claims that all images are of one class, and sends "push-1" for it.

    ``images``: how many images an attacker claims, in each upload; None: as many as honest clients have seen. ``live``:
    S is the mean of what the honest clients of the domain have uploaded so far; otherwise the attackers' own.
    """

    lie: str
    images: float | None = None
    live: bool = True
    first: int = 1

    def __post_init__(self) -> None:
        choice("lie", self.lie, LIES)
        at_least("first", self.first, 1)
        if self.images is not None:
            real("images", self.images, 1.0)

    def alter(self, means: Reals, truth: Reals, text: Reals) -> Reals:
        """Return class means (C, D) that mislead, none longer than a mean of unit vectors can be."""
        kind, _, strength = self.lie.partition("-")
        away = truth - truth.mean(axis=0)
        if kind == "outside":
            basis = np.linalg.svd(text - text.mean(axis=0), full_matrices=False)[2][: len(text) - 1]
            away = away - away @ basis.T @ basis
        elif kind in ("push", "one"):
            away = truth - np.roll(truth, -1, axis=0)
        lies = means - (1.0 if kind == "one" else float(strength)) * away
        altered: Reals = lies / np.maximum(np.linalg.norm(lies, axis=1, keepdims=True), 1.0)
        return altered


class AttackedExchange(WrappedExchange):
    """An exchange with attackers beside its clients: before clients pull, every attacker uploads.

    ``domains`` are those of the honest clients by name; ``attackers`` are the domains of the attackers, which pose as
    clients of them; ``known`` is what attackers know of each domain. Uploads that the exchange refuses are an error:
    the attacks are made to pass.
    """

    def __init__(
        self,
        exchange: TracedExchange,
        attack: Attack,
        zero_shot: ZeroShot,
        domains: dict[str, int],
        attackers: Sequence[int],
        known: Sequence[Knowledge],
    ) -> None:
        super().__init__(exchange)
        self.attack, self.zero_shot, self.domains, self.known = attack, zero_shot, domains, known
        self.attackers = {f"attacker {i}": domain for i, domain in enumerate(attackers)}
        self._heard: dict[str, Any] = {}  # the latest upload of every honest client
        self._syncs = 0

    @property
    def clients(self) -> tuple[str, ...]:
        """The names of the honest clients."""
        return tuple(name for name in self.exchange.clients if name not in self.attackers)

    def push(self, client: str, upload: Any) -> None:
        """Pass the upload of an honest client on."""
        self._heard[client] = upload
        super().push(client, upload)

    def pull_traced(self, clients: Sequence[str]) -> tuple[list[Any], NDArray[Any]]:
        """Let the attackers upload, then pass the downloads on; what they have of attackers is not traced."""
        self._syncs += 1
        if self._heard and self._syncs >= self.attack.first:
            lies = {domain: self._lie(domain) for domain in set(self.attackers.values())}
            for name, domain in self.attackers.items():
                self._upload(name, lies[domain])
        downloads, routes = super().pull_traced(clients)
        honest = [i for i, name in enumerate(self.exchange.clients) if name not in self.attackers]
        return downloads, routes[:, honest]

    def _upload(self, name: str, upload: Any) -> None:
        if not isinstance(self.exchange, Verifying):
            raise refuse("exchange", type(self.exchange).__name__, "one that checks what strangers upload")
        self.exchange.store(name, self.exchange.prepare(upload, ROUNDING))

    def _lie(self, domain: int) -> Any:
        """Return what the attackers of a domain upload."""
        heard = [upload for name, upload in self._heard.items() if self.domains[name] == domain]
        some = next(iter(self._heard.values()))
        return self.alter(some, heard if self.attack.live else [], self.known[domain])

    @singledispatchmethod
    def alter(self, example: Any, heard: Sequence[Any], known: Knowledge) -> Any:
        """Return an upload of the kind of ``example`` that misleads clients that upload what was ``heard``."""
        raise refuse("upload", type(example).__name__, "ClassSums or Prototypes")

    @alter.register
    def _(self, example: ClassSums, heard: Sequence[ClassSums], known: Knowledge) -> ClassSums:
        counts, means = known.counts, known.means
        if heard:
            counts = np.sum([upload.counts for upload in heard], axis=0)
            sums = np.sum([upload.counts[:, None] * upload.means for upload in heard], axis=0)
            means = sums / np.maximum(counts, EPS)[:, None]
        lies = self.attack.alter(means, known.truth, self.zero_shot.precise_text)
        if self.attack.lie == "one-class":
            counts = np.where(np.arange(len(counts)) == counts.argmax(), 1.0, 0.0)
        pace = float(np.median([upload.counts.sum() for upload in self._heard.values()]))
        images = pace if self.attack.images is None else self.attack.images
        return replace(example, counts=counts * (images / counts.sum()), means=lies)

    @alter.register
    def _(self, example: Prototypes, heard: Sequence[Prototypes], known: Knowledge) -> Prototypes:
        means, seen = known.means, np.ones_like(example.seen)
        if heard:
            means = np.sum([upload.vectors.astype(np.float64) for upload in heard], axis=0)
            seen = np.any([upload.seen for upload in heard], axis=0)
        lies = self.attack.alter(_unit(means), known.truth, self.zero_shot.precise_text)
        if self.attack.lie == "one-class":
            seen = seen & (np.arange(len(seen)) == seen.argmax())
        vectors = np.where(seen[:, None], self._passing(_unit(lies)), 0.0).astype(np.float32)
        return replace(example, vectors=vectors, seen=seen & vectors.any(axis=1))

    def _passing(self, vectors: Reals) -> Reals:
        """Return unit rows (C, D), each moved towards the text of its class until zero-shot agrees that it is one."""
        text, moved = self.zero_shot.precise_text, vectors.copy()
        towards = text - text.mean(axis=0)
        for _ in range(MOST_STEPS):
            wrong = self.zero_shot.logits(moved.astype(np.float32)).argmax(axis=1) != np.arange(len(moved))
            if not wrong.any():
                break
            moved[wrong] = _unit(moved[wrong] + STEP * towards[wrong])
        return moved


def _unit(rows: Reals) -> Reals:
    scaled: Reals = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), EPS)
    return scaled
