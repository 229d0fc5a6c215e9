"""TDA: a cache of confident embeddings that attracts, and one of half-confident embeddings that repels.

The method is that of "Efficient Test-Time Adaptation of Vision-Language Models" (TDA) with the order and the
constants of its official code. Peculiarities that are kept:

- the image is in the caches when its own logits are computed;
- the window of the negative cache compares H / log2 C, whose largest value is ln 2 and not 1: the published
  0.2 and 0.5 are 0.289 and 0.721 of the largest entropy;
- the negative cache keeps the *lowest* entropies of those in its window;
- items are summed, not averaged: a fuller class gets larger logits, an empty one 0;
- all four comparisons are strict.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar, Unpack

import numpy as np

from ..core.maths import entropy_of_one, softmax
from ..core.memory import NAMES, LocalMemory, check_near_copy, near_copy_field
from ..core.types import Arrays, Mask, MemoryFill, Prediction, Reals, State, Vectors
from ..core.validate import MOST_SLOTS, NORM_TOLERANCE, at_least, exactly, factor, finite_vectors, real, require
from ..errors import refuse
from .base import BaseMethod, Given, Origin
from .traffic import Content, CostShape, Messages, Terms
from .views import check_views, mean_probabilities, most_confident

if TYPE_CHECKING:
    from ..core.zero_shot import ZeroShot
    from .options import TdaOptions


SHARPEST = 1e6  # beta of the caches: from 1e7 on, two orders of one sum give other labels


class Cache(LocalMemory):
    """Replaces the first of the highest entropies.

    With ``unit=False`` the vectors are means of unit vectors that were not normalised: of any length up to 1.
    """

    def __init__(self, classes: int, slots: int, dim: int, unit: bool = True, near_copy: float = 0.0) -> None:
        super().__init__(classes, slots, dim, near_copy=near_copy)
        self.unit = unit

    def store(self, label: int, vector: Vectors, entropy: float) -> int:
        """Offer one item; return its slot, -1 if the class is full of entropies that are not higher."""
        valid, stored = self.valid[label], self.entropy[label]
        slot = int(stored.argmax()) if valid[-1] else int(valid.argmin())
        if valid[-1] and entropy >= stored[slot]:
            return -1
        self.vectors[label, slot], stored[slot], valid[slot] = vector, entropy, True
        return slot

    def checked_vectors(self, value: object, valid: Mask) -> Vectors:
        """Return a copy of the vectors, or refuse them."""
        if self.unit:
            return super().checked_vectors(value, valid)
        vectors = finite_vectors("vectors", value, valid, self.vectors.shape[2])
        if (np.square(vectors, dtype=np.float64).sum(axis=-1) > (1 + NORM_TOLERANCE) ** 2).any():
            raise refuse("vectors", "a vector longer than 1", "means of unit vectors")
        return vectors


class SortedCache(Cache):
    """Keeps the items of a class in the order of their entropy, as TDA's lists.

    What leaves a full class is its last item: among equal entropies the latest.

    >>> cache = SortedCache(classes=2, slots=2, dim=2)
    >>> [cache.insert(0, [1.0, 0.0], entropy) for entropy in (0.5, 0.2, 0.4, 0.4)]
    [0, 0, 1, -1]
    >>> cache.entropy[0]
    array([0.2, 0.4])
    """

    def store(self, label: int, vector: Vectors, entropy: float) -> int:
        """Offer one item; return its place, -1 if the class is full of entropies that are not higher."""
        count = int(self.valid[label].sum())
        if count == self.valid.shape[1] and entropy >= self.entropy[label, -1]:
            return -1
        place = int(self.entropy[label, :count].searchsorted(entropy, side="right"))
        push(self.vectors[label], place, vector)
        push(self.entropy[label], place, entropy)
        push(self.valid[label], place, True)
        return place

    def checked(self, arrays: Arrays) -> tuple[Vectors, Reals, Mask]:
        """Return copies of the three arrays, or refuse them."""
        vectors, uncertainty, valid = super().checked(arrays)
        if (valid[:, 1:] & (uncertainty[:, 1:] < uncertainty[:, :-1])).any():
            raise refuse("entropy", "a lower entropy after a higher one", "each class in ascending order")
        return vectors, uncertainty, valid


def push(row: Any, place: int, value: Any) -> None:
    """Put ``value`` at ``place`` of ``row`` (K, ...); the items behind it move up by one, and the last falls out."""
    row[place + 1 :] = row[place:-1].copy()
    row[place] = value


@dataclass(frozen=True, slots=True)
class TdaParams:
    """Parameters of TDA; plain names belong to the positive cache.

    Parameters
    ----------
    k, k_negative
        Items per class.
    alpha, alpha_negative
        Weigh their sum.
    beta, beta_negative
        Sharpen the similarity.
    entropy_above, entropy_below
        The negative cache takes items whose H / log2 C is between these.
    probability_above, probability_below
        It pushes down the classes whose stored probability is between these.
    views
        "first" (the plain view) or "confident" (the mean of the tenth of the views with the lowest entropy, not
        normalised).
    near_copy
        The cosine from which an image counts as a copy of a stored one and is not stored.
    """

    k: int = 3
    alpha: float = 2.0
    beta: float = 5.0
    k_negative: int = 2
    alpha_negative: float = 0.117
    beta_negative: float = 1.0
    entropy_above: float = 0.2
    entropy_below: float = 0.5
    probability_above: float = 0.03
    probability_below: float = 1.0
    views: str = "first"
    near_copy: float = near_copy_field()

    def __post_init__(self) -> None:
        at_least("k", self.k, 1, MOST_SLOTS)
        at_least("k_negative", self.k_negative, 1, MOST_SLOTS)
        for name in ("alpha", "beta", "alpha_negative", "beta_negative"):
            factor(name, getattr(self, name))
        for name in ("beta", "beta_negative"):
            if getattr(self, name) > SHARPEST:
                want = f"at most {SHARPEST:g}: above, the last bit of a cosine decides which class wins"
                raise refuse(name, f"{getattr(self, name):g}", want)
        for name in ("entropy", "probability"):
            above, below = getattr(self, f"{name}_above"), getattr(self, f"{name}_below")
            if real(f"{name}_above", above) >= real(f"{name}_below", below):
                raise refuse(f"{name}_below", below, f"more than {name}_above, which is {above}")
        check_views(self.views)
        check_near_copy(self.near_copy)


# (alpha, beta) of the positive cache in the official configurations; everything else is the same in all.
PUBLISHED = {
    "imagenet": (2.0, 5.0),
    "imagenet-a": (2.0, 5.0),
    "imagenet-v": (1.0, 8.0),
    "imagenet-r": (1.0, 8.0),
    "imagenet-s": (2.363, 7.45),
    "caltech101": (5.0, 5.0),
    "dtd": (2.0, 3.0),
    "eurosat": (4.0, 8.0),
    "aircraft": (2.0, 2.0),
    "food101": (1.0, 1.0),
    "flowers102": (1.0, 5.0),
    "pets": (2.0, 7.0),
    "cars": (1.0, 7.0),
    "sun397": (2.0, 3.0),
    "ucf101": (3.0, 8.0),
}


Entropy = TypeVar("Entropy", float, Reals)


def by_log2(entropy: Entropy) -> Entropy:
    """Return H / log2 C, which the official code compares, from H / ln C."""
    return entropy * math.log(2)


class Sight(NamedTuple):
    """What TDA takes from one image, whether from the plain view or from the confident ones."""

    vector: Vectors  # (D,)
    logits: Reals  # (C,)
    probabilities: Reals  # (C,)
    entropy: float  # divided by ln C


class NegativeCache(SortedCache):
    """Keeps with each item its zero-shot probabilities (C, K, C), and where they are inside the window."""

    def __init__(
        self, shape: tuple[int, int, int], window: tuple[float, float], unit: bool = True, near_copy: float = 0.0
    ) -> None:
        super().__init__(*shape, unit, near_copy)
        self.window = window
        self.probabilities: Reals = np.zeros((*shape[:2], shape[0]))
        self.inside = np.zeros_like(self.probabilities)

    def remember(self, label: int, sight: Sight) -> None:
        """Offer one item with its probabilities."""
        place = self.put(label, sight.vector, sight.entropy)
        if place >= 0:
            push(self.probabilities[label], place, sight.probabilities)
            push(self.inside[label], place, self._indicator(sight.probabilities))

    def _indicator(self, probabilities: Reals) -> Reals:
        above, below = self.window
        return ((probabilities > above) & (probabilities < below)).astype(np.float64)

    def state(self) -> State:
        """Return a copy of the four arrays."""
        return {**super().state(), "probabilities": self.probabilities.copy()}

    def load(self, arrays: Arrays) -> None:
        """Continue from what :meth:`state` returned; nothing changes if it does not fit."""
        require(arrays, (*NAMES, "probabilities"))
        vectors, uncertainty, valid = self.checked({name: arrays[name] for name in NAMES})
        stored = exactly("probabilities", arrays["probabilities"], np.float64, self.probabilities.shape)
        rows = stored[valid]
        if not bool(np.all(rows >= 0) and np.all(np.abs(rows.sum(axis=-1) - 1) < 1e-4)):  # NaN fails
            raise refuse("probabilities", "a row that is negative or does not sum to 1", "probabilities")
        self.vectors, self.entropy, self.valid = vectors, uncertainty, valid
        self.probabilities = np.where(valid[:, :, None], stored, 0.0)
        self.inside = self._indicator(self.probabilities) * valid[:, :, None]


class Tda(BaseMethod[TdaParams]):
    """One client, or, shared, all of them.

    >>> import numpy as np
    >>> from latte import ZeroShot
    >>> method = Tda(ZeroShot(np.eye(2), ("cat", "dog")))
    >>> method.predict([[0.6, 0.8]]).scores.round(3)
    array([60., 82.])
    """

    Params: ClassVar = TdaParams
    engine: ClassVar = "latte.engine.queues:TdaEngine"
    presets: ClassVar[dict[str, TdaParams]] = {
        name: TdaParams(alpha=alpha, beta=beta) for name, (alpha, beta) in PUBLISHED.items()
    }
    title: ClassVar = "TDA"
    origin: ClassVar = Origin(
        paper="Efficient Test-Time Adaptation of Vision-Language Models",
        venue="CVPR 2024",
        code="kdiAAA/TDA",
        licence="MIT",
        constants="this project: one neutral setting",
        per_dataset="yes",
    )
    colours: ClassVar = ("#0b67b2", "#6db9f5", "6 4")
    # the official configurations have alpha from 1 to 5 and beta from 1 to 8
    tuning: ClassVar = {"alpha": (0.5, 1.0, 2.0, 3.0, 5.0), "beta": (1.0, 3.0, 5.0, 8.0)}

    if TYPE_CHECKING:

        def __init__(
            self, zero_shot: ZeroShot, params: Given[TdaParams] = None, **options: Unpack[TdaOptions]
        ) -> None: ...

    @staticmethod
    def messages(params: TdaParams, classes: int) -> Messages:
        """Return what the global form sends for every image: the new item up, the whole memory down."""
        stored = classes * (params.k + params.k_negative)
        return Content(1, flags=1), Content(stored, entropies=stored, flags=stored)

    @staticmethod
    def macs(params: TdaParams, sizes: CostShape) -> Terms:
        """Count similarities, exponents and sums of two caches; a negative item weighs a row of C indicators."""
        c, d, k, negative = sizes.classes, sizes.dim, params.k, params.k_negative
        attract = {"similarity": c * k * d, "weights": c * k, "mix": c}
        repel = {"negative similarity": c * negative * d, "negative weights": c * negative}
        return {**attract, **repel, "negative sum": c * negative * c, "negative mix": c}

    def reset(self) -> None:
        """Forget everything."""
        p, (classes, dim) = self.params, self.zero_shot.text.shape
        unit, window = p.views == "first", (p.probability_above, p.probability_below)
        self.positive = SortedCache(classes, p.k, dim, unit, p.near_copy)
        self.negative = NegativeCache((classes, p.k_negative, dim), window, unit, p.near_copy)

    def predict_rows(self, views: Vectors) -> Prediction:
        """Remember the image if it qualifies, then add attraction and subtract repulsion."""
        plain = self.zero_shot.logits(views[0])
        uncertainty = entropy_of_one(plain)
        if self.params.views == "first":
            sight = Sight(views[0], plain, softmax(plain), uncertainty)
        else:
            sight = self._confident(views)
        copied = self._remember(sight)
        logits = sight.logits + self._attraction(sight.vector) - self._repulsion(sight.vector)
        return self.prediction(logits, uncertainty, near_copy=copied)

    def _confident(self, views: Vectors) -> Sight:
        """Means over the confident views; the entropy is that of the mean probability."""
        logits = self.zero_shot.logits(views)
        confident = most_confident(logits).confident
        p = mean_probabilities(logits[confident])
        nats = -float((p * np.log(p, where=p > 0, out=np.zeros_like(p))).sum())
        entropy = min(max(nats / math.log(len(p)), 0.0), 1.0)
        return Sight(views[confident].mean(axis=0), logits[confident].mean(axis=0), p, entropy)

    def _remember(self, sight: Sight) -> bool:
        """Offer an image to both caches; return whether the positive one has a near copy of it."""
        label = int(sight.logits.argmax())
        copied = self.positive.has_copy(label, sight.vector)
        if not copied:
            self.positive.store(label, sight.vector, sight.entropy)
        if self.params.entropy_above < by_log2(sight.entropy) < self.params.entropy_below:
            self.negative.remember(label, sight)
        return copied

    def _attraction(self, vector: Vectors) -> Reals:
        """Return alpha · Σ exp(-beta (1 - f·f_j)) over the items of each class (C,)."""
        total: Reals = _weights(self.positive, vector, self.params.beta).sum(axis=1)
        return self.params.alpha * total

    def _repulsion(self, vector: Vectors) -> Reals | float:
        """Return the same over the negative items, for the classes whose stored probability is inside."""
        if not self.negative.valid.any():
            return 0.0
        weights = _weights(self.negative, vector, self.params.beta_negative)
        total: Reals = weights.reshape(-1) @ self.negative.inside.reshape(-1, len(weights))
        return self.params.alpha_negative * total

    def memory_fill(self) -> MemoryFill:
        """Return how full the positive cache is."""
        return self.positive.fill()

    def state(self) -> State:
        """Return both caches as arrays, named ``positive.*`` and ``negative.*``."""
        parts = (("positive", self.positive.state()), ("negative", self.negative.state()))
        return {f"{part}.{name}": array for part, arrays in parts for name, array in arrays.items()}

    def load(self, arrays: Arrays) -> None:
        """Continue from what :meth:`state` returned; nothing changes if it does not fit."""
        require(arrays, self.state())
        positive = {name: arrays[f"positive.{name}"] for name in NAMES}
        self.positive.checked(positive)
        self.negative.load({name: arrays[f"negative.{name}"] for name in (*NAMES, "probabilities")})
        self.positive.load(positive)


def _weights(cache: SortedCache, vector: Vectors, beta: float) -> Reals:
    """Return exp(-beta (1 - f·f_j)) (C, K), 0 in free slots."""
    similarity = (cache.vectors.reshape(-1, len(vector)) @ vector).reshape(cache.valid.shape)
    distance = 1.0 - np.minimum(similarity.astype(np.float64), 1.0)  # rounding can put a cosine above 1
    return np.exp(-beta * distance) * cache.valid
