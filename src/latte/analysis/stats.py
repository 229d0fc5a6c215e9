"""Means over seeds, paired differences and their confidence intervals.

Seeds are the unit of repetition: one seed fixes one partition and one order, and every method is run on the same
ones. So two methods are compared seed by seed (paired), which removes what the seed does to both.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ..core.validate import at_least
from ..errors import refuse

LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over ``seeds`` runs; ``sd`` (n - 1 in the denominator) is None with one run."""

    mean: float
    sd: float | None
    seeds: int


@dataclass(frozen=True, slots=True)
class Paired:
    """The mean of ``first - second`` over the seeds that both have, with its confidence interval.

    ``low`` and ``high`` are None with one seed in common: one pair says nothing about its own noise. ``metric`` is the
    key of what was compared: by default the accuracy over samples.
    """

    first: str
    second: str
    mean: float
    low: float | None
    high: float | None
    seeds: int
    metric: str = "micro"

    @property
    def constant(self) -> bool:
        """Whether every seed gives the same difference: then the seeds measure no noise, and there is no interval."""
        return self.low is not None and self.high is not None and self.high - self.low < 1e-9

    @property
    def clear(self) -> bool:
        """Whether there is an interval and it leaves zero out."""
        if self.low is None or self.high is None or self.constant:
            return False
        return self.low > 0 or self.high < 0

    @property
    def unclear(self) -> bool:
        """Whether there is an interval and it holds zero."""
        return self.low is not None and not self.constant and not self.clear


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
