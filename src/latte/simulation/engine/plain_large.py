"""The loops for very many clients without numba."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...core.types import Integers, Mask, Vectors

if TYPE_CHECKING:
    from .blocks import Lists

NOTHING_IN_COMMON = -2.0  # below every cosine


def offer(
    products: Vectors, rows: Integers, candidates: tuple[Integers, Integers], total: Vectors, best: Lists
) -> None:
    """Offer candidates to the lists of the most similar, and add up their products.

    ``products`` (R, K) are of the lists ``rows`` (R,) with the candidates; ``total`` (B, T), or (B, 0) for none.
    """
    who, places = candidates
    if total.size:
        total[np.ix_(rows, places)] += products
    _take(best.who, best.values, rows, who[places], products)


def offer_means(
    total: Vectors,
    common: Vectors,
    members: tuple[Integers, Mask],
    candidates: tuple[Integers, Mask],
    lists: Lists,
) -> None:
    """Offer candidates by mean similarity to the lists of classes that members have not seen."""
    own, unseen = members
    who, seen = candidates
    scores = np.where(common > 0, total / np.maximum(common, 1), np.float32(NOTHING_IN_COMMON))
    scores[who == own[:, None]] = -np.inf
    for y in range(unseen.shape[1]):
        rows, columns = np.flatnonzero(unseen[:, y]), np.flatnonzero(seen[:, y])
        # as many as there are slots: a list has one more
        _take(lists.who[y, :, :-1], lists.values[y, :, :-1], rows, who[columns], scores[np.ix_(rows, columns)])


def _take(ids: Integers, values: Vectors, rows: Integers, who: Integers, scores: Vectors) -> None:
    """Bring some lists up to date; what they hold comes first among equals."""
    together = np.concatenate([values[rows], scores], axis=1)
    names = np.concatenate([ids[rows], np.broadcast_to(who, scores.shape)], axis=1)
    order = np.argsort(-together, axis=1, kind="stable")[:, : ids.shape[1]]
    best = np.take_along_axis(together, order, axis=1)
    values[rows] = best
    ids[rows] = np.where(np.isneginf(best), -1, np.take_along_axis(names, order, axis=1))


def best_of_rows(scores: Vectors, k: int) -> Integers:
    """Return the columns (M, k) of the largest of each row, best first, the first among equals."""
    columns: Integers = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return columns
