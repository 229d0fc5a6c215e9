"""DMN, the zero-shot form: a deep memory per class, in which the text embedding has a permanent place.

The method is that of "Dual Memory Networks" (DMN-ZS) with the order and the constants of its official code.
Peculiarities that are kept:

- the image is in the memory when the memory is read;
- the entropy that decides who stays is -Σ q ln(q + 1e-8), which can be a little below 0;
- the text is always read, as one more item of its class: a class with no image is answered by its text alone;
- text and memory are mixed as probabilities, so that ``weight`` bounds the memory's veto against a class.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

import numpy as np

from ..core.maths import entropy_of_one, softmax
from ..core.memory import check_near_copy, near_copy_field
from ..core.types import Arrays, MemoryFill, Prediction, Reals, State, Vectors
from ..core.validate import MOST_SLOTS, at_least, factor
from .base import BaseMethod, Given, Origin
from .latte.readout import CANCELLED
from .tda import Cache
from .traffic import Content, CostShape, Messages, Terms
from .views import check_views, mean_probabilities, most_confident

if TYPE_CHECKING:
    from ..core.zero_shot import ZeroShot
    from .options import DmnOptions


# The official code runs once and keeps the weight of this list with the best accuracy on the test set.
WEIGHT_GRID = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)


@dataclass(frozen=True, slots=True)
class DmnParams:
    """Parameters of DMN.

    Parameters
    ----------
    k
        Images per class beside the text.
    beta
        Sharpens the similarity.
    weight
        That of the memory's probabilities against the text's.
    views
        What gives the pseudo-label and the entropy: "first" (the plain view) or "confident" (the mean probability of
        the tenth of the views with the lowest entropy). What is stored and answered is the plain view, either way.
    near_copy
        The cosine from which an image counts as a copy of a stored one and is not stored.
    """

    k: int = 50
    beta: float = 5.5
    weight: float = 1.0
    views: str = "first"
    near_copy: float = near_copy_field()

    def __post_init__(self) -> None:
        at_least("k", self.k, 1, MOST_SLOTS)
        factor("beta", self.beta)
        factor("weight", self.weight)
        check_views(self.views)
        check_near_copy(self.near_copy)


# What that search found (ViT-B/16), *with the labels of the test set*; 1 is the choice without a search.
PUBLISHED = {
    "imagenet": 1.0,
    "imagenet-a": 3.0,
    "imagenet-v": 1.0,
    "imagenet-r": 0.3,
    "imagenet-s": 1.0,
    "caltech101": 0.3,
    "dtd": 10.0,
    "eurosat": 0.3,
    "aircraft": 1.0,
    "food101": 0.3,
    "flowers102": 10.0,
    "pets": 1.0,
    "cars": 0.3,
    "sun397": 3.0,
    "ucf101": 0.3,
}

# Latte's paper does not print its k. The 2.05M bytes of a round of "DMN-ZS (global)" in its Table 3 (CIFAR-100-C,
# ViT-B/16) are 100 classes · 20 · 512 dimensions · 2 bytes, if only the memory that is downloaded counts.
PAPER_K = 20


def softened_entropy(q: Reals) -> Any:
    """Return the entropy that DMN goes by, -Σ q ln(q + 1e-8) / ln C, of probabilities (..., C), as (...)."""
    return -(q * np.log(q + 1e-8)).sum(axis=-1) / math.log(q.shape[-1])


class Dmn(BaseMethod[DmnParams]):
    """One client, or, shared, all of them.

    The ``scores`` of its predictions are the mixed scores p_text + weight · p_memory: a sum of probabilities,
    of which the argmax is what counts.

    >>> import numpy as np
    >>> from latte import ZeroShot
    >>> Dmn(ZeroShot(np.eye(2), ("cat", "dog"))).predict([[0.6, 0.8]]).scores.round(3)
    array([0., 2.])
    """

    Params: ClassVar = DmnParams
    engine: ClassVar = "latte.engine.queues:DmnEngine"
    presets: ClassVar[dict[str, DmnParams]] = {
        **{name: DmnParams(weight=w) for name, w in PUBLISHED.items()},
        "paper": DmnParams(k=PAPER_K),
    }
    title: ClassVar = "DMN-ZS"
    origin: ClassVar = Origin(
        paper="Dual Memory Networks: A Versatile Adaptation Approach for Vision-Language Models",
        venue="CVPR 2024",
        code="YBZh/DMN",
        licence="MIT",
        constants="its authors, but weight=1: the choice without a search",
        per_dataset="yes",
        test_labels="its authors: yes; the default here: no",
    )
    colours: ClassVar = ("#007a62", "#46cbb0", "6 4")
    tuning: ClassVar = {"weight": WEIGHT_GRID}

    if TYPE_CHECKING:

        def __init__(
            self, zero_shot: ZeroShot, params: Given[DmnParams] = None, **options: Unpack[DmnOptions]
        ) -> None: ...

    @staticmethod
    def messages(params: DmnParams, classes: int) -> Messages:
        """Return what the global form sends for every image: the new item up, the whole memory down."""
        stored = classes * params.k
        return Content(1, flags=1), Content(stored, entropies=stored, flags=stored)

    @staticmethod
    def macs(params: DmnParams, sizes: CostShape) -> Terms:
        """Count as Latte, with the text as one more item, whose similarity the head has computed already."""
        c, k, d = sizes.classes, params.k, sizes.dim
        read = {"similarity": c * k * d, "weights": c * (k + 1), "weighted sum": c * (k + 1) * d}
        return {**read, "product": c * d, "mix": c}

    @staticmethod
    def own_macs(params: DmnParams, sizes: CostShape) -> Terms:
        """Return similarities, weights, Σ w s, wᵀ G w, and the row of G that changed."""
        c, k, d = sizes.classes, params.k, sizes.dim
        read = {"similarity": c * k * d, "weights": c * (k + 1), "sum": c * (k + 1)}
        norm = {"norm": c * (k + 1) * (k + 1) + c * (k + 1), "mix": c}
        return {**read, **norm, "gram update": (k + 1) * d}

    # --- one image ----------------------------------------------------------------------------------------

    def predict_rows(self, views: Vectors) -> Prediction:
        """Remember the plain view, then mix what the text says with what the memory says."""
        logits = self.zero_shot.logits(views[0])
        text = softmax(logits)
        q = text
        if self.params.views != "first":
            every = self.zero_shot.logits(views)
            q = mean_probabilities(every[most_confident(every).confident])
        label = int(q.argmax())
        copied = self.memory.has_copy(label, views[0])
        if not copied and (slot := self.memory.store(label, views[0], float(softened_entropy(q)))) >= 0:
            self._relate(label, slot)
        scores = text + self.params.weight * self.memory_probabilities(views[0], logits)
        return self.prediction(scores, entropy_of_one(logits), normalised_by_sum=True, near_copy=copied)

    def memory_probabilities(self, vector: Vectors, logits: Reals) -> Reals:
        """Return what the memory says (C,) of an embedding ``vector`` (D,) whose zero-shot ``logits`` are (C,)."""
        return softmax(self.zero_shot.scale * self._cosines(vector, logits / self.zero_shot.scale))

    # --- what is read -------------------------------------------------------------------------------------

    def _cosines(self, vector: Vectors, text: Reals) -> Reals:
        """Return f · v_y (C,), v_y = normalise(Σ exp(-beta (1 - f·a)) a) over images and text a of class y.

        The length of the sum comes from the Gram matrix of the class: |Σ w a|² = wᵀ G w. A common factor of
        the weights cancels, so the largest exponent of the class is subtracted first.
        """
        depth = int(self.memory.valid.any(axis=0).sum())  # slots fill in order: behind this all are free
        similarity = np.empty((len(text), 1 + depth))  # the text first
        similarity[:, 0] = text
        similarity[:, 1:] = self.memory.vectors[:, :depth] @ vector
        exponent = self.params.beta * similarity
        exponent[:, 1:][~self.memory.valid[:, :depth]] = -np.inf
        weights = np.exp(exponent - exponent.max(axis=1, keepdims=True))
        gram = self._gram[:, : 1 + depth, : 1 + depth]
        dots = (weights * similarity).sum(axis=1)
        squares = (weights * (gram @ weights[:, :, None])[:, :, 0]).sum(axis=1)
        live = squares > CANCELLED
        cosines: Reals = np.zeros_like(dots)
        cosines[live] = dots[live] / np.sqrt(squares[live])
        return cosines

    def _build(self) -> None:
        """Compute the Gram matrices (C, 1 + K, 1 + K) of the text and the images of each class."""
        classes, slots = self.memory.valid.shape
        self._gram = np.zeros((classes, 1 + slots, 1 + slots))
        self._gram[:, 0, 0] = 1.0
        for label, slot in np.argwhere(self.memory.valid):
            self._relate(int(label), int(slot))

    def _relate(self, label: int, slot: int) -> None:
        """Update the one row and column of a Gram matrix that an insertion changes.

        A product and a sum, not BLAS: the result for a pair does not depend on when or where it was stored,
        so that a restored memory continues bit for bit.
        """
        images = self.memory.vectors[label].astype(np.float64)
        image = images[slot]
        gram = self._gram[label]
        gram[1 + slot, 1:] = gram[1:, 1 + slot] = (images * image).sum(axis=1)
        gram[1 + slot, 0] = gram[0, 1 + slot] = (self.zero_shot.text[label] * image).sum()

    # --- state --------------------------------------------------------------------------------------------

    def reset(self) -> None:
        """Forget every image."""
        near_copy = self.params.near_copy
        self.memory = Cache(self.zero_shot.classes, self.params.k, self.zero_shot.dim, near_copy=near_copy)
        self._build()

    def memory_fill(self) -> MemoryFill:
        """Return how full the memory is."""
        return self.memory.fill()

    def state(self) -> State:
        """Return the images of the memory as arrays; the text is not state."""
        return self.memory.state()

    def load(self, arrays: Arrays) -> None:
        """Continue from what :meth:`state` returned; nothing changes if it does not fit."""
        self.memory.load(arrays)
        self._build()
