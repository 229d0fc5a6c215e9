"""OnZeta, online zero-shot with vision proxies: labels corrected towards balanced classes, and proxies that learn.

The image is in neither when it is answered. The share of the proxies grows along the stream and **needs its length**.

- The correction was made for a thousand classes. With few it overrules the model and makes predictions balanced: the
  recursion is then chaotic, and no two machines agree. ``alpha=0`` turns it off, as is published for Caltech101.
- The proxies have their full share at the end of *any* stream, however little they have learnt: streams of a few
  hundred images lose against zero-shot.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Unpack

import numpy as np

from ..core.maths import entropy_of_one, softmax
from ..core.types import Prediction, State, Vectors
from ..core.validate import at_least, factor, real
from .base import ArrayMethod, Given, Origin
from .traffic import Content, Messages

if TYPE_CHECKING:
    from ..core.zero_shot import ZeroShot
    from .options import OnZetaOptions


FEW = 10  # images per class of a stream: with fewer, it lost 1 to 6 points on all sets that were tried


@dataclass(frozen=True, slots=True)
class OnZetaParams:
    """The parameters of OnZeta.

    Parameters
    ----------
    beta
        The share of the proxies at the end of the stream (0.8 for ImageNet).
    alpha
        How balanced the classes are held to be, from 0 (not at all) to 1.
    rate_labels
        The step of the correction.
    rate_proxies
        The step of the proxies.
    temperature
        That of the proxies; the texts have the model's.
    horizon
        The length of the stream; 0 takes what an experiment says. Where nobody says it, proxies do not count.
    """

    beta: float = 0.4
    alpha: float = 1.0
    rate_labels: float = 20.0
    rate_proxies: float = 0.5
    temperature: float = 0.04
    horizon: int = 0

    def __post_init__(self) -> None:
        real("beta", self.beta, most=1.0)
        real("alpha", self.alpha, most=1.0)
        factor("rate_labels", self.rate_labels)
        factor("rate_proxies", self.rate_proxies)
        factor("temperature", self.temperature, least=1e-4)
        at_least("horizon", self.horizon, 0)


class OnZeta(ArrayMethod[OnZetaParams]):
    """One client, or, shared, all of them. The ``scores`` of its predictions are probabilities.

    >>> import numpy as np
    >>> from latte import ZeroShot
    >>> OnZeta(ZeroShot(np.eye(2), ("cat", "dog")), horizon=100).predict([[0.6, 0.8]]).scores.round(3)
    array([0., 1.])
    """

    Params: ClassVar = OnZetaParams
    title: ClassVar = "OnZeta"
    origin: ClassVar = Origin(
        paper="Online Zero-Shot Classification with CLIP",
        venue="ECCV 2024",
        code="idstcv/OnZeta",
        licence="Apache-2.0",
        constants="its authors; beta of the TTA-VLM suite",
        per_dataset="yes",
    )
    presets: ClassVar[dict[str, OnZetaParams]] = {
        "imagenet": OnZetaParams(beta=0.8),
        "caltech101": OnZetaParams(alpha=0.0),
    }

    if TYPE_CHECKING:

        def __init__(
            self, zero_shot: ZeroShot, params: Given[OnZetaParams] = None, **options: Unpack[OnZetaOptions]
        ) -> None: ...

    @staticmethod
    def messages(params: OnZetaParams, classes: int) -> Messages:
        """Return what the global form sends for every image: the embedding up, proxies and multipliers down."""
        return Content(1), Content(classes, numbers=classes)

    def fresh(self) -> State:
        """Return the image number (), multipliers (C,) of zero, proxies (C, D) that are the texts, the length ()."""
        text = self.zero_shot.text.astype(np.float64)
        horizon = np.array(float(self.params.horizon))
        return {"images": np.zeros(()), "multipliers": np.zeros(len(text)), "proxies": text, "horizon": horizon}

    def expect(self, images: int) -> None:
        """Take over the length of the stream, unless the parameters say it."""
        if self.params.horizon:
            return
        self.memory["horizon"] = np.array(float(images))
        if images < FEW * self.zero_shot.classes:
            message = f"OnZeta has fewer than {FEW} images per class: its proxies count in full before they have learnt"
            warnings.warn(f"{message}, and zero-shot is better. Give it a larger horizon", stacklevel=2)

    def predict_rows(self, views: Vectors) -> Prediction:
        """Answer from the plain view, then move multipliers and proxies."""
        vector, p = views[0].astype(np.float64), self.params
        logits = self.zero_shot.logits(vector)
        self.memory["images"] += 1
        number, multipliers, proxies = float(self.memory["images"]), self.memory["multipliers"], self.memory["proxies"]
        q = softmax(logits + multipliers)  # the softmax times exp(multipliers), divided by its sum
        v = softmax(proxies @ vector / p.temperature)
        share = self._share(number)
        scores = share * v + (1 - share) * q
        step = p.rate_labels / math.sqrt(number)
        self.memory["multipliers"] = np.maximum(0.0, multipliers - step * (q - p.alpha / len(q)))
        moved = proxies - p.rate_proxies / (math.sqrt(number) * p.temperature) * (v - q)[:, None] * vector
        self.memory["proxies"] = moved / np.linalg.norm(moved, axis=1, keepdims=True)
        return self.prediction(scores, entropy_of_one(logits), normalised_by_sum=True)

    def _share(self, number: float) -> float:
        """Return the share of the proxies in the answer for this image of the stream."""
        horizon = float(self.memory["horizon"])
        if not horizon:
            if number == 1:
                message = "OnZeta does not know the length of the stream: its proxies do not count. Give it a horizon"
                warnings.warn(message, stacklevel=4)
            return 0.0
        return self.params.beta * math.sqrt(min(1.0, number / horizon))
