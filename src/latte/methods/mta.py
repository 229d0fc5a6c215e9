"""MTA, mean-shift for test-time augmentation: the mode of the views, each weighted by how far others agree with it.

No memory. The official bandwidth needs five views: fewer are answered as zero-shot does, from the plain one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Unpack

import numpy as np

from ..core.maths import entropy_of_one, softmax
from ..core.types import Prediction, Reals, Vectors
from ..core.validate import factor
from .base import BaseMethod, Given, Origin

if TYPE_CHECKING:
    from ..core.zero_shot import ZeroShot
    from .options import MtaOptions


ROUNDS = 5  # of everything
SAME = 1e-6  # a step shorter than this is the last
LEAST_VIEWS = 5


@dataclass(frozen=True, slots=True)
class MtaParams:
    """The parameters of MTA.

    Parameters
    ----------
    lambda_y
        How evenly the weights are spread over the views.
    lambda_q
        How far views count that agree in their predictions.
    """

    lambda_y: float = 0.2
    lambda_q: float = 4.0

    def __post_init__(self) -> None:
        factor("lambda_y", self.lambda_y, least=1e-6)
        factor("lambda_q", self.lambda_q)


class Mta(BaseMethod[MtaParams]):
    """The zero-shot prediction of the mode of the views.

    >>> import numpy as np
    >>> from latte import ZeroShot
    >>> Mta(ZeroShot(np.eye(2), ("cat", "dog"))).predict([[0.6, 0.8]]).label
    1
    """

    Params: ClassVar = MtaParams
    title: ClassVar = "MTA"
    origin: ClassVar = Origin(
        paper="On the Test-Time Zero-Shot Generalization of Vision-Language Models: Do We Really Need Prompt Learning?",
        venue="CVPR 2024",
        code="MaxZanella/MTA",
        licence="MIT",
    )
    uses_views: ClassVar[bool] = True

    if TYPE_CHECKING:

        def __init__(
            self, zero_shot: ZeroShot, params: Given[MtaParams] = None, **options: Unpack[MtaOptions]
        ) -> None: ...

    def predict_rows(self, views: Vectors) -> Prediction:
        """Predict from the mode of the views."""
        logits = self.zero_shot.logits(views[0])
        scores = logits if len(views) < LEAST_VIEWS else self.zero_shot.scaled @ self._mode(views.astype(np.float64))
        return self.prediction(scores, entropy_of_one(logits))

    def _mode(self, views: Reals) -> Reals:
        probabilities = softmax(views @ self.zero_shot.scaled.T)
        agreement = probabilities @ probabilities.T  # (V, V)
        lengths = (views * views).sum(axis=1)  # 1 but for rounding
        squares = np.maximum(lengths[:, None] + lengths - 2.0 * (views @ views.T), 0.0)
        nearest = np.sort(squares, axis=1)[:, 1 : 1 + int(0.3 * (len(views) - 1))]  # without a view itself
        bandwidth = np.maximum(0.5 * nearest.mean(axis=1), 1e-12)  # h², which copies of a view make 0
        weights: Reals = np.full(len(views), 1 / len(views))
        mode: Reals = views[0]
        for _ in range(ROUNDS):
            near = np.exp(-((views - mode) ** 2).sum(axis=1) / (2 * bandwidth))
            for _ in range(ROUNDS):
                before, weights = (
                    weights,
                    softmax((near + self.params.lambda_q * (agreement @ weights)) / self.params.lambda_y),
                )
                if np.linalg.norm(before - weights) < SAME:
                    break
            for _ in range(ROUNDS):
                near = np.exp(-((views - mode) ** 2).sum(axis=1) / (2 * bandwidth))
                shifted = (near * weights) @ views
                before, mode = mode, shifted / np.linalg.norm(shifted)
                if np.linalg.norm(before - mode) < SAME:
                    break
        return mode
