"""BCA, Bayesian class adaptation (CVPR 2025): class centres that follow the images, and a prior for each of them.

The image is not in the memory when it is answered. The constants are those of a public port, because the authors' own
code could not be compared.

**It runs away in long streams of few classes.** Images are closer to each other than to any text, so every update makes
a class more likely for all images; the largest class wins more, and is updated more. Harmless below about a thousand
images per class.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Unpack

import numpy as np

from ..core.maths import entropy_of_one, softmax
from ..core.types import Prediction, State, Vectors
from ..core.validate import factor, real
from .base import ArrayMethod, Given, Origin
from .traffic import Content, Messages
from .views import check_views, confident_mean

if TYPE_CHECKING:
    from ..core.zero_shot import ZeroShot
    from .options import BcaOptions


@dataclass(frozen=True, slots=True)
class BcaParams:
    """The parameters of BCA.

    Parameters
    ----------
    centre_images
        How many images a text counts for, beside those that move its centre.
    prior_images
        The same for the prior of a class.
    centre_least
        The least probability at which an image moves a centre.
    prior_least
        The least probability at which it moves a prior.
    views
        "first" reads the plain view; "confident" the mean of the tenth of the views with the lowest entropy.
    """

    centre_images: float = 20_000.0
    prior_images: float = 1.0
    centre_least: float = 0.05
    prior_least: float = 0.65
    views: str = "first"

    def __post_init__(self) -> None:
        factor("centre_images", self.centre_images)
        factor("prior_images", self.prior_images)
        real("centre_least", self.centre_least, most=1.0)
        real("prior_least", self.prior_least, most=1.0)
        check_views(self.views)


class Bca(ArrayMethod[BcaParams]):
    """One client, or, shared, all of them. The ``scores`` of its predictions are probabilities.

    >>> import numpy as np
    >>> from latte import ZeroShot
    >>> Bca(ZeroShot(np.eye(2), ("cat", "dog"))).predict([[0.6, 0.8]]).scores.round(3)
    array([0., 1.])
    """

    Params: ClassVar = BcaParams
    title: ClassVar = "BCA"
    origin: ClassVar = Origin(
        paper="Bayesian Test-Time Adaptation for Vision-Language Models (arXiv 2503.09248)",
        venue="CVPR 2025",
        code="a port: walawalagoose/TTABC",
        licence="MIT",
        constants="those of the port",
        per_dataset="not known",
    )

    if TYPE_CHECKING:

        def __init__(
            self, zero_shot: ZeroShot, params: Given[BcaParams] = None, **options: Unpack[BcaOptions]
        ) -> None: ...

    @staticmethod
    def messages(params: BcaParams, classes: int) -> Messages:
        """Return what the global form sends for every image: the embedding up, centres and priors down."""
        return Content(1), Content(classes, numbers=classes * classes)

    def fresh(self) -> State:
        """Return centres (C, D) that are the texts, a prior (C, C) for each, and images that both count for (C,)."""
        text = self.zero_shot.text.astype(np.float64)
        return {
            "centres": text,
            "prior": np.eye(len(text)),
            "centre_images": np.full(len(text), self.params.centre_images),
            "prior_images": np.full(len(text), self.params.prior_images),
        }

    def predict_rows(self, views: Vectors) -> Prediction:
        """Answer, then move the centre and the prior of the predicted class."""
        centres, prior = self.memory["centres"], self.memory["prior"]
        vector, logits = confident_mean(self.zero_shot, views, self.params.views, centres)
        q = softmax(logits) @ prior
        label = int(q.argmax())
        if q[label] > self.params.centre_least:
            moved = self.memory["centre_images"][label] * centres[label] + vector
            centres[label] = moved / np.linalg.norm(moved)
            self.memory["centre_images"][label] += 1
        if q[label] > self.params.prior_least:
            images = self.memory["prior_images"][label]
            prior[label] = (images * prior[label] + q) / (images + 1)
            self.memory["prior_images"][label] += 1
        return self.prediction(q, entropy_of_one(self.zero_shot.logits(views[0])), normalised_by_sum=True)
