"""OGA, online Gaussian adaptation: zero-shot probabilities times those of a Gaussian per class with one covariance.

The image is in the memory when it is answered. The official code stores embeddings and entropies in float16, which
decides who is stored; it divides a class mean by the capacity of the memory, not by what is stored (``mean``).

**A class with fewer than two images is vetoed** once the covariance is known: its mean is a text among images. Short
streams of many classes lose against zero-shot for that reason.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Unpack

import numpy as np

from ..core.maths import entropy_of_one, ridge_products, softmax
from ..core.types import MemoryFill, Prediction, Reals, State, Vectors
from ..core.validate import MOST_SLOTS, at_least, choice, factor
from .addition import Adding, ClassStatistics
from .base import ArrayMethod, Given, Origin
from .traffic import Content, Messages

if TYPE_CHECKING:
    from ..core.zero_shot import ZeroShot
    from .options import OgaOptions


@dataclass(frozen=True, slots=True)
class OgaParams:
    """The parameters of OGA.

    Parameters
    ----------
    k
        Images per class.
    tau
        How far the log-likelihoods of the Gaussians count.
    mean
        "capacity" divides the sum of a class by k, as the official code does, "count" by the images that are
        stored.
    """

    k: int = 8
    tau: float = 0.05
    mean: str = "capacity"

    def __post_init__(self) -> None:
        at_least("k", self.k, 1, MOST_SLOTS)
        factor("tau", self.tau)
        choice("mean", self.mean, ("capacity", "count"))


class Oga(ArrayMethod[OgaParams]):
    """One client, or, shared, all of them. The ``scores`` of its predictions are probabilities.

    >>> import numpy as np
    >>> from latte import ZeroShot
    >>> Oga(ZeroShot(np.eye(2), ("cat", "dog"))).predict([[0.6, 0.8]]).scores.round(3)
    array([0., 1.])
    """

    Params: ClassVar = OgaParams
    title: ClassVar = "OGA"
    origin: ClassVar = Origin(
        paper="Online Gaussian Test-Time Adaptation of Vision-Language Models",
        venue="preprint 2025",
        code="cfuchs2023/OGA",
        licence="MIT",
    )

    if TYPE_CHECKING:

        def __init__(
            self, zero_shot: ZeroShot, params: Given[OgaParams] = None, **options: Unpack[OgaOptions]
        ) -> None: ...

    @staticmethod
    def messages(params: OgaParams, classes: int) -> Messages:
        """Return what the global form sends for every image: the embedding up, the whole memory down."""
        stored = classes * params.k
        return Content(1), Content(stored, entropies=stored, flags=stored)

    def fresh(self) -> State:
        """Return an empty memory: embeddings (C, K, D), entropies (C, K) in nats, and which are stored (C, K)."""
        shape = self.zero_shot.classes, self.params.k
        return {
            "vectors": np.zeros((*shape, self.zero_shot.dim), np.float16),
            "entropy": np.full(shape, math.log(shape[0]), np.float16),
            "valid": np.zeros(shape, np.bool_),
        }

    def predict_rows(self, views: Vectors) -> Prediction:
        """Offer the plain view to the memory, then answer."""
        vector = views[0].astype(np.float64)
        logits = self.zero_shot.logits(vector)
        p = softmax(logits)
        label = int(logits.argmax())
        uncertainty = np.float16(-(p * np.log(p + 1e-9)).sum())
        entropies = self.memory["entropy"][label]
        if (uncertainty < entropies).any():
            slot = int(entropies.argmax())
            self.memory["vectors"][label, slot] = vector
            self.memory["entropy"][label, slot] = uncertainty
            self.memory["valid"][label, slot] = True
            self.rebuild()
        g = softmax(self.params.tau * (self._weights @ vector + self._bias))
        scores = p * g
        scores /= scores.sum()
        return self.prediction(scores, entropy_of_one(logits), normalised_by_sum=True)

    def rebuild(self) -> None:
        """Calculate means μ and precision Λ from the memory, and from them Λμ (C, D) and -½ μᵀΛμ (C,)."""
        means, self._weights = self.gaussians()
        self._bias = -0.5 * np.einsum("cd,cd->c", self._weights, means)

    def gaussians(self) -> tuple[Reals, Reals]:
        """Return the means μ (C, D), the text where fewer than two images are stored, and Λμ (C, D)."""
        valid, dim = self.memory["valid"], self.zero_shot.dim
        stored = self.memory["vectors"].astype(np.float64)  # (C, K, D), zero where nothing is stored
        count = valid.sum(axis=1)
        divisor = self.params.k if self.params.mean == "capacity" else np.maximum(count, 1)[:, None]
        means: Reals = np.where(count[:, None] >= 2, stored.sum(axis=1) / divisor, self.zero_shot.text)
        if count.max() <= 2:
            return means, dim * means
        rows = (stored - means[:, None])[valid]
        rows -= rows.mean(axis=0)
        if len(rows) > 4 * dim:
            return means, means @ np.linalg.pinv(rows.T @ rows / (len(rows) - 1), hermitian=True)
        return means, ridge_products(means, rows)

    def memory_fill(self) -> MemoryFill:
        """Return how full the memory is."""
        valid = self.memory["valid"]
        return MemoryFill(int(valid.sum()), valid.size, int(valid.any(axis=1).sum()))


class OgaFed(Adding[OgaParams], Oga):
    """A client whose means and covariance are those of its own images and of everyone else's (ours).

    A mean is divided by the images that it is made of, whatever ``mean`` says: the capacity of one memory means nothing
    to several.
    """

    has_scatter: ClassVar[bool] = True
    title: ClassVar = "OGA (by addition)"
    origin: ClassVar = replace(Oga.origin, constants="its authors; the addition is this project's")

    @staticmethod
    def messages(params: OgaParams, classes: int) -> Messages:
        """Return what is sent: means, counts and scatter, up and down."""
        return (Content(classes, numbers=classes, matrices=1),) * 2

    @classmethod
    def most_images(cls, params: OgaParams | None) -> float:
        """Return the slots of a class."""
        return float((params or cls.Params()).k)

    def summary(self) -> ClassStatistics:
        """Return the images of each class, their mean, and their scatter around these means."""
        count, sums, scatter = self._own()
        return ClassStatistics.of(count, sums, scatter, self.zero_shot.fingerprint)

    def _own(self) -> tuple[Reals, Reals, Reals]:
        valid, stored = self.memory["valid"], self.memory["vectors"].astype(np.float64)
        count, sums = valid.sum(axis=1).astype(np.float64), stored.sum(axis=1)
        rows = (stored - (sums / np.maximum(count, 1)[:, None])[:, None])[valid]
        return count, sums, rows.T @ rows

    def gaussians(self) -> tuple[Reals, Reals]:
        """Return the means μ (C, D) of all images, and Λμ (C, D)."""
        dim = self.zero_shot.dim
        count, sums, scatter = self._own()
        count, sums, scatter = count + self.others.counts, sums + self.others.sums, scatter + self.others.whole_scatter
        means: Reals = np.where(count[:, None] >= 2, sums / np.maximum(count, 1)[:, None], self.zero_shot.text)
        trace = float(np.trace(scatter))
        if count.max() <= 2 or trace <= 0:
            return means, dim * means
        ridge = scatter + trace / (count.sum() - 1) * np.eye(dim)
        return means, np.asarray(dim * np.linalg.solve(ridge, means.T).T, np.float64)
