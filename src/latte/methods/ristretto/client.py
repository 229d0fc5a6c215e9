"""Ristretto: soft class sums go up, a personal linear head comes down (benchmarks/results/ristretto.md: formulas)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Unpack

import numpy as np
from numpy.typing import ArrayLike

from ...core.maths import entropy_of_one, softmax
from ...core.memory import RecentImages
from ...core.privacy import NoisyRows, Privacy, refuse_near_copies
from ...core.types import Arrays, MemoryFill, Prediction, Reals, State
from ...core.validate import check_lengths, exactly, finite_array, numbers, precise_unit_rows, require
from ...core.zero_shot import ZeroShot, places_of
from ...errors import refuse
from ..base import BaseMethod, Given, Origin
from ..classes import move_labels, move_rows
from ..labels import LabelledImages, split_state
from ..traffic import Content, CostShape, Messages, Terms
from .heads import RistrettoParams
from .server import RistrettoExchange
from .sums import EPS, LIVE, ClassSums, Head, check_counts, checked_head, sound_head

if TYPE_CHECKING:
    from ..options import RistrettoOptions


__all__ = ["Ristretto", "RistrettoParams"]

HALF_AN_IMAGE = 0.5  # how far the sums of a class move before they are sent with other noise
PLAUSIBLE = 2.0  # below the largest zero-shot logit: 13.5 % as likely as zero-shot's favourite
BATCH = 64  # images whose soft labels are added up in one product; until then only what they need is stored


class RunningSums(NamedTuple):
    """What a client has learnt: ``counts`` (C,) of soft labels, ``totals`` (C, D) of embeddings weighted by them."""

    counts: Reals
    totals: Reals

    def upload(self, task: str) -> ClassSums:
        """Return what is uploaded."""
        return ClassSums(self.counts.copy(), self.totals / np.maximum(self.counts, EPS)[:, None], task)


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
    engine: ClassVar = "latte.engine.ristretto:RistrettoEngine"
    presets: ClassVar[dict[str, RistrettoParams]] = {}
    sync: ClassVar[str] = "doubling"
    alone: ClassVar[bool] = True
    Upload: ClassVar = ClassSums
    Download: ClassVar = Head

    _sums: RunningSums
    title: ClassVar = "Ristretto"
    origin: ClassVar = Origin(
        paper="this project",
        venue="",
        constants="this project, with labels of PACS, CIFAR-100-C, DTD, Pets, Caltech101 and SUN397",
        test_labels="yes",
    )
    colours: ClassVar = ("#4a2c17", "#e0b48c", "")

    if TYPE_CHECKING:

        def __init__(
            self, zero_shot: ZeroShot, params: Given[RistrettoParams] = None, **options: Unpack[RistrettoOptions]
        ) -> None: ...

    @staticmethod
    def messages(params: RistrettoParams, classes: int) -> Messages:
        """Return what is sent: class means and counts up; a head, its bias and its trust down."""
        return Content(classes, numbers=classes), Content(classes, numbers=classes + 1)

    @staticmethod
    def macs(params: RistrettoParams, sizes: CostShape) -> Terms:
        """Return the head's logits, the weight of the head in soft labels, class sums."""
        c, d = sizes.classes, sizes.dim
        return {"head": c * d, "trust": c, "class sums": c * d}

    @staticmethod
    def own_macs(params: RistrettoParams, sizes: CostShape) -> Terms:
        """Return the same with one product of 2 C rows of D + 1 numbers instead of C rows of D."""
        return {**Ristretto.macs(params, sizes), "bias": 2 * sizes.classes}

    @staticmethod
    def server_macs(params: RistrettoParams, sizes: CostShape, clients: int) -> Terms:
        """Count every class mean with every other, a weighted sum, two scatter matrices, an inverse, the heads."""
        n, c, d = clients, sizes.classes, sizes.dim
        pairs, rows = n * n * c * d, n * c * d**2
        return {"routing": pairs, "pooling": pairs, "scatter": 2 * rows, "inverse": d**3, "heads": rows}

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
        """Answer from the plain view, then learn from it unless it is a near copy of a recent one."""
        vector = views[0] if len(views) == 1 else views[0].copy()  # a prediction holds it, and must not hold them all
        new = self._recent.is_new(vector)
        if self.params.trust == "open":
            scores = self._answer_openly(vector.astype(np.float64, copy=False), new)
        else:
            scores = self._answer(vector)
            self._pending += new
            if self._pending == BATCH:
                self._learn()
        entropy = partial(zero_shot_entropy, self.zero_shot, vector)
        trust = float(self.head.trust) if self.params.trust == "fleet" else 0.0
        learnt = partial(soft_label, self.zero_shot, vector, scores, trust) if new else None
        temperature = 1.0 if self._is_young(vector) else self._temperature
        return self.prediction(scores, entropy, temperature=temperature, near_copy=not new, learnt=learnt)

    def _is_young(self, vector: Reals) -> bool:
        """Return whether zero-shot puts an image into a class that has joined lately: it then decides alone."""
        young = self.head.young
        return young is not None and bool(young[(self.zero_shot.precise_scaled @ vector).argmax()])

    def _answer(self, vector: Reals) -> Reals:
        """Return the logits of an image with the head (C,); the image stands behind what is pending.

        Zero-shot logits are not needed before it is learnt.
        """
        row = self._vectors[self._pending]
        row[:] = vector
        if self._is_young(row):
            scores: Reals = self.zero_shot.precise_scaled @ row
        else:
            scores = self._weights @ row
            scores += self._head.bias
        self._answers[self._pending] = scores
        return scores

    def _answer_openly(self, vector: Reals, learn: bool) -> Reals:
        """Return the scores of an image (C,) where not every client is trusted, and learn from it at once."""
        zero_shot = open_logits(self.zero_shot, vector)
        if learn:
            label, (counts, totals) = softmax(zero_shot), self._sums
            self._sums = RunningSums(counts + label, totals + label[:, None] * vector)
        if self._is_young(vector):
            return zero_shot
        return keep_plausible(zero_shot, zero_shot + self.head.weights @ vector + self.head.bias)

    def _learn(self) -> None:
        """Add up what is pending."""
        self._sums, self._pending = self._learnt(), 0

    def _learnt(self) -> RunningSums:
        """Return the sums with all images; a batch is a product, and changes nothing that is remembered."""
        if not self._pending:
            return self._sums
        vectors, answers = self._vectors[: self._pending], self._answers[: self._pending]
        zero_shot = vectors @ self.zero_shot.precise_scaled.T
        # soft labels follow the head only as far as its trust
        labels = softmax(zero_shot + float(self.head.trust) * (answers - zero_shot))
        return RunningSums(self._sums.counts + labels.sum(axis=0), self._sums.totals + labels.T @ vectors)

    # --- labels -------------------------------------------------------------------------------------------

    @property
    def labels(self) -> int:
        """How many images have a label."""
        return len(self._labelled)

    def correct(self, image: ArrayLike, label: int, learnt: ArrayLike | None = None) -> None:
        """Learn that ``image`` is of the class ``label``: see :class:`latte.core.types.Teachable`."""
        self._labelled.give(self.check(image)[0], label, learnt)

    def withdraw(self, image: ArrayLike) -> None:
        """Forget the label of ``image``."""
        self._labelled.take_back(self.check(image)[0])

    # --- one sync -----------------------------------------------------------------------------------------

    def summary(self) -> ClassSums:
        """Return soft counts and class means; it is ``empty`` before the first image.

        Images with a label are taken out of them, and go into residual sums.
        """
        upload = self._sums_to_share(bool(self.labels)).upload(self.zero_shot.fingerprint)
        return replace(upload, **self._labelled.sums()._asdict()) if self.labels else upload

    def _sums_to_share(self, without_labelled: bool) -> RunningSums:
        counts, totals = sums = self._learnt()
        if not without_labelled:
            return sums
        soft = self._labelled.learnt
        counts, totals = np.maximum(counts - soft.sum(axis=0), 0.0), totals - soft.T @ self._labelled.vectors
        return RunningSums(counts, totals) if counts.sum() > LIVE else RunningSums(0 * counts, 0 * totals)

    def private_summary(self, privacy: Privacy, noise: NoisyRows) -> ClassSums:
        """Return counts and means of classes with enough images, made of sums with noise.

        Every image changes the sums of every class a little: a class has changed when half an image has come to it.
        """
        teaches = self._labelled.are_shared(privacy)
        counts, totals = self._sums_to_share(teaches)
        shared = privacy.shares(counts)
        if privacy.noise:
            deviation = privacy.deviation(self.zero_shot.dim)
            noisy = noise.of(np.column_stack([counts, totals]), deviation, HALF_AN_IMAGE)
            counts, totals = np.maximum(noisy[:, 0], 0.0), noisy[:, 1:]
            lengths = np.linalg.norm(totals, axis=1)
            totals *= np.minimum(1.0, counts / np.maximum(lengths, EPS))[:, None]  # a mean is at most 1 long
        shared &= bool(counts[shared].sum() >= 1)  # noise may leave less than one image: such an upload is empty
        sums = RunningSums(np.where(shared, counts, 0.0), np.where(shared[:, None], totals, 0.0))
        upload = sums.upload(self.zero_shot.fingerprint)
        return replace(upload, **self._labelled.sums()._asdict()) if teaches else upload

    def sensitivity(self, privacy: Privacy) -> float:
        """Return how far one image can move all sums and counts: soft labels of one image sum to 1, so it is 2."""
        refuse_near_copies(self.params.near_copy)
        return 2.0

    def receive(self, download: Head) -> None:
        """Replace the head."""
        head = checked_head(download, self.zero_shot)
        self._learn()  # with the trust of the head that labelled it
        self._use(head)

    def outweighs(self, download: Head) -> bool:
        """Return whether a head rests on more evidence than the one in use."""
        return bool(download.trust > self.head.trust)

    @property
    def head(self) -> Head:
        """The head in use."""
        return self._head

    def _use(self, head: Head) -> None:
        self._head = head
        self._weights = self.zero_shot.precise_scaled + head.weights  # one product for the sum of both logits
        self._temperature = 1 + self.params.eta * float(head.trust)  # how far the logits spread beyond zero-shot's

    # --- state --------------------------------------------------------------------------------------------

    def reset(self) -> None:
        """Forget everything."""
        classes, dim = self.zero_shot.text.shape
        self._sums = RunningSums(np.zeros(classes), np.zeros((classes, dim)))
        self._vectors, self._answers, self._pending = np.zeros((BATCH, dim)), np.zeros((BATCH, classes)), 0
        self._recent = RecentImages(dim, self.params.near_copy)
        self._labelled = LabelledImages(self.zero_shot)
        self._use(Head.empty(self.zero_shot))

    def memory_fill(self) -> MemoryFill:
        """Return the number of images that were learnt from, and for how many classes they count as one at least."""
        counts = self._learnt().counts
        return MemoryFill(round(float(counts.sum())), None, int((counts >= 1).sum()))

    def state(self) -> State:
        """Return a copy of everything, as arrays.

        ``pending`` (k, D) are the images that are not in the sums yet, ``recent`` (k, D) the images among which near
        copies are looked for: none if the parameters look for no copies. ``labels.*`` are there if there are labels,
        ``young`` if classes have joined lately.
        """
        return {
            "counts": self._sums.counts.copy(),
            "totals": self._sums.totals.copy(),
            "weights": self.head.weights.copy(),
            "bias": self.head.bias.copy(),
            "trust": self.head.trust.copy(),
            "pending": self._vectors[: self._pending].copy(),
            "recent": self._recent.vectors(),
            **({} if self.head.young is None else {"young": self.head.young.copy()}),
            **self._labelled.state(),
        }

    def take_over(self, earlier: Ristretto) -> None:
        """Go on with what a client of an earlier version of the task has learnt; classes that joined are young."""
        places = places_of(self.zero_shot.classnames, earlier.zero_shot.classnames)
        earlier._learn()  # what is pending: with its own classes
        state = move_labels(earlier.state(), places)
        state |= {name: move_rows(state[name], places) for name in ("counts", "totals", "weights", "bias")}
        before = earlier.head.young
        young = places < 0 if before is None else (places < 0) | move_rows(before, places)
        state.pop("young", None)
        self.load({**state, "young": young} if young.any() else state)

    def load(self, arrays: Arrays) -> None:
        """Continue from what :meth:`state` returned; nothing changes if it does not fit."""
        arrays, labels = split_state(arrays, "labels.")
        arrays, young = split_state(arrays, "young")
        require(arrays, ("counts", "totals", "weights", "bias", "trust", "pending", "recent"))
        require(young, ("young",) if young else ())
        shape = self.zero_shot.classes, self.zero_shot.dim
        sums = RunningSums(_stored(arrays, "counts", shape[:1]), _stored(arrays, "totals", shape))
        check_counts("counts", sums.counts, least=0.0)
        check_lengths("totals", sums.totals, sums.counts)
        weights, bias, trust = (
            _stored(arrays, *part) for part in (("weights", shape), ("bias", shape[:1]), ("trust", ()))
        )
        head = sound_head(Head(weights, bias, trust, young=young.get("young")), self.zero_shot)
        pending = arrays["pending"]
        count = len(pending) if np.ndim(pending) else 0
        pending = exactly("pending", pending, np.float64, (count, self.zero_shot.dim))
        if count >= BATCH:
            raise refuse("pending", f"{count} images", f"fewer than {BATCH}")
        if count:
            pending = precise_unit_rows("pending", pending)
        recent = RecentImages.checked(arrays["recent"], self.zero_shot.dim)
        labelled = self._labelled.checked(labels)
        self.reset()
        self._labelled = labelled
        self._recent.load(recent)
        self._use(head)
        self._sums = sums
        for vector in pending:
            self._answer(vector)
            self._pending += 1


def open_logits(zero_shot: ZeroShot, vector: Reals) -> Reals:
    """Return the zero-shot logits of an image (C,), with the operations of the specification (see ``span_of``)."""
    logits: Reals = zero_shot.scale * (zero_shot.precise_text @ vector)
    return logits


def keep_plausible(zero_shot: Reals, scores: Reals) -> Reals:
    """Return ``scores`` (..., C) in which the best class is one that the ``zero_shot`` logits (..., C) hold plausible.

    >>> keep_plausible(np.array([3.0, 2.0, 0.5]), np.array([3.0, 3.5, 9.0]))
    array([3. , 3.5, 1.5])
    """
    plausible = zero_shot >= zero_shot.max(axis=-1, keepdims=True) - PLAUSIBLE
    best = np.where(plausible, scores, -np.inf).max(axis=-1, keepdims=True)
    return np.where(plausible, scores, np.minimum(scores, best - PLAUSIBLE))


def soft_label(zero_shot: ZeroShot, vector: Any, scores: Reals, trust: float) -> Reals:
    """Return the soft label (C,) with which an image (D,) is learnt from its ``scores`` (C,); 0: zero-shot's own."""
    logits = zero_shot.precise_scaled @ vector.astype(np.float64, copy=False)
    return softmax(logits + trust * (scores - logits))


def zero_shot_entropy(zero_shot: ZeroShot, vector: Any) -> float:
    """Return the entropy of the zero-shot prediction for an image (D,), in [0, 1]."""
    return entropy_of_one(zero_shot.precise_scaled @ vector.astype(np.float64, copy=False))


def _stored(arrays: Arrays, name: str, shape: tuple[int, ...]) -> Reals:
    return finite_array(name, exactly(name, arrays[name], np.float64, shape), shape)
