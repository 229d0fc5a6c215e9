"""Ristretto: soft class sums go up, a personal linear head comes down. docs/ristretto.md has the formulas."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..core.class_sums import EPS, ClassSums, Head, check_counts, check_lengths, checked_head, finite, sound_head
from ..core.linear_heads import RistrettoParams
from ..core.maths import entropy_of_one, softmax
from ..core.ristretto_exchange import RistrettoExchange
from ..core.stored import exactly, require
from ..core.types import Arrays, Prediction, Reals, State
from ..core.validate import numbers, precise_unit_rows, refuse
from ..core.zero_shot import ZeroShot
from .base import BaseMethod
from .traffic import Content, Messages

__all__ = ["Ristretto", "RistrettoParams"]

BATCH = 64  # images whose soft labels are added up in one product; until then only what they need is stored


class RunningSums(NamedTuple):
    """What a client has learnt: ``counts`` (C,) of soft labels, ``totals`` (C, D) of embeddings weighted by them."""

    counts: Reals
    totals: Reals

    def plus(self, labels: Reals, vectors: Reals) -> RunningSums:
        """Return the sums with more images: soft ``labels`` (k, C) of ``vectors`` (k, D)."""
        return RunningSums(self.counts + labels.sum(axis=0), self.totals + labels.T @ vectors)

    def upload(self, task: str) -> ClassSums:
        """Return what is uploaded."""
        return ClassSums(self.counts.copy(), self.totals / np.maximum(self.counts, EPS)[:, None], task)


class TwoLogits:
    """Zero-shot logits and those with the head, as one product: rows [s T, 0] and [s T + A, b] times [f, 1]."""

    def __init__(self, zero_shot: ZeroShot, head: Head) -> None:
        self.head, self.classes = head, zero_shot.classes
        scaled = zero_shot.scale * zero_shot.precise_text
        top = np.column_stack([scaled, np.zeros(self.classes)])
        self.matrix = np.concatenate([top, np.column_stack([scaled + head.weights, head.bias])])

    def labels(self, logits: Reals) -> Reals:
        """Return the soft labels (k, C) of both ``logits`` (k, 2 C): they follow the head only as far as its trust."""
        zero_shot, answers = logits[:, : self.classes], logits[:, self.classes :]
        return softmax(zero_shot + float(self.head.trust) * (answers - zero_shot))


class Ristretto(BaseMethod[RistrettoParams]):
    """One client: zero-shot logits plus a linear head, and soft class sums to learn from.

    >>> import numpy as np
    >>> from latte import ZeroShot, sync
    >>> client = Ristretto(ZeroShot(np.eye(2), ("cat", "dog")))
    >>> client.predict([[0.6, 0.8]]).label
    1
    >>> client.summary()
    ClassSums(1 images, 2 classes, task='...')
    >>> sync([("me", client)], Ristretto.exchange_for(client.zero_shot))  # alone, it is its own server
    >>> client.predict([[0.6, 0.8]]).classname
    'dog'
    """

    Params: ClassVar = RistrettoParams
    presets: ClassVar[dict[str, RistrettoParams]] = {}
    sync: ClassVar[str] = "doubling"
    alone: ClassVar[bool] = True
    Upload: ClassVar = ClassSums
    Download: ClassVar = Head

    @staticmethod
    def messages(params: RistrettoParams, classes: int) -> Messages:
        """Return what is sent: class means and counts up; a head, its bias and its trust down."""
        return Content(classes, numbers=classes), Content(classes, numbers=classes + 1)

    @classmethod
    def exchange_for(
        cls, zero_shot: ZeroShot, params: RistrettoParams | None = None, clients: Iterable[str] = ()
    ) -> RistrettoExchange:
        """Return the exchange that serves clients with these parameters."""
        return RistrettoExchange(zero_shot, params, clients)

    def check(self, views: ArrayLike) -> Any:
        """Return ``views`` (V, D) or (D,) as unit rows (V, D), or refuse them; float64 is not rounded to float32."""
        if isinstance(views, np.ndarray) and views.dtype == np.float32:
            return super().check(views)
        rows = numbers("views", views, f"(V, {self.zero_shot.dim}) unit rows")
        return precise_unit_rows("views", rows[None] if rows.ndim == 1 else rows, self.zero_shot.dim, self.normalise)

    # --- one image ----------------------------------------------------------------------------------------

    def predict_rows(self, views: Any) -> Prediction:
        """Answer from the plain view, then learn from it."""
        both = self._remember(views[0])
        classes = self.zero_shot.classes
        uncertainty = entropy_of_one(both[:classes])
        scores = both[classes:].copy()
        if self._pending == BATCH:
            self._learn()
        return self.prediction(scores, uncertainty, temperature=self._temperature)

    def _remember(self, vector: Reals) -> Reals:
        """Store an image and return its logits (2 C,), without and with the head."""
        row = self._vectors[self._pending]
        logits: Reals = self._logits[self._pending]
        row[:-1] = vector
        self._pending += 1
        np.dot(self._two.matrix, row, out=logits)
        return logits

    def _learn(self) -> None:
        """Add up what is pending."""
        self._sums, self._pending = self._learnt(), 0

    def _learnt(self) -> RunningSums:
        """Return the sums with all images; a batch is a product, and changes nothing that is remembered."""
        k = self._pending
        return self._sums.plus(self._two.labels(self._logits[:k]), self._vectors[:k, :-1]) if k else self._sums

    # --- one sync -----------------------------------------------------------------------------------------

    def summary(self) -> ClassSums:
        """Return soft counts and class means; it is ``empty`` before the first image."""
        return self._learnt().upload(self.zero_shot.fingerprint)

    def receive(self, download: Head) -> None:
        """Replace the head."""
        head = checked_head(download, self.zero_shot)
        self._learn()  # with the trust of the head that labelled it
        self._use(head)

    @property
    def head(self) -> Head:
        """The head in use."""
        return self._two.head

    def _use(self, head: Head) -> None:
        self._two = TwoLogits(self.zero_shot, head)
        self._temperature = 1 + self.params.eta * float(head.trust)  # how far the logits spread beyond zero-shot's

    # --- state --------------------------------------------------------------------------------------------

    def reset(self) -> None:
        """Forget everything."""
        classes, dim = self.zero_shot.text.shape
        self._sums = RunningSums(np.zeros(classes), np.zeros((classes, dim)))
        self._vectors, self._logits, self._pending = np.ones((BATCH, dim + 1)), np.zeros((BATCH, 2 * classes)), 0
        self._use(Head.empty(self.zero_shot))

    def state(self) -> State:
        """Return a copy of everything, as arrays; ``pending`` (k, D) are the images that are not in the sums yet."""
        return {
            "counts": self._sums.counts.copy(),
            "totals": self._sums.totals.copy(),
            "weights": self.head.weights.copy(),
            "bias": self.head.bias.copy(),
            "trust": self.head.trust.copy(),
            "pending": self._vectors[: self._pending, :-1].copy(),
        }

    def load(self, arrays: Arrays) -> None:
        """Continue from what :meth:`state` returned; nothing changes if it does not fit."""
        require(arrays, ("counts", "totals", "weights", "bias", "trust", "pending"))
        shape = self.zero_shot.classes, self.zero_shot.dim
        sums = RunningSums(_stored(arrays, "counts", shape[:1]), _stored(arrays, "totals", shape))
        check_counts("counts", sums.counts, least=0.0)
        check_lengths("totals", sums.totals, sums.counts)
        weights, bias, trust = (
            _stored(arrays, *one) for one in (("weights", shape), ("bias", shape[:1]), ("trust", ()))
        )
        head = sound_head(Head(weights, bias, trust), self.zero_shot)
        pending = self._stored_images(arrays["pending"])
        self.reset()
        self._use(head)
        self._sums = sums
        for vector in pending:
            self._remember(vector)

    def _stored_images(self, value: Any) -> Reals:
        count = len(value) if np.ndim(value) else 0
        images = exactly("pending", value, np.float64, (count, self.zero_shot.dim))
        if count >= BATCH:
            raise refuse("pending", f"{count} images", f"fewer than {BATCH}")
        return precise_unit_rows("pending", images) if count else images


def _stored(arrays: Arrays, name: str, shape: tuple[int, ...]) -> Reals:
    return finite(name, exactly(name, arrays[name], np.float64, shape), shape)
