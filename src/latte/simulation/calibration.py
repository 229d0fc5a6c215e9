"""How far confidences are from accuracies."""

from __future__ import annotations

import numpy as np

from ..core.types import Integers, Mask, Reals
from ..core.validate import at_least
from ..errors import refuse

BINS = 20


def confidences_of(scores: Reals, temperature: Reals | float = 1.0) -> Reals:
    """Return the largest probability (...) in the softmax of ``scores`` (..., C) / ``temperature``.

    >>> confidences_of(np.log([[3.0, 1.0]]))
    array([0.75])
    """
    exponents = scores - scores.max(axis=-1, keepdims=True)
    exponents /= temperature
    confidences: Reals = 1.0 / np.exp(exponents, out=exponents).sum(axis=-1)
    return confidences


def expected_calibration_error(confidences: Reals, correct: Integers | Mask, bins: int = BINS) -> float:
    """Return the expected calibration error of answers (n,): 0 is best, 1 worst.

    Answers go into ``bins`` of equal width by their confidence, the probability of the predicted class. The error is
    the mean over answers of the distance between the accuracy and the mean confidence in their bin.

    >>> error = expected_calibration_error(np.array([0.9, 0.9, 0.6]), np.array([1, 0, 1]))
    >>> round(error, 3)  # (2 * 0.4 + 1 * 0.4) / 3
    0.4
    """
    if len(confidences) != len(correct) or not len(correct):
        raise refuse("confidences", f"{len(confidences)} for {len(correct)} answers", "one for each of at least one")
    if not ((confidences >= 0) & (confidences <= 1 + 1e-9)).all():
        raise refuse("confidences", "a value outside [0, 1]", "probabilities")
    number = np.minimum((confidences * at_least("bins", bins, 1)).astype(np.int64), bins - 1)
    gaps = np.bincount(number, confidences - correct, minlength=bins)
    return float(np.abs(gaps).sum() / len(correct))
