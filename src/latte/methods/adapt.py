"""ADAPT, probabilistic Gaussian alignment (NeurIPS 2025), its online form: zero-shot logits times a factor per class.

The image is in the bank when it is answered, and counts twice for the mean of its class. The similarities of step 5 are
those of the last image that was stored; with ``similarity="own"`` they are the image's own.

**Classes without images are vetoed**, and with few images per class it is zero-shot: its banks have to be full first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Unpack

import numpy as np

from ..core.maths import entropy_nats, entropy_of_one, ridge_products, softmax
from ..core.types import MemoryFill, Prediction, Reals, State, Vectors
from ..core.validate import MOST_SLOTS, at_least, choice, factor, real
from .base import ArrayMethod, Given, Origin
from .traffic import Content, Messages
from .views import check_views, most_confident

if TYPE_CHECKING:
    from ..core.zero_shot import ZeroShot
    from .options import AdaptOptions


@dataclass(frozen=True, slots=True)
class AdaptParams:
    """The parameters of ADAPT.

    Parameters
    ----------
    k
        Images per class.
    alpha
        The share of the images in the mean of a class; the rest is the text.
    s
        The temperature of the Gaussians. Published per dataset (the presets); how it was chosen is not said.
    similarity
        "last" as in the official code, "own" for the image's own.
    views
        "first" reads the plain view; "confident" the mean of the tenth of the views with the lowest entropy.
    """

    k: int = 16
    alpha: float = 0.9
    s: float = 100.0
    similarity: str = "last"
    views: str = "first"

    def __post_init__(self) -> None:
        at_least("k", self.k, 1, MOST_SLOTS)
        real("alpha", self.alpha, most=1.0)
        factor("s", self.s, least=1e-3)
        choice("similarity", self.similarity, ("last", "own"))
        check_views(self.views)


PUBLISHED = {
    "imagenet": 20, "imagenet-s": 20, "imagenet-v": 30, "imagenet-a": 40, "imagenet-r": 100, "imagenet-c": 10,
    "pets": 100, "eurosat": 100, "aircraft": 100, "food101": 100, "caltech101": 100,
    "flowers102": 60, "cars": 60, "dtd": 60, "sun397": 60, "ucf101": 70,
}  # fmt: skip


class Adapt(ArrayMethod[AdaptParams]):
    """One client, or, shared, all of them. Of the ``scores`` of its predictions only the order means something.

    >>> import numpy as np
    >>> from latte import ZeroShot
    >>> Adapt(ZeroShot(np.eye(2), ("cat", "dog"))).predict([[0.6, 0.8]]).label
    1
    """

    Params: ClassVar = AdaptParams
    title: ClassVar = "ADAPT"
    origin: ClassVar = Origin(
        paper="Backpropagation-Free Test-Time Adaptation via Probabilistic Gaussian Alignment (arXiv 2508.15568)",
        venue="NeurIPS 2025",
        code="AIM-SKKU/ADAPT",
        licence="none",
        constants="its authors, but s=100: one for all data",
        per_dataset="yes",
    )
    presets: ClassVar[dict[str, AdaptParams]] = {name: AdaptParams(s=float(s)) for name, s in PUBLISHED.items()}

    if TYPE_CHECKING:

        def __init__(
            self, zero_shot: ZeroShot, params: Given[AdaptParams] = None, **options: Unpack[AdaptOptions]
        ) -> None: ...

    @staticmethod
    def messages(params: AdaptParams, classes: int) -> Messages:
        """Return what the global form sends for every image: the embedding up, the whole bank down."""
        stored = classes * params.k
        return Content(1), Content(stored, numbers=stored, entropies=stored, flags=stored)

    def fresh(self) -> State:
        """Return an empty bank (C, K) of embeddings with three numbers each, and the means (C, D)."""
        shape = self.zero_shot.classes, self.params.k
        return {
            "vectors": np.zeros((*shape, self.zero_shot.dim)),
            "probability": np.zeros(shape),
            "entropy": np.zeros(shape),
            "similarity": np.zeros(shape),
            "valid": np.zeros(shape, np.bool_),
            "means": self.zero_shot.text.astype(np.float64),
        }

    def predict_rows(self, views: Vectors) -> Prediction:
        """Offer the image to the bank, then answer."""
        kept = [0]
        if self.params.views == "confident":
            kept = most_confident(self.zero_shot.logits(views)).confident.tolist()
        each = self.zero_shot.logits(views[kept])
        vector, logits, p = views[kept].astype(np.float64).mean(axis=0), each.mean(axis=0), softmax(each).mean(axis=0)
        uncertainty = float(entropy_nats(np.log(np.maximum(p, 1e-300))))
        self._store(int(logits.argmax()), vector, p, uncertainty)
        similarity = self.memory["similarity"]
        if self.params.similarity == "own":
            similarity = self.memory["vectors"] @ vector
        gaussian = self._weights @ vector + self._bias
        gaussian -= gaussian.max() + math.log(np.exp(gaussian - gaussian.max()).sum())
        images = int(self.memory["valid"].sum())
        u = gaussian + self.params.s / (2 * images) * (similarity * self.memory["probability"]).sum(axis=1)
        scores = logits * np.exp((u - u.max()) / self.params.s)
        return self.prediction(scores, entropy_of_one(self.zero_shot.logits(views[0])))

    def _store(self, label: int, vector: Reals, p: Reals, uncertainty: float) -> None:
        memory = self.memory
        valid, entropies = memory["valid"][label], memory["entropy"][label]
        slot = int(valid.sum())
        if slot == self.params.k:
            slot = int(entropies.argmax())
            if not uncertainty < entropies[slot]:
                return
        probabilities = memory["probability"][label]
        memory["vectors"][label, slot], probabilities[slot], entropies[slot] = vector, p[label], uncertainty
        valid[slot] = True
        total = probabilities @ memory["vectors"][label] + p[label] * vector  # it is in the bank, and counts again
        mean = total / (probabilities.sum() + p[label])
        memory["means"][label] = self.params.alpha * mean + (1 - self.params.alpha) * self.zero_shot.text[label]
        memory["similarity"] = memory["vectors"] @ vector
        self.rebuild()

    def rebuild(self) -> None:
        """Calculate Λμ (C, D) and -ln C - ½ μᵀΛμ (C,) from the bank and the means."""
        means, valid = self.memory["means"], self.memory["valid"]
        rows = (self.memory["vectors"] - means[:, None])[valid]
        if len(rows) > 1:
            self._weights = ridge_products(means, rows - rows.mean(axis=0))
        else:
            self._weights = means.copy()  # Λ = I
        self._bias = -math.log(len(means)) - 0.5 * np.einsum("cd,cd->c", self._weights, means)

    def memory_fill(self) -> MemoryFill:
        """Return how full the bank is."""
        valid = self.memory["valid"]
        return MemoryFill(int(valid.sum()), valid.size, int(valid.any(axis=1).sum()))
