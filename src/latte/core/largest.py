"""The largest numbers of each row, for rows that are long."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .types import Integers, Mask

Scores: TypeAlias = NDArray[Any]  # float32 or float64

_EQUALS = 4  # candidates per number to find: with more of them, too many scores are equal for groups to be of use


def largest(scores: Scores, k: int) -> tuple[Integers, Scores]:
    """Return the places (r, k) and values (r, k) of the k largest of ``scores`` (r, n), best first, ties in any order.

    >>> [array.tolist() for array in largest(np.array([[3.0, 1.0, 4.0, 2.0]]), 2)]
    [[[2, 0]], [[4.0, 3.0]]]
    """
    places, values = _candidates(scores, k)
    order = np.argsort(values, axis=1)[:, : -k - 1 : -1]
    return np.take_along_axis(places, order, axis=1), np.take_along_axis(values, order, axis=1)


def _candidates(scores: Scores, k: int) -> tuple[Integers, Scores]:
    """Return places and values (r, m), with m >= k, among which are the k largest of each row.

    The columns are divided into groups. At least k numbers of a row, and few others, reach the k-th largest of the
    maxima of the groups. Finding this bound and these numbers takes a third of the time of a partition of the row.
    """
    r, n = scores.shape
    if k == n:
        return np.tile(np.arange(n), (r, 1)), scores
    size = math.isqrt(n // k)
    if size > 1:
        groups = scores[:, : n - n % size].reshape(r, size, -1)  # a view: members lie n // size apart
        bound = np.partition(groups.max(axis=1), -k, axis=1)[:, -k, None]
        reached = scores >= bound
        if np.count_nonzero(reached) <= _EQUALS * r * k:
            return _by_row(reached, scores)
    places = np.argpartition(scores, n - k, axis=1)[:, n - k :]
    return places, np.take_along_axis(scores, places, axis=1)


def _by_row(reached: Mask, scores: Scores) -> tuple[Integers, Scores]:
    """Return places and values (r, m) of the True entries of ``reached``; rows with fewer than m end in -inf."""
    row, place = _entries(reached)
    counts = np.bincount(row, minlength=len(scores))
    column = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
    places = np.zeros((len(scores), counts.max()), np.int64)
    values = np.full(places.shape, -np.inf, scores.dtype)
    places[row, column], values[row, column] = place, scores[row, place]
    return places, values


def _entries(reached: Mask) -> tuple[Integers, Integers]:
    """Return the row and the place of each True of a mask (r, n), row by row; they are read as they lie in memory."""
    if reached.flags.c_contiguous:
        row, place = np.divmod(np.flatnonzero(reached), reached.shape[1])
        return row, place
    place, row = np.divmod(np.flatnonzero(reached.T), len(reached))
    order = np.argsort(row.astype(np.min_scalar_type(len(reached))), kind="stable")  # small numbers are sorted faster
    return row[order], place[order]
