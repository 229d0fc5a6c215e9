"""Which views of an image to trust: several methods keep the share with the lowest entropy."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..core.maths import entropy_nats, softmax
from ..core.types import Integers, Reals
from ..core.validate import choice, real
from ..errors import refuse

VIEWS = ("first", "confident")
CONFIDENT = 0.1  # the share that TPT introduced and TDA, DMN and VTE took over


class Split(NamedTuple):
    """The confident views and the others, each most confident first."""

    confident: Integers
    discarded: Integers


def most_confident(logits: Reals, share: float = CONFIDENT) -> Split:
    """Split the views by the entropy of their ``logits`` (V, C); equals stay in the order of the views.

    int(share · V) are confident, as the official codes do, but never none: with V < 10 they divide by zero.

    >>> most_confident(np.array([[0.0, 0.1], [0.0, 9.0], [0.0, 1.0]]), share=0.5)
    Split(confident=array([1]), discarded=array([2, 0]))
    """
    order: Integers = np.argsort(entropy_nats(logits), kind="stable")
    count = max(1, int(share * len(order)))
    return Split(order[:count], order[count:])


def mean_probabilities(logits: Reals) -> Reals:
    """Return the mean over the views of the softmax of ``logits`` (V, C), as (C,)."""
    mean: Reals = softmax(logits).mean(axis=0)
    return mean


def check_share(name: str, value: object) -> None:
    """Refuse a share of the views that is not in (0, 1]."""
    if not 0 < real(name, value) <= 1:
        raise refuse(name, value, "a share of the views, above 0 and at most 1")


def check_views(value: object) -> None:
    """Refuse a way of using the views that a memory method does not know."""
    choice("views", value, VIEWS)
