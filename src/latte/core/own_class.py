"""Whether zero-shot classifies prototypes as the classes that they claim."""

from __future__ import annotations

import numpy as np

from ..errors import refuse
from .types import Mask, Reals, Rounding
from .zero_shot import ZeroShot

SINGLE_ROUNDING = 1e-6  # the rounding of unit vectors in single precision, with room for sums over their dimensions


def check_own_class(name: str, logits: Reals, seen: Mask, zero_shot: ZeroShot, rounding: Rounding) -> None:
    """Refuse vectors, one per class, if a ``seen`` vector has a higher logit for another class than for its own.

    ``logits`` (C, C) are those of the vectors, one row each. A vector that moved by its ``rounding`` (a number, or one
    for each row) changes the difference of two logits by at most that times the distance of the two texts times the
    scale.
    """
    excess = _excess(logits, zero_shot, np.asarray(rounding))
    odd = np.flatnonzero(seen & (excess.max(axis=1) > 0))
    if len(odd):
        own, other = int(odd[0]), int(excess[odd[0]].argmax())
        shown = (
            f"row {own} ({zero_shot.classnames[own]!r}), which zero-shot classifies as {zero_shot.classnames[other]!r}"
        )
        raise refuse(name, shown, "prototypes of their own classes")


def own_classes(logits: Reals, seen: Mask, zero_shot: ZeroShot, roundings: Reals) -> Mask:
    """Return which of m lists of vectors :func:`check_own_class` accepts: ``logits`` (m, C, C), ``seen`` (m, C).

    ``roundings`` are those of each row, (m, C), or of each list, (m, 1).
    """
    excess = _excess(logits, zero_shot, roundings)
    fine: Mask = ~(seen & (excess.max(axis=2) > 0)).any(axis=1)
    return fine


def _excess(logits: Reals, zero_shot: ZeroShot, rounding: Reals) -> Reals:
    """Return by how much the logit of each class exceeds that of the own class, less what rounding can explain."""
    slack = zero_shot.scale * (rounding[..., None] + SINGLE_ROUNDING) * zero_shot.distances
    own = np.diagonal(logits, axis1=-2, axis2=-1)[..., None]
    excess: Reals = logits - own - slack
    return excess
