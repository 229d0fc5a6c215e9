"""What accuracy does not tell: stability over orders, harm along a stream, detection of unknown classes, calibration.

Accuracies and rates are in per cent, AUROC and FPR95 in [0, 1]. "Better than chance" is not checked anywhere: a method
that is nearly sure of everything has ties, and ties count half.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..core.types import Integers, Mask, Reals
from ..core.validate import at_least
from ..errors import refuse
from ..simulation.results import BINS, expected_calibration_error

WORST_SHARE = 0.1  # of the orders: those whose mean is the expected tail accuracy (OGA)


@dataclass(frozen=True, slots=True)
class Stability:
    """How runs differ that differ in the order of their streams alone.

    ``sd`` and ``range`` are those of the accuracies, ``tail`` is the mean of the worst tenth of them (the expected tail
    accuracy; with fewer than ten orders the lowest), ``flips`` the share of samples that get different answers.
    """

    orders: int
    mean: float
    sd: float
    range: float
    tail: float
    flips: float


def over_orders(answers: Sequence[Integers], labels: Integers) -> Stability:
    """Compare ``answers`` (n,) of at least three orders, each sorted by sample, with the true ``labels`` (n,).

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


@dataclass(frozen=True, slots=True)
class Calibration:
    """How far probabilities can be believed; ``gap`` is mean confidence minus accuracy, above 0: too sure.

    ``ece``, ``adaptive_ece`` (bins of equally many answers) and ``gap`` are in per cent.
    """

    accuracy: float
    ece: float
    adaptive_ece: float
    gap: float
    brier: float
    nll: float


def calibration(probabilities: Reals, labels: Integers, bins: int = BINS) -> Calibration:
    """Measure ``probabilities`` (n, C), whose rows must sum to 1, against ``labels`` (n,): pooled, never by client."""
    if np.abs(probabilities.sum(axis=1) - 1).max() > 1e-6:
        raise refuse("probabilities", "rows that do not sum to 1", "probabilities: the softmax of logits")
    confidences, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == labels
    parts = np.array_split(np.argsort(confidences, kind="stable"), at_least("bins", bins, 1))
    uneven = sum(abs(float((confidences[part] - right[part]).sum())) for part in parts)
    true = probabilities[np.arange(len(labels)), labels]
    squares = (probabilities**2).sum(axis=1) - 2 * true + 1
    return Calibration(
        accuracy=float(100 * right.mean()),
        ece=100 * expected_calibration_error(confidences, right, bins),
        adaptive_ece=100 * uneven / len(labels),
        gap=float(100 * (confidences.mean() - right.mean())),
        brier=float(squares.mean()),
        nll=float(-np.log(np.maximum(true, 1e-12)).mean()),
    )
