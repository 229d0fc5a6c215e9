"""Zero: the confident views vote, each for its first class.

The method is that of "Frustratingly Easy Test-Time Adaptation of Vision-Language Models". Its official code
breaks a tie in votes wrongly when no discarded view decides (it inverts indices instead of a mask); here the
tie goes to the tied class that the most confident discarded view prefers.

The temperature of a vote is the epsilon of the type in use. The official code runs under autocast, where that is
float16's, 9.8e-4: classes whose cosines differ by less than about 3e-3 share a vote. With float32's, the default here,
only equal ones do. ``ZeroParams(epsilon="float16")`` selects the former; docs/variants.md says what it changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..core.maths import entropy_of_one, softmax
from ..core.types import Mask, Prediction, Reals, Vectors
from ..core.validate import choice
from .base import BaseMethod
from .confident_views import Split, check_share, most_confident

# "zero": the epsilon of the type that the cosines are calculated in, 1.2e-7 and 9.8e-4
TEMPERATURES = {"float32": float(np.finfo(np.float32).eps), "float16": float(np.finfo(np.float16).eps)}
SAME_COUNT = 1e-6  # shares of a vote such as 1/3 do not add up exactly


@dataclass(frozen=True, slots=True)
class ZeroParams:
    """``gamma`` is the share of the views that vote, those with the lowest entropy; at least one does.

    ``epsilon`` names the type whose epsilon is the temperature of a vote: "float32", or "float16" as in the official
    code under autocast. The cosines are not rounded to it.
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
    uses_views: ClassVar[bool] = True
    presets: ClassVar[dict[str, ZeroParams]] = {
        "official": ZeroParams(gamma=0.3),
        "official-autocast": ZeroParams(gamma=0.3, epsilon="float16"),
        "torch-uncertainty": ZeroParams(gamma=0.1),
    }

    def predict_rows(self, views: Vectors) -> Prediction:
        """Predict from the votes of the confident views."""
        logits = self.zero_shot.logits(views)
        split = most_confident(logits, self.params.gamma)
        votes = count_votes(logits[split.confident] / self.zero_shot.scale, TEMPERATURES[self.params.epsilon])
        tied = votes > votes.max() - SAME_COUNT
        if tied.sum() > 1:
            votes[break_tie(tied, logits, split)] += 0.5
        uncertainty = entropy_of_one(self.zero_shot.logits(views[0]))
        return self.prediction(votes, uncertainty, normalised_by_sum=True)


def count_votes(cosines: Reals, temperature: float) -> Reals:
    """Return the votes (C,) of views with these cosines (V, C): their softmax at temperature "zero", summed.

    That is one vote for the largest; only classes that are equal to within a few times the temperature share it.
    """
    votes: Reals = softmax(cosines / temperature).sum(axis=0)
    return votes


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
