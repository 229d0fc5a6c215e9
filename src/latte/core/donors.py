"""Whose prototypes a client gets (eq. 2), for one client or for many at once.

For one client, the similarities are a matrix-vector product per class; :func:`donors_of` is the definition. For many,
:func:`donors_of_many` takes one matrix product per class. The two round differently, so a choice that rounding could
turn (:data:`NEAR`) is made again by the definition: both return the same donors.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .maths import top_k
from .routing import Routing
from .types import Integers, Mask, Reals, Vectors

NOTHING_IN_COMMON = -2.0  # below every cosine: such a donor comes last, but it may come
# Two products of float32 unit vectors that are closer than this may be ordered either way. A matrix product and a
# matrix-vector product of the same vectors differ by up to 6e-7 (D up to 2,048), so two of them by up to 1.2e-6.
NEAR = 4e-6

Scores: TypeAlias = NDArray[Any]  # float32 products, or float64 means of them


class Uploaded(NamedTuple):
    """What everyone uploaded: ``vectors`` (n, C, D), ``seen`` (n, C), and ``ranking`` (n,), which decides ties."""

    vectors: Vectors
    seen: Mask
    ranking: Integers


class Donors(NamedTuple):
    """The chosen rows (..., C, E), most similar first, and which of them are real."""

    rows: Integers
    valid: Mask


def donors_of(uploaded: Uploaded, routing: Routing, own: int) -> Donors:
    """Return the donors (C, E) of one client."""
    seen, ranking = uploaded.seen, uploaded.ranking
    slots = min(routing.external_slots, len(ranking) - 1)
    similarity = _similarities(uploaded, own)[ranking]  # (n, C), in an order that no push can change
    if routing.drop_first_rank:
        rows = ranking[top_k(np.ascontiguousarray(similarity.T), slots + 1)[:, 1:]]
        return Donors(rows, seen[rows, np.arange(seen.shape[1])[:, None]] & _allowed(seen[own], routing)[:, None])
    scores = np.where(seen[own], similarity, _scores_of_unseen(uploaded, routing, own, similarity))
    scores[~seen[ranking]] = -np.inf
    scores[ranking == own] = -np.inf  # B4: oneself, by identity
    best = top_k(np.ascontiguousarray(scores.T), slots)
    return Donors(ranking[best], np.isfinite(np.take_along_axis(scores.T, best, axis=1)))


def _allowed(seen: Mask, routing: Routing) -> Mask:
    """Return per class (..., C) whether a client may ask for it, given what it has ``seen`` (..., C)."""
    return seen | (routing.empty_query == "released")


def _similarities(uploaded: Uploaded, own: int) -> Reals:
    """Return g_own,y · g_j,y as (n, C); 0 where either has not seen y."""
    query = uploaded.vectors[own][:, :, None]
    rows = uploaded.vectors.transpose(1, 0, 2)
    similarity: Reals = np.matmul(rows, query)[:, :, 0].T.astype(np.float64)
    return similarity


def _scores_of_unseen(uploaded: Uploaded, routing: Routing, own: int, similarity: Reals) -> Reals:
    """Return the scores (n, 1) by which donors of a class that the client has not seen are ranked (B3)."""
    ranking = uploaded.ranking
    if routing.empty_query == "none":
        return np.full((len(ranking), 1), -np.inf)
    if routing.empty_query == "released":
        return _scores_by_place(len(ranking), routing)[:, None]
    common = uploaded.seen[ranking] & uploaded.seen[own]
    total = np.where(common, similarity, 0.0).sum(axis=1)
    return _means(total, common.sum(axis=1))[:, None]


def _scores_by_place(n: int, routing: Routing) -> Reals:
    """Return the scores of the released code: joining order, without the first."""
    place = np.arange(n)
    return np.where((place > 0) & (place <= routing.external_slots), -1.0 * place, -np.inf)


def _means(total: Reals, count: Integers) -> Reals:
    means: Reals = np.where(count > 0, total / np.maximum(count, 1), NOTHING_IN_COMMON)
    return means


# --- many clients -----------------------------------------------------------------------------------------


def donors_of_many(uploaded: Uploaded, routing: Routing, clients: Integers) -> Donors:
    """Return the donors (m, C, E) of ``clients`` (m,): what :func:`donors_of` returns for each."""
    n, classes = uploaded.seen.shape
    slots = min(routing.external_slots, max(n - 1, 0))
    shape = (len(clients), classes, slots)
    donors = Donors(np.zeros(shape, np.int64), np.zeros(shape, np.bool_))
    doubtful = np.zeros(shape[:2], np.bool_)
    if not slots:
        return donors
    totals = _Totals(uploaded, routing, clients)
    for label in range(classes):
        vectors = np.ascontiguousarray(uploaded.vectors[:, label])
        similarity = vectors[clients] @ vectors.T  # (m, n)
        totals.add(similarity)
        rows = np.flatnonzero(uploaded.seen[clients, label] | routing.drop_first_rank)
        scores = similarity if len(rows) == len(clients) else similarity[rows]
        _choose(donors, doubtful, (rows, label), _masked(scores, uploaded, routing, clients[rows], label), routing)
    totals.choose(donors, doubtful)
    if routing.drop_first_rank:
        allowed = _allowed(uploaded.seen[clients], routing)[:, :, None]
        donors.valid[...] = uploaded.seen[donors.rows, np.arange(classes)[:, None]] & allowed
    _settle(donors, doubtful, uploaded, routing, clients)
    return donors


def _masked(scores: Vectors, uploaded: Uploaded, routing: Routing, clients: Integers, label: int) -> Vectors:
    """Rule out those who have not seen the class, and oneself (B4); the released code does neither."""
    if not routing.drop_first_rank:
        scores[:, ~uploaded.seen[:, label]] = -np.inf
        scores[np.arange(len(clients)), clients] = -np.inf
    return scores


def _choose(donors: Donors, doubtful: Mask, place: tuple[Integers, int], scores: Scores, routing: Routing) -> None:
    """Fill in the best of ``scores`` (r, n) for some rows of one class, and mark where two are too close to order."""
    rows, label = place
    first, slots = int(routing.drop_first_rank), donors.rows.shape[2]
    if not len(rows):
        return
    best, values = _best(scores, min(first + slots + 1, scores.shape[1]))
    with np.errstate(invalid="ignore"):  # -inf beside -inf
        near = values[:, :-1] - values[:, 1:] <= NEAR
    doubtful[rows, label] = near.any(axis=1)
    donors.rows[rows, label] = best[:, first : first + slots]
    donors.valid[rows, label] = np.isfinite(values[:, first : first + slots])


def _best(scores: Scores, k: int) -> tuple[Integers, Scores]:
    """Return the places (r, k) and values (r, k) of the k largest, best first, equals in any order."""
    n = scores.shape[1]
    places = np.argpartition(scores, n - k, axis=1)[:, n - k :] if k < n else np.tile(np.arange(n), (len(scores), 1))
    values = np.take_along_axis(scores, places, axis=1)
    order = np.argsort(values, axis=1)[:, ::-1]
    return np.take_along_axis(places, order, axis=1), np.take_along_axis(values, order, axis=1)


class _Totals:
    """Similarities summed over the classes, of the clients that have not seen all: what ranks unseen classes (B3)."""

    def __init__(self, uploaded: Uploaded, routing: Routing, clients: Integers) -> None:
        self.uploaded, self.routing, self.clients = uploaded, routing, clients
        partial = ~uploaded.seen[clients].all(axis=1) & (routing.empty_query != "none") & (not routing.drop_first_rank)
        self.rows = np.flatnonzero(partial)  # of ``clients``
        self.sums = np.zeros((len(self.rows), len(uploaded.ranking)))

    def add(self, similarity: Vectors) -> None:
        """Add the similarities (m, n) of one class: 0 where either has not seen it."""
        if self.routing.empty_query == "client" and len(self.rows):
            self.sums += similarity[self.rows]

    def choose(self, donors: Donors, doubtful: Mask) -> None:
        """Fill in the donors of the classes that a client has not seen."""
        if not len(self.rows):
            return
        seen, own = self.uploaded.seen, self.clients[self.rows]
        scores = self._scores(own)
        for label in np.flatnonzero(~seen[own].all(axis=0)):
            mine = np.flatnonzero(~seen[own, label])
            masked = np.where(seen[:, label], scores[mine], -np.inf)
            masked[np.arange(len(mine)), own[mine]] = -np.inf
            _choose(donors, doubtful, (self.rows[mine], int(label)), masked, self.routing)

    def _scores(self, own: Integers) -> Reals:
        if self.routing.empty_query == "client":
            seen = self.uploaded.seen.astype(np.float32)
            return _means(self.sums, np.rint(seen[own] @ seen.T).astype(np.int64))
        by_row = np.empty(len(self.uploaded.ranking))
        by_row[self.uploaded.ranking] = _scores_by_place(len(by_row), self.routing)
        return np.tile(by_row, (len(own), 1))


def _settle(donors: Donors, doubtful: Mask, uploaded: Uploaded, routing: Routing, clients: Integers) -> None:
    """Choose again, as :func:`donors_of` does, where rounding could have decided."""
    for row in np.flatnonzero(doubtful.any(axis=1)):
        own, labels = int(clients[row]), np.flatnonzero(doubtful[row])
        if routing.empty_query != "client" or uploaded.seen[own, labels].all():
            # classes are independent then: those that are settled already need no product
            some = Uploaded(uploaded.vectors[:, labels], uploaded.seen[:, labels], uploaded.ranking)
            exact = donors_of(some, routing, own)
            donors.rows[row, labels], donors.valid[row, labels] = exact
        else:
            exact = donors_of(uploaded, routing, own)
            donors.rows[row, labels], donors.valid[row, labels] = exact.rows[labels], exact.valid[labels]
