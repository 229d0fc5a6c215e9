"""The order of two donors whose similarities are too close for products in single precision.

Exact similarities decide, and among equals the ranking of the clients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .largest import Scores
from .routing import Routing
from .table import digests_of
from .types import Integers, Mask, Reals, Vectors

NOTHING_IN_COMMON = -2.0  # below every cosine: such a donor comes last, but it may come
# Two products of float32 unit vectors that are closer than this may be ordered either way. A product is off by up to
# 3e-7 (D up to 2,048), so the difference of two by up to 6e-7; the rest is reserve. The engine has
# less reserve for the same cosines (1e-6, NEAR_SIMILARITY of simulation.engine.tolerances), because a choice that is
# taken again costs it a way out of a compiled loop; here all of them are computed again at once. Either only decides
# what is computed again exactly, so the choices are the same.
NEAR = 4e-6
NEARER = 2e-12  # the same of products in double precision: each is off by less than (D + C) 2^-53, D + C up to 4,096
_ODD = np.uint64(0x9E3779B97F4A7C15)  # spreads the bits of a digest: 2^64 over the golden ratio
_MANY = 16  # pairs among which it pays to look for equal ones
_CHUNK = 256  # vectors whose exact products are computed at a time, to bound the memory


class Uploaded(NamedTuple):
    """What everyone uploaded: ``vectors`` (C, n, D), ``seen`` (n, C), and ``ranking`` (n,), which decides ties.

    ``digests`` (n, C) are the same where vectors are; None: they are computed when they are needed.
    """

    vectors: Vectors
    seen: Mask
    ranking: Integers
    digests: NDArray[np.uint64] | None = None

    def digests_by_class(self, labels: Integers) -> NDArray[np.uint64]:
        """Return the digests (k, n) of some classes."""
        if self.digests is not None:
            return self.digests.T[labels]
        return np.stack([digests_of(self.vectors[label]) for label in labels])


class Questions(NamedTuple):
    """Which donors to choose. Each of r choices has a ``client``, a ``label``, and a ``place``.

    The place is that of the client among the clients that are served together.
    """

    client: Integers
    label: Integers
    place: Integers

    def of(self, rows: Any) -> Questions:
        """Return the questions in some ``rows``."""
        return Questions(*(array[rows] for array in self))


class NearTies:
    """Orders candidates by what is exact. ``order`` (n,) is the place of each client in the ranking."""

    def __init__(self, uploaded: Uploaded, routing: Routing, order: Integers) -> None:
        self.uploaded, self.routing, self.order = uploaded, routing, order
        self._digests: NDArray[np.uint64] | None = None

    def settle(
        self, questions: Questions, rows: Integers, values: Scores, by_class: bool, tolerance: float
    ) -> tuple[Integers, Reals]:
        """Return the candidates ``rows`` (r, k) and their ``values`` in their true order.

        Only candidates that are near another one are computed again, all of them at once.
        """
        near, exact = near_another(values, tolerance), values.astype(np.float64)
        row, _ = at = np.nonzero(near)
        exact[at] = self._exact(questions.of(row), rows[at], by_class)
        exact[~np.isfinite(values)] = -np.inf
        best = np.lexsort((self.order[rows], -exact), axis=-1)
        return np.take_along_axis(rows, best, axis=1), np.take_along_axis(exact, best, axis=1)

    def settle_crowd(self, question: Questions, rows: Integers, k: int) -> tuple[Integers, Reals]:
        """Return the k best of ``rows`` (p,), more clients than usual that are near each other, and their values."""
        exact = self._exact(question.of(np.zeros(len(rows), np.int64)), rows, True)
        best = np.lexsort((self.order[rows], -exact))[:k]
        return rows[best], exact[best]

    def order_by_means(
        self, clients: Integers, among: Integers, chosen: Callable[[int, Integers], Integers]
    ) -> Integers:
        """Return ``among`` (p,) in the order (m, p) of their mean similarities to ``clients`` (m,), the best first.

        They come in the order of the ranking, which decides between equals.

        Equal vectors are multiplied once per class, in double precision, so that clients with the same vectors have the
        same mean. Others that are too close to order are computed again if they matter: ``chosen`` returns the places
        that do in the order for the i-th client.
        """
        vectors, seen = self.uploaded.vectors, self.uploaded.seen
        total, keys = np.zeros((2, len(clients), len(among)))
        for label in range(len(vectors)):
            asking = np.flatnonzero(seen[clients, label])
            (digests,) = self.uploaded.digests_by_class(np.array([label]))
            _, first, place = np.unique(digests[among], return_index=True, return_inverse=True)
            total[asking] += wide_products(vectors[label], clients[asking], among[first])[:, place]
            # 40 bits per class: sums that are the same for the same vectors, exact in float64
            keys[asking] += (digests[among] * _ODD * np.uint64(2 * label + 1) >> np.uint64(24)).astype(np.float64)
        common = np.rint(seen[clients].astype(np.float32) @ seen[among].T.astype(np.float32)).astype(np.int64)
        scores = means(total, common)
        orders = np.argsort(-scores, axis=1, kind="stable")
        values, ordered = (np.take_along_axis(array, orders, axis=1) for array in (scores, keys))
        close = values[:, :-1] - values[:, 1:] <= NEARER
        doubtful = close & (ordered[:, :-1] != ordered[:, 1:])
        for i in np.flatnonzero(doubtful.any(axis=1)).tolist():
            run = np.concatenate([[0], np.cumsum(~close[i])])  # of clients each of which is close to the next
            runs = run[1:][doubtful[i]]
            runs = runs[runs <= run[chosen(i, among[orders[i]]).max()]]
            if not len(runs):
                continue
            again = orders[i, np.isin(run, runs)]
            who = np.full(len(again), clients[i])
            scores[i, again] = self._exact(Questions(who, who, who), among[again], False)
            orders[i] = np.argsort(-scores[i], kind="stable")
        return among[orders]

    def _exact(self, questions: Questions, rows: Integers, by_class: bool) -> Reals:
        """Return the similarities in float64 of pairs: of the client of each question, and of ``rows`` (p,)."""
        vectors, seen = self.uploaded.vectors, self.uploaded.seen
        if by_class:
            return self._dots(questions.label, rows, questions.client)
        if self.routing.empty_query == "released":
            return scores_by_place(len(self.order), self.routing)[self.order[rows]]
        common = seen[rows] & seen[questions.client]
        total = np.zeros(len(rows))
        for label in range(len(vectors)):
            mine = common[:, label]
            total[mine] += self._dots(np.full(mine.sum(), label), rows[mine], questions.client[mine])
        return means(total, common.sum(axis=1))

    def _dots(self, labels: Integers, rows: Integers, others: Integers) -> Reals:
        """Return products (p,) in float64, those of many pairs only once for pairs of the same vectors."""
        vectors, digests = self.uploaded.vectors, self.uploaded.digests
        if len(rows) < _MANY or digests is None:
            return _dots(vectors, labels, rows, others)
        pairs = digests[rows, labels] * _ODD + digests[others, labels]
        _, first, place = np.unique(pairs, return_index=True, return_inverse=True)
        return _dots(vectors, labels[first], rows[first], others[first])[place]


def exact_products(vectors: Vectors, label: int, rows: Integers, own: int) -> Reals:
    """Return the products (k,) in float64 of a client and candidates ``rows`` (k,)."""
    return _dots(vectors, np.full_like(rows, label), rows, np.full_like(rows, own))


def wide_products(vectors: Vectors, clients: Integers, rows: Integers) -> Reals:
    """Return the products (m, p) in double precision, in any order of summation, of ``clients`` (m,) and ``rows``."""
    own, products = vectors[clients].astype(np.float64), np.empty((len(clients), len(rows)))
    for start in range(0, len(rows), _CHUNK):
        part = slice(start, start + _CHUNK)
        np.matmul(own, vectors[rows[part]].astype(np.float64).T, out=products[:, part])
    return products


def first_of_equals(keys: NDArray[np.uint64], ranking: Integers, most: int, width: int) -> tuple[Integers, Mask]:
    """Return the columns (r, k) of ``keys`` (r, n) that are among the ``most`` first of their equals in the ranking.

    The mask says which of them are there. There are at least ``width`` columns.

    >>> keys = np.array([[7, 7, 5, 7]], np.uint64)
    >>> [array.tolist() for array in first_of_equals(keys, np.array([3, 2, 1, 0]), 2, 4)]
    [[[2, 3, 1, 0]], [[True, True, True, False]]]
    """
    ranked = keys[:, ranking]
    order = np.argsort(ranked, axis=1, kind="stable")
    ranked, place = np.take_along_axis(ranked, order, axis=1), np.arange(keys.shape[1])
    begins = np.ones(ranked.shape, np.bool_)
    np.not_equal(ranked[:, 1:], ranked[:, :-1], out=begins[:, 1:])
    among = place - np.maximum.accumulate(np.where(begins, place, 0), axis=1) < most
    counts = among.sum(axis=1)
    there = np.arange(max(counts.max(initial=0), width)) < counts[:, None]
    columns = np.zeros(there.shape, np.int64)
    columns[there] = ranking[order[among]]
    return columns, there


def _dots(vectors: Vectors, labels: Integers, rows: Integers, others: Integers) -> Reals:
    """Return products (p,) in float64; each is summed by itself, so that equal vectors give equal products."""
    dots = np.empty(len(rows))
    for start in range(0, len(rows), _CHUNK):
        part = slice(start, start + _CHUNK)
        first, second = vectors[labels[part], rows[part]], vectors[labels[part], others[part]]
        dots[part] = np.multiply(first, second, dtype=np.float64).sum(axis=1)
    return dots


def near_another(values: Scores, tolerance: float) -> Mask:
    """Return which of ``values`` (r, k), the largest first, are too close to the value before or after them."""
    with np.errstate(invalid="ignore"):  # -inf beside -inf
        close = values[:, :-1] - values[:, 1:] <= tolerance
    near: Mask = np.zeros(values.shape, np.bool_)
    near[:, :-1] = close
    near[:, 1:] |= close
    return near


def means(total: Reals, count: Integers) -> Reals:
    """Return the mean similarity over so many classes."""
    result: Reals = np.where(count > 0, total / np.maximum(count, 1), NOTHING_IN_COMMON)
    return result


def scores_by_place(n: int, routing: Routing) -> Reals:
    """Return the scores of the released code: joining order, without the first."""
    place = np.arange(n)
    return np.where((place > 0) & (place <= routing.external_slots), -1.0 * place, -np.inf)
