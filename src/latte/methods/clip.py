"""Zero-shot CLIP: the classifier as it is, with no memory and no adaptation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ..core.maths import entropy_of_one
from ..core.types import Prediction
from ..core.zero_shot import ZeroShot
from .base import BaseMethod


@dataclass(frozen=True, slots=True)
class ClipParams:
    """Zero-shot CLIP has nothing to set."""


class Clip(BaseMethod):
    """argmax of scale · T f for the plain view; ties go to the lowest class index.

    >>> import numpy as np
    >>> from latte import ZeroShot
    >>> Clip(ZeroShot(np.eye(2), ("cat", "dog"))).predict([[0.6, 0.8]]).label
    1
    """

    Params: ClassVar = ClipParams
    presets: ClassVar[dict[str, ClipParams]] = {}

    def __init__(self, zero_shot: ZeroShot, params: ClipParams | None = None, normalise: bool = False) -> None:
        super().__init__(zero_shot, normalise)
        self.params = params or ClipParams()

    def predict(self, views: Any) -> Prediction:
        """Predict from the plain view."""
        logits = self.zero_shot.logits(self.check(views)[0])
        return Prediction(int(logits.argmax()), logits, entropy_of_one(logits))
