"""The paper's lemma ε_asym ≤ ε_pre: the plane that the memory converges to errs no more than the zero-shot one.

Its proof goes by a plane in between, the zero-shot one moved to the origin: ε_asym ≤ ε(w_pre, 0) ≤ ε_pre. The three
errors are exact (:class:`Setting`); for some worlds they are measured on samples too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ..core.types import Integers, Reals
from .bounds import Setting
from .model import World

ERROR_ROUNDING = 1e-12  # of an error rate, where two of them are equal
NORMS = (0.05, 0.2, 0.4, 0.6, 0.8, 1.0, 1.13, 1.5, 2.5)
ANGLES = (0.0, 0.2, 0.5, 0.8, 1.0, 1.2, 1.4, 1.55)  # from μ to w_pre, below a right angle
BIASES = (-0.99, -0.7, -0.3, 0.0, 0.1, 0.5, 0.9)  # as shares of the largest that the theory allows, μ·w_pre + 1


@dataclass(frozen=True, slots=True)
class Planes:
    """The errors of the three planes in one world: exact, and the first and the last of them measured."""

    name: str
    d: int
    asymptotic: float
    unbiased: float
    initial: float
    measured_asymptotic: float
    measured_initial: float

    @property
    def holds(self) -> bool:
        """Whether ε_asym ≤ ε(w_pre, 0) ≤ ε_pre."""
        return errors_in_order(self.asymptotic, self.unbiased, self.initial)


@dataclass(frozen=True, slots=True)
class LemmaGrid:
    """The lemma on a grid of settings: in how many it holds, and the smallest and the largest gain ε_pre - ε_asym."""

    settings: int
    holding: int
    smallest_gain: float
    largest_gain: float

    @property
    def holds(self) -> bool:
        """Whether it holds in all of them."""
        return self.holding == self.settings


def errors_in_order(asymptotic: float, unbiased: float, initial: float) -> bool:
    """Return whether the three errors are in the order of the proof, up to rounding.

    >>> errors_in_order(0.1, 0.1, 0.2), errors_in_order(0.2, 0.1, 0.3)
    (True, False)
    """
    return asymptotic <= unbiased + ERROR_ROUNDING and unbiased <= initial + ERROR_ROUNDING


def compare_planes(name: str, world: World, queries: int, rng: np.random.Generator) -> Planes:
    """Return the errors of the planes of one world; the measured ones on ``queries`` samples that both see."""
    setting = world.setting
    points, y = world.domain.sample(queries, rng)
    limit = error_rate(points @ world.apexes[1], y)
    start = error_rate(world.classifier.margins(points), y)
    exact = (setting.error_asymptotic, setting.error_unbiased, setting.error_initial)
    return Planes(name, setting.d, *exact, limit, start)


def error_rate(margins: Reals, y: Integers) -> float:
    """Return the share of samples on the wrong side of a plane."""
    return float(np.mean((margins > 0) != y))


def compare_grid(dimensions: Sequence[int]) -> LemmaGrid:
    """Evaluate the lemma exactly for every combination of dimension, |μ|, angle and bias."""
    gains, holding = [], 0
    for setting in grid_settings(dimensions):
        errors = setting.error_asymptotic, setting.error_unbiased, setting.error_initial
        holding += errors_in_order(*errors)
        gains.append(errors[2] - errors[0])
    return LemmaGrid(len(gains), holding, min(gains), max(gains))


def grid_settings(dimensions: Sequence[int]) -> Iterator[Setting]:
    """Yield the settings of the grid."""
    for d in dimensions:
        for norm in NORMS:
            for angle in ANGLES:
                alignment = norm * math.cos(angle)
                yield from (Setting(d, norm, alignment, share * (alignment + 1)) for share in BIASES)
