"""VTE, the vision-text-space ensemble: classify the mean embedding of the confident views.

"Vision ensemble" is that mean, "text ensemble" the mean over templates that the zero-shot classifier already
is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..core.maths import entropy_of_one
from ..core.types import Prediction, Vectors
from .base import BaseMethod
from .confident_views import CONFIDENT, check_share, most_confident


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
    uses_views: ClassVar[bool] = True

    def predict_rows(self, views: Vectors) -> Prediction:
        """Predict from the confident views."""
        confident = most_confident(self.zero_shot.logits(views), self.params.share).confident
        logits = self.zero_shot.logits(views[confident].mean(axis=0))
        return self.prediction(logits, entropy_of_one(self.zero_shot.logits(views[0])))
