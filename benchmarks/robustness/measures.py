"""Metrics beside accuracy: stability over orders, harm along a stream, detection of unknown classes.

Accuracies and rates are in per cent, AUROC and FPR95 in [0, 1].
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from latte.core.types import Integers, Mask, Reals
from latte.core.validate import at_least

WORST_SHARE = 0.1  # of the orders: those whose mean is the expected tail accuracy (OGA)


@dataclass(frozen=True, slots=True)
class Stability:
    """How runs differ that differ in the order of their streams alone.

    ``sd`` and ``range`` are those of the accuracies, ``tail`` is the mean of the worst tenth of them (the expected tail
    accuracy; with fewer than ten orders the lowest), ``flips`` the share of samples that get different predictions.
    """

    orders: int
    mean: float
    sd: float
    range: float
    tail: float
    flips: float


def over_orders(answers: Sequence[Integers], labels: Integers) -> Stability:
    """Compare the predictions ``answers`` (n,) of three or more orders, each sorted by sample, with ``labels`` (n,).

    >>> labels = np.array([0, 1, 1, 0])
    >>> stability = over_orders([labels, np.array([0, 1, 0, 0]), labels], labels)
    >>> stability.tail, stability.range, stability.flips
    (75.0, 25.0, 25.0)
    """
    at_least("orders", len(answers), 3)
    every = np.stack(answers)
    accuracies = np.sort(100 * (every == labels).mean(axis=1))
    worst = accuracies[: math.ceil(WORST_SHARE * len(accuracies))]
    return Stability(
        orders=len(every),
        mean=float(accuracies.mean()),
        sd=float(accuracies.std(ddof=1)),
        range=float(accuracies[-1] - accuracies[0]),
        tail=float(worst.mean()),
        flips=float(100 * (every != every[0]).any(axis=0).mean()),
    )


def regret(right: Mask, zero_shot_right: Mask) -> int:
    """Return by how many right answers zero-shot was ahead at the worst moment of a stream (n,); 0 if it never was.

    >>> regret(np.array([0, 0, 1, 1]), np.array([1, 1, 0, 0]))
    2
    """
    behind = np.cumsum(zero_shot_right.astype(np.int64) - right.astype(np.int64))
    return int(max(behind.max(initial=0), 0))


def auroc(known: Reals, unknown: Reals) -> float:
    """Return how often the score of a known class is above that of an unknown one; ties count half, NaN without either.

    >>> auroc(np.array([0.9, 0.8, 0.5]), np.array([0.5, 0.1]))
    0.9166666666666666
    """
    if not len(known) or not len(unknown):
        return math.nan
    ascending = np.sort(unknown)
    below, upto = (np.searchsorted(ascending, known, side=side).sum() for side in ("left", "right"))
    return float((below + upto) / (2 * len(known) * len(unknown)))


def fpr95(known: Reals, unknown: Reals) -> float:
    """Return the share of unknown images that pass at the highest threshold that 95 % of the known ones pass."""
    if not len(known) or not len(unknown):
        return math.nan
    threshold = np.sort(known)[::-1][math.ceil(0.95 * len(known)) - 1]
    return float((unknown >= threshold).mean())
