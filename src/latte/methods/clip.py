"""Zero-shot CLIP: the classifier as it is, with no memory and no adaptation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Unpack

from ..core.maths import entropy_of_one
from ..core.types import Prediction, Vectors
from .base import BaseMethod, Given, Origin
from .traffic import CostShape, Terms

if TYPE_CHECKING:
    from ..core.zero_shot import ZeroShot
    from .options import Options


@dataclass(frozen=True, slots=True)
class ClipParams:
    """Zero-shot CLIP has nothing to set."""


class Clip(BaseMethod[ClipParams]):
    """argmax of scale · T f for the plain view; ties go to the lowest class index.

    >>> import numpy as np
    >>> from latte import ZeroShot
    >>> Clip(ZeroShot(np.eye(2), ("cat", "dog"))).predict([[0.6, 0.8]]).label
    1
    """

    Params: ClassVar = ClipParams
    engine: ClassVar = "latte.engine.streams:ClipEngine"
    title: ClassVar = "CLIP"
    origin: ClassVar = Origin(
        paper="Learning Transferable Visual Models From Natural Language Supervision",
        venue="ICML 2021",
        code="openai/CLIP",
        licence="MIT",
        constants="none to choose",
        test_labels="no",
    )
    colours: ClassVar = ("#5f6368", "#b4bac2", "2 4")

    if TYPE_CHECKING:

        def __init__(
            self, zero_shot: ZeroShot, params: Given[ClipParams] = None, **options: Unpack[Options]
        ) -> None: ...

    @staticmethod
    def macs(params: ClipParams, sizes: CostShape) -> Terms:
        """Return nothing: the head is all there is."""
        return {}

    def predict_rows(self, views: Vectors) -> Prediction:
        """Predict from the plain view."""
        logits = self.zero_shot.logits(views[0])
        return self.prediction(logits, entropy_of_one(logits))
