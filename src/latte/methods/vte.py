"""VTE, the vision-text-space ensemble: classify the mean embedding of the confident views.

"Vision ensemble" is that mean, "text ensemble" the mean over templates that the zero-shot classifier already
is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ..core.maths import entropy_of_one
from ..core.types import Prediction
from ..core.zero_shot import ZeroShot
from .base import BaseMethod
from .confident_views import CONFIDENT, check_share, most_confident


@dataclass(frozen=True, slots=True)
class VteParams:
    """``share`` of the views is kept, those with the lowest entropy; at least one."""

    share: float = CONFIDENT

    def __post_init__(self) -> None:
        check_share("share", self.share)


class Vte(BaseMethod):
    """argmax of scale · T f̄, f̄ the mean of the kept unit embeddings.

    f̄ is not normalised again: the label does not depend on its length. The plain view has no privilege.

    >>> import numpy as np
    >>> from latte import ZeroShot
    >>> Vte(ZeroShot(np.eye(2), ("cat", "dog"))).predict([[0.71, 0.7042], [0.0, 1.0]]).label
    1
    """

    Params: ClassVar = VteParams
    presets: ClassVar[dict[str, VteParams]] = {}

    def __init__(self, zero_shot: ZeroShot, params: VteParams | None = None, normalise: bool = False) -> None:
        super().__init__(zero_shot, normalise)
        self.params = params or VteParams()

    def predict(self, views: Any) -> Prediction:
        """Predict from the confident views."""
        rows = self.check(views)
        kept = most_confident(self.zero_shot.logits(rows), self.params.share).kept
        logits = self.zero_shot.logits(rows[kept].mean(axis=0))
        return Prediction(int(logits.argmax()), logits, entropy_of_one(self.zero_shot.logits(rows[0])))
