"""Whose prototypes a client gets (eq. 2), for any number of clients at once.

Donors are ranked by similarity: cosines of prototypes of one class or, for a class that the client has not seen, their
mean over the classes that both have (B3). Products in single precision choose candidates quickly. Where two of them are
too close to order (:data:`NEAR`), the exact similarities decide, and among equals the ranking of the clients does: so
the choice depends neither on how many clients are served at once nor on the order in which a product was summed.

Where more clients are close than can be chosen, most of them have the same prototype, or nearly so. Of equal ones only
the first of the ranking can be chosen, and the others are left out before anything is computed again. What is left is
chosen by products in double precision (:data:`NEARER`), a matrix product for all at once, before exact ones decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from .largest import Scores, largest
from .near_ties import (
    NEAR,
    NEARER,
    NearTies,
    Questions,
    Uploaded,
    exact_products,
    first_of_equals,
    means,
    near_another,
    scores_by_place,
    wide_products,
)
from .routing import Routing
from .types import Integers, Mask, Reals, Vectors

COLUMNS = 8  # of a product: 47 take longer than 48
TOGETHER = 8  # choices of one class at once, for which it pays to look for copies beforehand
ASKING = 512  # clients that are looked at closely at once, to bound the memory
SPARE = 8  # candidates beyond the slots: with so many more that are just as near, all clients are looked at


class Donors(NamedTuple):
    """The chosen rows (..., C, E), most similar first, and which of them are real."""

    rows: Integers
    valid: Mask


def donors_of(uploaded: Uploaded, routing: Routing, own: int) -> Donors:
    """Return the donors (C, E) of one client."""
    donors = donors_of_many(uploaded, routing, np.array([own], np.int64))
    return Donors(donors.rows[0], donors.valid[0])


def donors_of_many(uploaded: Uploaded, routing: Routing, clients: Integers) -> Donors:
    """Return the donors (m, C, E) of ``clients`` (m,)."""
    n, classes = uploaded.seen.shape
    shape = (len(clients), classes, min(routing.external_slots, max(n - 1, 0)))
    choice = _Choice(uploaded, routing, Donors(np.zeros(shape, np.int64), np.zeros(shape, np.bool_)))
    if not shape[2]:
        return choice.donors
    unseen = _Unseen(uploaded, routing, clients)
    for questions, similarity in _products(uploaded.vectors, clients):
        unseen.add(similarity)
        mine = uploaded.seen[questions.client, questions.label] | routing.drop_first_rank
        choice.make(*((questions, similarity) if mine.all() else (questions.of(mine), similarity[mine])), by_class=True)
    for questions, scores in unseen.scores():
        choice.make(questions, scores, by_class=False)
    choice.settle()
    if routing.drop_first_rank:
        allowed = uploaded.seen[clients] | (routing.empty_query == "released")  # what a client may ask for
        there = uploaded.seen[choice.donors.rows, np.arange(classes)[:, None]]
        choice.donors.valid[...] = there & allowed[:, :, None]
    return choice.donors


def donors_among(uploaded: Uploaded, routing: Routing, own: int, candidates: Integers) -> Integers:
    """Return the donors (E,) of a client for the only class of ``uploaded``, which the client has seen; -1 for none.

    This is the choice of :func:`donors_of` if the ``candidates`` (k,) contain every client that may be chosen: exact
    similarities decide, and then the ranking.
    """
    seen, first = uploaded.seen[:, 0], int(routing.drop_first_rank)
    if not first:
        candidates = candidates[seen[candidates] & (candidates != own)]
    exact = exact_products(uploaded.vectors, 0, candidates, own)
    best = np.lexsort((_places(uploaded.ranking)[candidates], -exact))
    donors = np.full(min(routing.external_slots, len(seen) - 1), -1, np.int64)
    chosen = candidates[best][first : first + len(donors)]
    donors[: len(chosen)] = np.where(seen[chosen], chosen, -1)
    return donors


def donors_of_unseen(
    uploaded: Uploaded, routing: Routing, own: int, label: int, similarity: Vectors | None = None
) -> Integers:
    """Return the donors (E,) of a client for the class ``label``, which it has not seen; -1 for none.

    This is the choice of :func:`donors_of` for one class, in a fraction of the time. ``similarity`` (C, n) are the
    client's products with all clients up to rounding, if they are known.
    """
    client = np.array([own], np.int64)
    slots = min(routing.external_slots, max(len(uploaded.seen) - 1, 0))
    shape = (1, uploaded.seen.shape[1], slots)
    choice = _Choice(uploaded, routing, Donors(np.zeros(shape, np.int64), np.zeros(shape, np.bool_)))
    unseen = _Unseen(uploaded, routing, client)
    if similarity is None:
        ((_, similarity),) = _products(uploaded.vectors, client)
    unseen.add(similarity)
    for questions, scores in unseen.scores([label]):
        choice.make(questions, scores, by_class=False)
    choice.settle()
    return np.where(choice.donors.valid[0, label], choice.donors.rows[0, label], -1)


def _joined(parts: list[Questions]) -> Questions:
    return Questions(*map(np.concatenate, zip(*parts, strict=True)))


def _places(ranking: Integers) -> Integers:
    """Return the place of each client in the ranking."""
    places = np.empty_like(ranking)
    places[ranking] = np.arange(len(ranking))
    return places


def _products(vectors: Vectors, clients: Integers) -> Iterator[tuple[Questions, Vectors]]:
    """Yield similarities (r, n): all classes of one client, or one class of many, a matrix product at a time.

    Those of many lie client after client in memory (they are a transposed view), and are good until the next product:
    BLAS takes two thirds of the time that way, and one array for all products stays in the cache. It also takes up to
    a quarter less for a few columns more, so that they are a multiple of :data:`COLUMNS`.
    """
    classes = np.arange(len(vectors))
    if len(clients) == 1:
        questions = Questions(np.full(len(classes), clients[0]), classes, np.zeros_like(classes))
        yield questions, np.matmul(vectors, vectors[:, clients[0], :, None])[:, :, 0]
        return
    place, m = np.arange(len(clients)), len(clients)
    padded = np.resize(clients, -(-m // COLUMNS) * COLUMNS)  # repeats some: what they get is not looked at
    similarity = np.empty((vectors.shape[1], len(padded)), vectors.dtype)
    for label in classes:
        np.matmul(vectors[label], vectors[label, padded].T, out=similarity)
        yield Questions(clients, np.full_like(place, label), place), similarity[:, :m].T


class _Close(NamedTuple):
    """Candidates ``rows`` (r, k) of which some are too close to order, with their ``values`` (r, k)."""

    questions: Questions
    rows: Integers
    values: Scores


class _Choice:
    """Fills in the donors: first by products, then, all at once, those that products cannot order (:meth:`settle`)."""

    def __init__(self, uploaded: Uploaded, routing: Routing, donors: Donors) -> None:
        self.uploaded, self.routing, self.donors = uploaded, routing, donors
        self.slots, self.first = donors.rows.shape[2], int(routing.drop_first_rank)
        self.needed = self.first + self.slots
        self.width = min(self.needed + SPARE, len(uploaded.ranking))
        self.all_seen = bool(uploaded.seen.all())
        self.ties = NearTies(uploaded, routing, _places(uploaded.ranking))
        self._close: dict[tuple[bool, float], list[_Close]] = {}  # by class or by means, and how close they are
        self._alike: list[Questions] = []  # classes that a client has not seen, with more close candidates than usual
        self._reached = np.zeros(len(uploaded.ranking), np.bool_)  # which are these candidates

    def make(self, questions: Questions, scores: Scores, by_class: bool) -> None:
        """Choose by ``scores`` (r, n), which are similarities of one class or means over the classes."""
        if not len(questions.client):
            return
        if not self.routing.drop_first_rank:  # B4: neither the client itself nor a client that has not seen the class
            if not self.all_seen:
                np.copyto(scores, -np.inf, where=~self.uploaded.seen.T[questions.label])
            scores[np.arange(len(scores)), questions.client] = -np.inf
        label = int(questions.label[0])
        of_one_class = by_class and len(scores) >= TOGETHER and label == questions.label[-1]
        if of_one_class and self._has_copies(label):
            self._choose_again(questions, scores)
        else:
            everyone = np.broadcast_to(np.arange(scores.shape[1]), scores.shape) if of_one_class else None
            self._choose(questions, scores, by_class, everyone)

    def _has_copies(self, label: int) -> bool:
        """Return whether two donors have the same prototype of a class."""
        (digests,) = self.uploaded.digests_by_class(np.array([label]))
        ordered = np.sort(digests if self.routing.drop_first_rank else digests[self.uploaded.seen[:, label]])
        return bool((ordered[1:] == ordered[:-1]).any())

    def _choose_again(self, questions: Questions, scores: Scores) -> None:
        """Choose by ``scores`` (r, n) of a class without the clients whose copies come before them."""
        labels, place = np.unique(questions.label, return_inverse=True)
        digests, ranking = self.uploaded.digests_by_class(labels), self.uploaded.ranking
        columns, there = first_of_equals(digests, ranking, self.needed + 1, self.width)
        if len(labels) == 1:
            scores = scores[:, columns[0]]
            columns = np.broadcast_to(columns, scores.shape)
        else:
            columns = columns[place]
            scores = np.take_along_axis(scores, columns, axis=1)
        self._choose(questions, np.where(there[place], scores, -np.inf), True, columns)

    def _choose(
        self, questions: Questions, scores: Scores, by_class: bool, columns: Integers | None, tolerance: float = NEAR
    ) -> None:
        """Choose by ``scores`` (r, k) of the clients in ``columns`` (r, k), which are the same for one class.

        None: of all clients, in their order, and copies have not been left out.
        """
        rows, values = largest(scores, self.width)
        if columns is not None:
            rows = np.take_along_axis(columns, rows, axis=1)
        self._put(questions, rows, values)
        near = np.flatnonzero(near_another(values, tolerance)[:, : self.needed].any(axis=1))
        if not len(near):
            return
        limit = values[near, self.needed - 1] - tolerance
        crowded = np.isfinite(limit) & (values[near, -1] >= limit) & (self.width < scores.shape[1])
        few, many, limit = near[~crowded], near[crowded], limit[crowded, None]
        if len(few):
            self._close.setdefault((by_class, tolerance), []).append(_Close(questions.of(few), rows[few], values[few]))
        if not len(many):
            return
        questions, scores = questions.of(many), scores[many]
        if not by_class:
            self._alike.append(questions)
            self._reached |= (scores >= limit).any(axis=0)
        elif columns is None:  # a second look, without those that cannot be chosen
            self._choose_again(questions, scores)
        elif tolerance == NEAR:
            self._choose_closely(questions, scores >= limit, columns, many)
        else:
            for i, crowd in enumerate(scores >= limit):
                question = questions.of([i])
                best, exact = self.ties.settle_crowd(question, columns[many[i], crowd], self.needed)
                self._put(question, best[None], exact[None])

    def _choose_closely(self, questions: Questions, reached: Mask, columns: Integers, many: Integers) -> None:
        """Choose by products in double precision among ``columns[many]`` (r, k) that ``reached`` (r, k) the best."""
        for label in np.unique(questions.label):
            mine = np.flatnonzero(questions.label == label)  # with the same columns
            some = reached[mine].any(axis=0)
            vectors, kept = self.uploaded.vectors[label], columns[many[mine[0]], some]
            for start in range(0, len(mine), ASKING):
                part = mine[start : start + ASKING]
                scores = wide_products(vectors, questions.client[part], kept)
                scores[~reached[part][:, some]] = -np.inf
                self._choose(questions.of(part), scores, True, np.broadcast_to(kept, scores.shape), NEARER)

    def settle(self) -> None:
        """Order by what is exact wherever products could not tell."""
        for (by_class, tolerance), parts in self._close.items():
            questions = _joined([part.questions for part in parts])
            rows, values = (np.concatenate([part[i] for part in parts]) for i in (1, 2))
            self._put(questions, *self.ties.settle(questions, rows, values, by_class, tolerance))
        if self._alike:
            self._settle_alike(_joined(self._alike))

    def _settle_alike(self, questions: Questions) -> None:
        """Choose for classes that clients have not seen: the first that have it, in one order for all classes."""
        among = self.uploaded.ranking[self._reached[self.uploaded.ranking]]
        clients, place = np.unique(questions.client, return_inverse=True)
        asked = np.split(np.argsort(place, kind="stable"), np.cumsum(np.bincount(place))[:-1])
        for start in range(0, len(clients), ASKING):

            def places(i: int, order: Integers, first: int = start) -> Integers:
                """Return the places (q, needed) in an order of clients that are chosen for the i-th client."""
                label = questions.label[asked[first + i]]
                for reach in (8 * self.needed, len(order)):
                    has = self.uploaded.seen[order[:reach]][:, label].T & (order[:reach] != clients[first + i])
                    if reach == len(order) or (has.sum(axis=1) >= self.needed).all():
                        break
                return np.argsort(~has, axis=1, kind="stable")[:, : self.needed]

            orders = self.ties.order_by_means(clients[start : start + ASKING], among, places)
            for i, order in enumerate(orders):
                best = order[places(i, order)]
                self._put(questions.of(asked[start + i]), best, np.zeros(best.shape))

    def _put(self, questions: Questions, rows: Integers, values: Scores) -> None:
        """Fill in the donors of some choices from their candidates (r, k), the best first."""
        chosen = slice(self.first, self.first + self.slots)
        self.donors.rows[questions.place, questions.label] = rows[:, chosen]
        self.donors.valid[questions.place, questions.label] = np.isfinite(values[:, chosen])


# --- classes that a client has not seen (B3) ------------------------------------------------------------------


class _Unseen:
    """Similarities summed over the classes, of the clients that have not seen all: what ranks unseen classes."""

    def __init__(self, uploaded: Uploaded, routing: Routing, clients: Integers) -> None:
        self.uploaded, self.routing, self.clients = uploaded, routing, clients
        partial = ~uploaded.seen[clients].all(axis=1) & (routing.empty_query != "none") & (not routing.drop_first_rank)
        self.rows = np.flatnonzero(partial)  # of ``clients``
        self.sums = np.zeros((len(self.rows), len(uploaded.ranking)))

    def add(self, similarity: Vectors) -> None:
        """Add the similarities of a product: 0 where either has not seen the class."""
        if self.routing.empty_query == "client" and len(self.rows):
            if len(self.clients) == 1:
                self.sums[0] = similarity.sum(axis=0, dtype=np.float64)
            else:
                self.sums += similarity[self.rows]

    def scores(self, labels: Iterable[int] | None = None) -> Iterator[tuple[Questions, Reals]]:
        """Yield scores (r, n) for the classes that clients have not seen, or those of ``labels``, a class at a time."""
        if not len(self.rows):
            return
        own, scores = self.clients[self.rows], self._scores()
        for label in np.flatnonzero(~self.uploaded.seen[own].all(axis=0)) if labels is None else labels:
            mine = np.flatnonzero(~self.uploaded.seen[own, label])
            yield Questions(own[mine], np.full_like(mine, label), self.rows[mine]), scores[mine]

    def _scores(self) -> Reals:
        if self.routing.empty_query == "client":
            seen = self.uploaded.seen.astype(np.float32)
            common = np.rint(seen[self.clients[self.rows]] @ seen.T).astype(np.int64)
            return means(self.sums, common)
        by_row = np.empty(len(self.uploaded.ranking))
        by_row[self.uploaded.ranking] = scores_by_place(len(by_row), self.routing)
        return np.tile(by_row, (len(self.rows), 1))
