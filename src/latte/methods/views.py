"""VTE and Zero: of an image's views, those with the lowest entropy, as their mean (VTE) or by vote (Zero)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Unpack

import numpy as np

from ..core.maths import entropy_nats, entropy_of_one, softmax
from ..core.types import Integers, Mask, Prediction, Reals, Vectors
from ..core.validate import choice, real
from ..core.zero_shot import ZeroShot
from ..errors import refuse
from .base import BaseMethod, Given, Origin
from .traffic import CostShape, Terms

if TYPE_CHECKING:
    from .options import VteOptions, ZeroOptions


VIEWS = ("first", "confident")
CONFIDENT = 0.1  # the share that TPT introduced and TDA, DMN and VTE took over


class Split(NamedTuple):
    """The confident views and the others, each most confident first."""

    confident: Integers
    discarded: Integers


def most_confident(logits: Reals, share: float = CONFIDENT) -> Split:
    """Split the views by the entropy of their ``logits`` (V, C); equals stay in the order of the views.

    int(share · V) are confident, as the official codes do, but never none: with V < 10 they divide by zero.

    >>> most_confident(np.array([[0.0, 0.1], [0.0, 9.0], [0.0, 1.0]]), share=0.5)
    Split(confident=array([1]), discarded=array([2, 0]))
    """
    order: Integers = np.argsort(entropy_nats(logits), kind="stable")
    count = max(1, int(share * len(order)))
    return Split(order[:count], order[count:])


def mean_probabilities(logits: Reals) -> Reals:
    """Return the mean over the views of the softmax of ``logits`` (V, C), as (C,)."""
    mean: Reals = softmax(logits).mean(axis=0)
    return mean


def confident_mean(zero_shot: ZeroShot, views: Vectors, which: str, rows: Reals | None = None) -> tuple[Reals, Reals]:
    """Return the embedding (D,) and the logits (C,) of an image with these ``views`` (V, D), by the views that count.

    Those are the plain view for ``which="first"``, and for "confident" the mean of the confident ones, not normalised
    again; of fewer than ten views the plain one: the official codes divide by zero there. The logits are those of
    ``rows`` (C, D) in place of the texts, if given.
    """
    few = which == "first" or len(views) < 1 / CONFIDENT
    vectors: Any = (views[:1] if few else views).astype(np.float64)
    logits = zero_shot.logits(vectors) if rows is None else zero_shot.scale * (vectors @ rows.T)
    if few:
        return vectors[0], logits[0]
    kept = most_confident(logits).confident
    return vectors[kept].mean(axis=0), logits[kept].mean(axis=0)


def check_share(name: str, value: object) -> None:
    """Refuse a share of the views that is not in (0, 1]."""
    if not 0 < real(name, value) <= 1:
        raise refuse(name, value, "a share of the views, above 0 and at most 1")


def check_views(value: object) -> None:
    """Refuse a way of using the views that a memory method does not know."""
    choice("views", value, VIEWS)


# --- VTE, the vision-text-space ensemble: classify the mean embedding of the confident views ------------------


@dataclass(frozen=True, slots=True)
class VteParams:
    """``share`` of the views is kept, those with the lowest entropy; at least one."""

    share: float = CONFIDENT

    def __post_init__(self) -> None:
        check_share("share", self.share)


class Vte(BaseMethod[VteParams]):
    """argmax of scale · T f̄, f̄ the mean of the kept unit embeddings.

    f̄ is not normalised again: the label does not depend on its length. The plain view has no privilege.

    >>> import numpy as np
    >>> from latte import ZeroShot
    >>> Vte(ZeroShot(np.eye(2), ("cat", "dog"))).predict([[0.71, 0.7042], [0.0, 1.0]]).label
    1
    """

    Params: ClassVar = VteParams
    title: ClassVar = "VTE"
    origin: ClassVar = Origin(
        paper="Test-time augmentation by voting of confident views (a baseline of Latte's paper)",
        venue="2024",
    )
    colours: ClassVar = ("#8a6a00", "#dcbc3c", "8 3 2 3")
    uses_views: ClassVar[bool] = True

    if TYPE_CHECKING:

        def __init__(
            self, zero_shot: ZeroShot, params: Given[VteParams] = None, **options: Unpack[VteOptions]
        ) -> None: ...

    @staticmethod
    def macs(params: VteParams, sizes: CostShape) -> Terms:
        """Return the head on the other views and on their mean."""
        return {**sizes.other_views, "head on the mean": sizes.classes * sizes.dim}

    def predict_rows(self, views: Vectors) -> Prediction:
        """Predict from the confident views."""
        confident = most_confident(self.zero_shot.logits(views), self.params.share).confident
        logits = self.zero_shot.logits(views[confident].mean(axis=0))
        return self.prediction(logits, entropy_of_one(self.zero_shot.logits(views[0])))


# --- zero: the confident views vote, each for its first class -------------------------------------------------


# "zero": the epsilon of the type that the cosines are calculated in, 1.2e-7 and 9.8e-4
TEMPERATURES = {"float32": float(np.finfo(np.float32).eps), "float16": float(np.finfo(np.float16).eps)}
SAME_COUNT = 1e-6  # shares of a vote such as 1/3 do not add up exactly


@dataclass(frozen=True, slots=True)
class ZeroParams:
    """Parameters of Zero.

    Parameters
    ----------
    gamma
        The share of the views that vote, those with the lowest entropy; at least one does.
    epsilon
        The type whose epsilon is the temperature of a vote: "float32", or "float16" as in the official code under
        autocast. The cosines are not rounded to it.
    """

    gamma: float = 0.3
    epsilon: str = "float32"

    def __post_init__(self) -> None:
        check_share("gamma", self.gamma)
        choice("epsilon", self.epsilon, tuple(TEMPERATURES))


class Zero(BaseMethod[ZeroParams]):
    """The class with most votes.

    The ``scores`` of its predictions are the votes (C,). If several classes have the most, the class that
    the tie break chose is shown with half a vote more, so that the label is the argmax as everywhere.

    >>> import numpy as np
    >>> from latte import ZeroShot
    >>> method = Zero(ZeroShot(np.eye(2), ("cat", "dog")), ZeroParams(gamma=1.0))
    >>> method.predict([[0.8, 0.6], [0.6, 0.8], [0.0, 1.0]]).scores
    array([1., 2.])
    """

    Params: ClassVar = ZeroParams
    title: ClassVar = "Zero"
    origin: ClassVar = Origin(
        paper="Frustratingly Easy Test-Time Adaptation of Vision-Language Models",
        venue="NeurIPS 2024",
        code="FarinaMatteo/zero",
        licence="MIT",
    )
    colours: ClassVar = ("#6f3bb0", "#c4a0f5", "8 3 2 3")
    uses_views: ClassVar[bool] = True
    presets: ClassVar[dict[str, ZeroParams]] = {
        "official": ZeroParams(gamma=0.3),
        "official-autocast": ZeroParams(gamma=0.3, epsilon="float16"),
        "torch-uncertainty": ZeroParams(gamma=0.1),
    }

    if TYPE_CHECKING:

        def __init__(
            self, zero_shot: ZeroShot, params: Given[ZeroParams] = None, **options: Unpack[ZeroOptions]
        ) -> None: ...

    @staticmethod
    def macs(params: ZeroParams, sizes: CostShape) -> Terms:
        """Return the head on the other views."""
        return sizes.other_views

    def predict_rows(self, views: Vectors) -> Prediction:
        """Predict from the votes of the confident views."""
        logits = self.zero_shot.logits(views)
        split = most_confident(logits, self.params.gamma)
        # the softmax at temperature "zero" is one vote for the largest cosine; only classes that are equal to within a
        # few times the temperature share it
        cosines = logits[split.confident] / self.zero_shot.scale
        votes: Reals = softmax(cosines / TEMPERATURES[self.params.epsilon]).sum(axis=0)
        tied = votes > votes.max() - SAME_COUNT
        if tied.sum() > 1:
            votes[break_tie(tied, logits, split)] += 0.5
        uncertainty = entropy_of_one(self.zero_shot.logits(views[0]))
        return self.prediction(votes, uncertainty, normalised_by_sum=True)


def break_tie(tied: Mask, logits: Reals, split: Split) -> int:
    """Return the tied class that the most confident discarded view with a tied first class chooses.

    If there is none, the tied classes are compared in the most confident discarded view; if nothing was
    discarded, in the most confident kept one.
    """
    firsts = logits[split.discarded].argmax(axis=1)
    deciding = tied[firsts]
    if deciding.any():
        return int(firsts[deciding.argmax()])
    judge = split.discarded[0] if len(split.discarded) else split.confident[0]
    return int(np.where(tied, logits[judge], -np.inf).argmax())
