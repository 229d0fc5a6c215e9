"""Means over seeds, paired differences and their confidence intervals.

Every method is run on the same seeds, and a seed fixes one split: one partition and one order. So two methods are
compared seed by seed (paired), which removes what the split does to both. All splits have the same images:
an interval over splits says nothing about other images. :func:`with_images` does, by a bootstrap over the images.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ..core.types import Integers
from ..core.validate import at_least
from ..data.federation import Federation
from ..edge.classify.evidence import collapse_limit
from ..errors import refuse

# --- means over seeds, paired differences and their confidence intervals --------------------------------------


LEVEL = 0.95
REPLICATES = 10_000  # of the bootstrap: an end of an interval moves by about 1 % of its length with other draws


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over ``seeds`` runs; ``sd`` (n - 1 in the denominator) is None with one run."""

    mean: float
    sd: float | None
    seeds: int


@dataclass(frozen=True, slots=True)
class Paired:
    """The mean of ``first - second`` over the seeds that both have, with its confidence intervals.

    ``low`` and ``high`` are those over splits; None with one seed in common: one pair says nothing about its own noise.
    ``image_low`` and ``image_high`` are those over splits and images; None where it is not known which images were
    answered rightly. With one seed they are over images alone. ``metric`` is the key of what was compared: by default
    the accuracy over samples.
    """

    first: str
    second: str
    mean: float
    low: float | None
    high: float | None
    seeds: int
    metric: str = "micro"
    image_low: float | None = None
    image_high: float | None = None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The wider interval of those there are; None where neither splits nor images measure any noise."""
        wider = (self.low, self.high) if self.image_low is None else (self.image_low, self.image_high)
        if wider[0] is None or wider[1] is None or wider[1] - wider[0] < 1e-9:
            return None
        return wider[0], wider[1]

    @property
    def split_interval(self) -> tuple[float, float] | None:
        """The interval over splits alone, where there is a wider one beside it."""
        if self.image_low is None or self.low is None or self.high is None or self.interval is None:
            return None
        return self.low, self.high

    @property
    def clear(self) -> bool:
        """Whether there is an interval and it leaves zero out; one seed is never clear."""
        return self.seeds > 1 and self.interval is not None and not self.unclear

    @property
    def unclear(self) -> bool:
        """Whether there is an interval and it holds zero."""
        return self.interval is not None and self.interval[0] <= 0 <= self.interval[1]


class Answers(NamedTuple):
    """How one method did on one seed, image by image.

    ``images`` are the numbers of the images (n,), ascending, ``seen`` how many samples show each, ``right`` how many of
    these were answered rightly.
    """

    images: Integers
    seen: Integers
    right: Integers


def estimate(values: Collection[float]) -> Estimate:
    """Return the mean and the sample standard deviation of ``values``.

    >>> estimate([70.0, 72.0])
    Estimate(mean=71.0, sd=1.4142135623730951, seeds=2)
    """
    n = at_least("values", len(values), 1)
    mean = math.fsum(values) / n
    if n == 1:
        return Estimate(mean, None, 1)
    return Estimate(mean, math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1)), n)


def shared_seeds(first: Mapping[int, float], second: Mapping[int, float]) -> list[int]:
    """Return the seeds that both have, in ascending order."""
    return sorted(set(first) & set(second))


def paired(
    names: tuple[str, str], first: Mapping[int, float], second: Mapping[int, float], level: float = LEVEL
) -> Paired | None:
    """Return how ``first`` (seed -> value) differs from ``second``; None where they have no seed in common.

    >>> difference = paired(("a", "b"), {0: 2.0, 1: 4.0}, {0: 1.0, 1: 1.0, 2: 9.0})
    >>> difference.mean, difference.seeds, round(difference.high, 3)
    (2.0, 2, 14.706)
    """
    seeds = shared_seeds(first, second)
    if not seeds:
        return None
    gap = estimate([first[seed] - second[seed] for seed in seeds])
    if gap.sd is None:
        return Paired(*names, gap.mean, None, None, 1)
    half = t_quantile(0.5 + level / 2, gap.seeds - 1) * gap.sd / math.sqrt(gap.seeds)
    return Paired(*names, gap.mean, gap.mean - half, gap.mean + half, gap.seeds)


def with_images(pair: Paired, first: Mapping[int, Answers], second: Mapping[int, Answers]) -> Paired:
    """Return ``pair``, a difference of accuracies, with its interval over splits and images.

    ``first`` and ``second`` are the answers by seed. An image is in every split, under both methods: a replicate draws
    the images once, with replacement, and takes all that happened to each. What the draws show and what the splits show
    are added as independent errors are. Without the same images everywhere, ``pair`` is returned as it is.

    >>> images = np.arange(200)
    >>> good, bad = (Answers(images, np.ones(200, int), (images < right).astype(int)) for right in (110, 100))
    >>> found = with_images(Paired("a", "b", 5.0, 5.0, 5.0, 2), {0: good, 1: good}, {0: bad, 1: bad})
    >>> [round(end) for end in found.interval]
    [2, 9]
    """
    seeds = shared_seeds(dict.fromkeys(first, 0.0), dict.fromkeys(second, 0.0))
    if len(seeds) != pair.seeds:
        return pair
    every = [answers[seed] for seed in seeds for answers in (first, second)]
    images, seen = every[0].images, every[0].seen
    if not all(np.array_equal(one.images, images) and np.array_equal(one.seen, seen) for one in every):
        return pair
    gaps = np.sum([first[seed].right - second[seed].right for seed in seeds], axis=0)
    if not gaps.any():
        return replace(pair, image_low=pair.low, image_high=pair.high)
    # A replicate depends only on how many images of each kind (gap, samples) are drawn. Half an image is added on
    # either side: where few images differ, intervals are too narrow without (Agresti and Min 2005).
    most = len(seeds) * int(seen.max())
    kinds, counts = np.unique(np.stack([gaps, seen], axis=1), axis=0, return_counts=True)
    kinds = np.concatenate([kinds, [[most, seen.max()], [-most, seen.max()]]])
    shares = np.append(counts, [0.5, 0.5]) / (len(images) + 1)
    drawn = np.random.default_rng(0).multinomial(len(images), shares, size=REPLICATES) @ kinds
    draws = 100 * drawn[:, 0] / (len(seeds) * drawn[:, 1])
    centre = 100 * (shares @ kinds[:, 0]) / (len(seeds) * (shares @ kinds[:, 1]))
    ends = np.quantile(draws, [0.5 - LEVEL / 2, 0.5 + LEVEL / 2]) - centre
    down, up = (0.0, 0.0) if pair.low is None or pair.high is None else (pair.mean - pair.low, pair.high - pair.mean)
    low, high = pair.mean - math.hypot(down, ends[0]), pair.mean + math.hypot(up, ends[1])
    return replace(pair, image_low=low, image_high=high)


def t_quantile(p: float, freedom: int) -> float:
    """Return the ``p`` quantile of Student's t with a whole number of degrees of freedom.

    >>> round(t_quantile(0.975, 4), 3)
    2.776
    """
    at_least("freedom", freedom, 1)
    if not 0 < p < 1:
        raise refuse("p", p, "a probability between 0 and 1")
    if p < 0.5:
        return -t_quantile(1 - p, freedom)
    low, high = 0.0, 1.0
    while t_cdf(high, freedom) < p:
        low, high = high, 2 * high
    while (middle := (low + high) / 2) not in (low, high):  # until two neighbouring floats are left
        low, high = (middle, high) if t_cdf(middle, freedom) < p else (low, middle)
    return high


def t_cdf(t: float, freedom: int) -> float:
    """Return P(T <= t) for Student's t: a finite sum of cosines, because ``freedom`` is whole.

    With θ = atan(t / √ν), P(|T| < t) is sin θ · Σ for even ν and 2/π · (θ + sin θ · Σ) for odd ν, where Σ runs
    over even (odd) powers of cos θ, each term from the one before.
    """
    theta = math.atan(t / math.sqrt(freedom))
    cosine, odd = math.cos(theta), freedom % 2
    term, total = (cosine, 0.0) if odd else (1.0, 0.0)
    for power in range(odd, freedom - 1, 2):  # power of the cosine in this term
        total += term
        term *= cosine * cosine * (power + 1) / (power + 2)
    inside = math.sin(theta) * total
    if odd:
        inside = 2 / math.pi * (theta + inside)
    return 0.5 + inside / 2


# --- whether the zero-shot model has collapsed: most of its predictions are one class, whatever the images show ---


@dataclass(frozen=True, slots=True)
class ZeroShotAnswers:
    """The zero-shot predictions of a federation: in per cent, how many are correct, and how many are one class."""

    classes: int
    accuracy: float
    most_frequent: str
    share: float

    @property
    def limit(self) -> float:
        """The share in per cent above which the model counts as collapsed."""
        return 100 * collapse_limit(self.classes)

    @property
    def collapsed(self) -> bool:
        """Whether most predictions are one class."""
        return self.share > self.limit

    def warning(self) -> str | None:
        """Return what to say about a model that has collapsed; None for any other."""
        if not self.collapsed:
            return None
        return (
            f"the zero-shot model has collapsed: {self.share:.0f} % of its predictions are {self.most_frequent!r}. "
            "Every method learns from these predictions and may lose accuracy: compare with clip on labelled images."
        )


def zero_shot_answers(federation: Federation) -> ZeroShotAnswers:
    """Return the zero-shot predictions of all images of all clients."""
    embeddings = federation.embeddings
    samples = np.concatenate([client.samples for client in federation.clients])
    names, text = embeddings.zero_shot.classnames, embeddings.zero_shot.text
    answers = (np.asarray(embeddings.views[samples, 0], np.float32) @ text.T).argmax(axis=1)
    counts = np.bincount(answers, minlength=len(names))
    right = float((answers == embeddings.labels[samples]).mean())
    top = int(counts.argmax())
    return ZeroShotAnswers(len(names), 100 * right, names[top], 100 * float(counts[top]) / len(answers))
