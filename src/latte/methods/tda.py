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
from typing import ClassVar, NamedTuple, TypeVar

import numpy as np

from ..core.local_memory import NAMES
from ..core.maths import entropy_of_one, softmax
from ..core.near_copies import check_near_copy, near_copy_field
from ..core.stored import exactly, require
from ..core.types import Arrays, MemoryFill, Prediction, Reals, State, Vectors
from ..core.validate import MOST_SLOTS, at_least, factor, real
from ..errors import refuse
from .base import BaseMethod
from .caches import SortedCache, push
from .confident_views import check_views, mean_probabilities, most_confident
from .traffic import Content, Messages

SHARPEST = 1e6  # beta of the caches: from 1e7 on, two orders of one sum give other labels


@dataclass(frozen=True, slots=True)
class TdaParams:
    """The parameters of TDA; plain names belong to the positive cache.

    ``k`` items per class, ``alpha`` weighs their sum, ``beta`` sharpens the similarity. The negative cache
    takes items with ``entropy_above`` < H / log2 C < ``entropy_below`` and pushes down the classes whose
    stored probability is between ``probability_above`` and ``probability_below``. ``views`` is ``first``
    (the plain view) or ``confident`` (the mean of the tenth of the views with the lowest entropy, not
    normalised). ``near_copy`` is the cosine from which an image counts as a copy of a stored one and is not stored.
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
        _check_window("entropy", self.entropy_above, self.entropy_below)
        _check_window("probability", self.probability_above, self.probability_below)
        check_views(self.views)
        check_near_copy(self.near_copy)


def _check_window(name: str, above: float, below: float) -> None:
    if real(f"{name}_above", above) >= real(f"{name}_below", below):
        raise refuse(f"{name}_below", below, f"more than {name}_above, which is {above}")


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
        self._inside = np.zeros_like(self.probabilities)

    def remember(self, label: int, sight: Sight) -> None:
        """Offer one item with its probabilities."""
        place = self.put(label, sight.vector, sight.entropy)
        if place >= 0:
            push(self.probabilities[label], place, sight.probabilities)
            push(self._inside[label], place, self._indicator(sight.probabilities))

    def _indicator(self, probabilities: Reals) -> Reals:
        above, below = self.window
        return ((probabilities > above) & (probabilities < below)).astype(np.float64)

    def push_down(self, weights: Reals) -> Reals:
        """Return, per class (C,), the sum of the ``weights`` (C, K) of the items whose window it is in."""
        total: Reals = weights.reshape(-1) @ self._inside.reshape(-1, len(weights))
        return total

    def clear(self) -> None:
        """Forget everything."""
        super().clear()
        self.probabilities.fill(0)
        self._inside.fill(0)

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
        self._inside = self._indicator(self.probabilities) * valid[:, :, None]


class Tda(BaseMethod[TdaParams]):
    """One client, or, shared, all of them.

    >>> import numpy as np
    >>> from latte import ZeroShot
    >>> method = Tda(ZeroShot(np.eye(2), ("cat", "dog")))
    >>> method.predict([[0.6, 0.8]]).scores.round(3)
    array([60., 82.])
    """

    Params: ClassVar = TdaParams
    engine: ClassVar = "latte.simulation.engine.engines:TdaEngine"
    presets: ClassVar[dict[str, TdaParams]] = {
        name: TdaParams(alpha=alpha, beta=beta) for name, (alpha, beta) in PUBLISHED.items()
    }

    @staticmethod
    def messages(params: TdaParams, classes: int) -> Messages:
        """Return what the global form sends for every image: the new item up, the whole memory down."""
        stored = classes * (params.k + params.k_negative)
        return Content(1, flags=1), Content(stored, entropies=stored, flags=stored)

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
        return self.params.alpha_negative * self.negative.push_down(weights)

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
