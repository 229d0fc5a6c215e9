"""Donors: whose prototypes a client gets (eq. 2), for any number of clients at once.

Donors are ranked by similarity: cosines of prototypes of one class or, for a class that the client has not seen, their
mean over the classes that both have (B3). Products in single precision choose candidates quickly. Where two of them are
too close to order (:data:`NEAR`), the exact similarities decide, and among equals the ranking of the clients does: so
the choice depends neither on how many clients are served at once nor on the order in which a product was summed.

Where more clients are close than can be chosen, most of them have the same prototype, or nearly so. Of equal ones only
the first of the ranking can be chosen, and the others are left out before anything is computed again. What is left is
chosen by products in double precision (:data:`NEARER`), a matrix product for all at once, before exact ones decide.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...core.types import Integers, Mask, Reals, Vectors
from ...core.validate import MOST_SLOTS, at_least, choice
from ...errors import refuse

EMPTY_QUERIES = ("client", "none", "released")
NOTHING_IN_COMMON = -2.0  # below every cosine: such a donor comes last, but it may come
# Two products of float32 unit vectors that are closer than this may be ordered either way. A product is off by up to
# 3e-7 (D up to 2,048), so the difference of two by up to 6e-7; the rest is reserve. The engine has
# less reserve for the same cosines (1e-6, NEAR_SIMILARITY of the engine), because a choice that is
# taken again costs it a way out of a compiled loop; here all of them are computed again at once. Either only decides
# what is computed again exactly, so the choices are the same.
NEAR = 4e-6
NEARER = 2e-12  # the same of products in double precision: each is off by less than (D + C) 2^-53, D + C up to 4,096
SPARE = 8  # candidates beyond the slots: with so many more that are just as near, all clients are looked at
COLUMNS = 8  # of a product: 47 take longer than 48
ASKING = 512  # clients that are looked at closely at once, to bound the memory
_ODD = np.uint64(0x9E3779B97F4A7C15)  # spreads the bits of a digest: 2^64 over the golden ratio
_MANY = 512  # pairs among which it pays to look for equal ones
_CHUNK = 256  # vectors whose exact products are computed at a time, to bound the memory

Scores: TypeAlias = NDArray[Any]  # float32 or float64
Digests: TypeAlias = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Routing:
    """Rules that decide which prototypes a client gets.

    Parameters
    ----------
    external_slots
        The paper's k_e; if fewer clients have the class, fewer prototypes come back (B10).
    empty_query
        What a client gets for a class that it has not seen (B3). "client": donors that have the class, ranked by the
        mean similarity over the classes both have seen. "none": nothing. "released": what the released code returns,
        the first clients in joining order.
    drop_first_rank
        Whether the best match is excluded instead of the client itself, as in the released code (B4).
    """

    external_slots: int
    empty_query: str = "client"
    drop_first_rank: bool = False

    def __post_init__(self) -> None:
        at_least("k_e", self.external_slots, 0, MOST_SLOTS)
        choice("empty_query", self.empty_query, EMPTY_QUERIES)
        if self.drop_first_rank and self.empty_query == "client":
            raise refuse("empty_query", "'client' with drop_first_rank", "'released' or 'none'")

    @property
    def by_joining(self) -> bool:
        """Whether ties go to the client that joined first, as in the released code, or by a hash of the name."""
        return self.empty_query == "released" or self.drop_first_rank


class Uploaded(NamedTuple):
    """What everyone uploaded: ``vectors`` (C, n, D), ``seen`` (n, C), and ``ranking`` (n,), which decides ties.

    ``digests`` returns :func:`digests_of` the vectors (C, n), which are needed only where many clients are close; None:
    they are computed then.
    """

    vectors: Vectors
    seen: Mask
    ranking: Integers
    digests: Callable[[], Digests] | None = None

    def digests_by_class(self, labels: Integers) -> Digests:
        """Return the digests (k, n) of some classes."""
        if self.digests is not None:
            return self.digests()[labels]
        return np.stack([digests_of(self.vectors[label]) for label in labels])


class Donors(NamedTuple):
    """The chosen rows (..., C, E), most similar first, and which of them are real."""

    rows: Integers
    valid: Mask


def donors_of(uploaded: Uploaded, routing: Routing, own: int) -> Donors:
    """Return the donors (C, E) of one client."""
    rows, valid = donors_of_many(uploaded, routing, np.array([own], np.int64))
    return Donors(rows[0], valid[0])


def donors_of_many(uploaded: Uploaded, routing: Routing, clients: Integers) -> Donors:
    """Return the donors (m, C, E) of ``clients`` (m,)."""
    choices, seen = _Choices(uploaded, routing, clients), uploaded.seen
    if choices.slots:
        for questions, similarity in choices.products():
            choices.add_up(similarity)
            mine = seen[questions.client, questions.label] | routing.drop_first_rank
            if not mine.all():
                questions, similarity = questions.of(mine), similarity[mine]
            choices.make(questions, similarity, by_class=True)
        choices.make_unseen()
        choices.settle()
    rows, valid = choices.donors
    if routing.drop_first_rank:
        allowed = seen[clients] | (routing.empty_query == "released")  # what a client may ask for
        valid = seen[rows, np.arange(seen.shape[1])[:, None]] & allowed[:, :, None]
    return Donors(rows, valid)


def donors_of_unseen(
    uploaded: Uploaded, routing: Routing, own: int, label: int, similarity: Vectors | None = None
) -> Integers:
    """Return the donors (E,) of a client for the class ``label``, which it has not seen; -1 for none.

    This is the choice of :func:`donors_of` for one class, in a fraction of the time. ``similarity`` (C, n) are the
    client's products with all clients up to rounding, if they are known.
    """
    choices = _Choices(uploaded, routing, np.array([own], np.int64))
    if similarity is None:
        ((_, similarity),) = choices.products()
    choices.add_up(similarity)
    choices.make_unseen([label])
    choices.settle()
    rows, valid = choices.donors
    return np.where(valid[0, label], rows[0, label], -1)


def donors_among(uploaded: Uploaded, routing: Routing, own: int, candidates: Integers) -> Integers:
    """Return the donors (E,) of a client for the only class of ``uploaded``, which the client has seen; -1 for none.

    This is the choice of :func:`donors_of` if the ``candidates`` (k,) contain every client that may be chosen: exact
    similarities decide, and then the ranking.
    """
    seen, first = uploaded.seen[:, 0], int(routing.drop_first_rank)
    if not first:
        candidates = candidates[seen[candidates] & (candidates != own)]
    exact = exact_products(uploaded.vectors, 0, candidates, own)
    best = np.lexsort((np.argsort(uploaded.ranking)[candidates], -exact))
    donors = np.full(min(routing.external_slots, len(seen) - 1), -1, np.int64)
    chosen = candidates[best][first : first + len(donors)]
    donors[: len(chosen)] = np.where(seen[chosen], chosen, -1)
    return donors


# --- many choices at once -------------------------------------------------------------------------------------


class Questions(NamedTuple):
    """Choices to make: each of r has a ``client``, a ``label``, and the ``place`` of the client in what is served."""

    client: Integers
    label: Integers
    place: Integers

    def of(self, rows: Any) -> Questions:
        """Return some of the questions."""
        return Questions(*(array[rows] for array in self))

    @classmethod
    def joined(cls, parts: Iterable[Questions]) -> Questions:
        """Return all questions of some parts."""
        return cls(*map(np.concatenate, zip(*parts, strict=True)))


class _Choices:
    """The donors of ``clients`` (m,): by products in single precision, and exactly where these cannot tell."""

    def __init__(self, uploaded: Uploaded, routing: Routing, clients: Integers) -> None:
        self.uploaded, self.routing, self.clients = uploaded, routing, clients
        n, classes = uploaded.seen.shape
        self.first, self.slots = int(routing.drop_first_rank), min(routing.external_slots, max(n - 1, 0))
        self.needed = self.first + self.slots
        self.width = min(self.needed + SPARE, n)
        shape = (len(clients), classes, self.slots)
        self.donors = Donors(np.zeros(shape, np.int64), np.zeros(shape, np.bool_))
        self.all_seen = bool(uploaded.seen.all())
        self.places = np.argsort(uploaded.ranking)  # of each client in the ranking
        self.copies = False  # whether most prototypes of the last class that was looked at closely were copies
        # clients that get something for classes they have not seen, and their similarities summed over the classes
        asking = ~uploaded.seen[clients].all(axis=1) & (routing.empty_query != "none") & (not routing.drop_first_rank)
        self.partial = np.flatnonzero(asking)
        self.sums = np.zeros((len(self.partial), n))
        self.alike: list[Questions] = []  # their choices with more close candidates than usual
        self.reached = np.zeros(n, np.bool_)  # which are these candidates
        # choices with candidates that are too close to order, by class or not: they are settled many at once
        self.close: dict[bool, list[tuple[Questions, Integers, Scores]]] = {True: [], False: []}

    def products(self) -> Iterator[tuple[Questions, Vectors]]:
        """Yield similarities (r, n): all classes of one client, or one class of many, a matrix product at a time.

        Those of many lie client after client in memory (they are a transposed view), and are good until the next
        product: BLAS takes two thirds of the time that way, and one array for all products stays in the cache. It also
        takes up to a quarter less for a few columns more, so that they are a multiple of :data:`COLUMNS`.
        """
        vectors, clients, m = self.uploaded.vectors, self.clients, len(self.clients)
        labels = np.arange(len(vectors))
        if m == 1:
            questions = Questions(np.full_like(labels, clients[0]), labels, np.zeros_like(labels))
            yield questions, np.matmul(vectors, vectors[:, clients[0], :, None])[:, :, 0]
            return
        padded = np.resize(clients, -(-m // COLUMNS) * COLUMNS)  # repeats some: what they get is not looked at
        similarity = np.empty((vectors.shape[1], len(padded)), vectors.dtype)
        for label in labels:
            np.matmul(vectors[label], vectors[label, padded].T, out=similarity)
            yield Questions(clients, np.full(m, label), np.arange(m)), similarity[:, :m].T

    def make(self, questions: Questions, scores: Scores, by_class: bool) -> None:
        """Choose by ``scores`` (r, n), similarities of one class or means over the classes; it changes them."""
        if not len(questions.client):
            return
        if not self.routing.drop_first_rank:  # B4: neither the client itself nor a client that has not seen the class
            if not self.all_seen:
                np.copyto(scores, -np.inf, where=~self.uploaded.seen.T[questions.label])
            scores[np.arange(len(scores)), questions.client] = -np.inf
        if by_class and self.copies:
            self._choose_without_copies(questions, scores)
        else:
            self._choose(questions, scores, by_class, None)

    def _choose_without_copies(self, questions: Questions, scores: Scores) -> None:
        """Choose by ``scores`` (r, n) of a class without the clients whose copies come before them."""
        labels, place = np.unique(questions.label, return_inverse=True)
        digests, ranking = self.uploaded.digests_by_class(labels), self.uploaded.ranking
        columns, there = first_of_equals(digests, ranking, self.needed + 1, self.width)
        self.copies = 2 * columns.shape[1] < scores.shape[1]
        scores = scores[:, columns[0]] if len(labels) == 1 else np.take_along_axis(scores, columns[place], axis=1)
        self._choose(questions, np.where(there[place], scores, -np.inf), True, columns[place])

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
        if len(few) and tolerance == NEAR:
            self.close[by_class].append((questions.of(few), rows[few], values[few]))
            if by_class and sum(len(part) for _, part, _ in self.close[True]) >= ASKING:
                self._settle_close(True)
        elif len(few):
            self._settle(questions.of(few), rows[few], values[few], by_class, tolerance)
        if not len(many):
            return
        questions, scores = questions.of(many), scores[many]
        if not by_class:
            self.alike.append(questions)
            self.reached |= (scores >= limit).any(axis=0)
        elif columns is None:  # a second look, without those that cannot be chosen
            self._choose_without_copies(questions, scores)
        elif tolerance == NEAR:
            self._choose_closely(questions, scores >= limit, columns[many])
        else:
            for i, crowd in enumerate(scores >= limit):
                reached, candidates = scores[i, crowd], columns[many[i], crowd]
                best = np.argsort(-reached)
                self._settle(questions.of([i]), candidates[None, best], reached[None, best], by_class, tolerance)

    def _choose_closely(self, questions: Questions, reached: Mask, columns: Integers) -> None:
        """Choose by products in double precision among the ``columns`` (r, k) that ``reached`` (r, k) the best."""
        for label in np.unique(questions.label):
            mine = np.flatnonzero(questions.label == label)  # with the same columns
            some = reached[mine].any(axis=0)
            vectors, kept = self.uploaded.vectors[label], columns[mine[0], some]
            for start in range(0, len(mine), ASKING):
                part = mine[start : start + ASKING]
                scores = wide_products(vectors, questions.client[part], kept)
                scores[~reached[part][:, some]] = -np.inf
                self._choose(questions.of(part), scores, True, np.broadcast_to(kept, scores.shape), NEARER)

    def settle(self) -> None:
        """Settle what was put off."""
        self._settle_close(True)
        self._settle_close(False)
        if self.alike:
            self._settle_alike(Questions.joined(self.alike))

    def _settle_close(self, by_class: bool) -> None:
        if self.close[by_class]:
            parts, rows, values = zip(*self.close[by_class], strict=True)
            self.close[by_class].clear()
            self._settle(Questions.joined(parts), np.concatenate(rows), np.concatenate(values), by_class)

    def _settle(
        self, questions: Questions, rows: Integers, values: Scores, by_class: bool, tolerance: float = NEAR
    ) -> None:
        """Choose from candidates ``rows`` (r, k), whose ``values`` are computed again where they are near another."""
        row, _ = at = np.nonzero(near_another(values, tolerance))
        exact = values.astype(np.float64)
        exact[at] = self._exact(questions.of(row), rows[at], by_class)
        best = np.lexsort((self.places[rows], -exact), axis=-1)
        self._put(questions, np.take_along_axis(rows, best, axis=1), np.take_along_axis(exact, best, axis=1))

    def _exact(self, questions: Questions, rows: Integers, by_class: bool) -> Reals:
        """Return the similarities in float64 of pairs: of the client of each question, and of ``rows`` (p,)."""
        if by_class:
            return self._products_of(questions.label, rows, questions.client)
        seen = self.uploaded.seen
        common = seen[rows] & seen[questions.client]
        total = np.zeros(len(rows))
        for label, mine in enumerate(common.T):
            total[mine] += self._products_of(np.full(mine.sum(), label), rows[mine], questions.client[mine])
        return _means(total, common.sum(axis=1))

    def _products_of(self, labels: Integers, rows: Integers, others: Integers) -> Reals:
        """Return products (p,) in float64, those of many pairs only once for pairs of the same vectors."""
        vectors = self.uploaded.vectors
        if len(rows) < _MANY or self.uploaded.digests is None:
            return exact_products(vectors, labels, rows, others)
        digests = self.uploaded.digests()
        pairs = digests[labels, rows] * _ODD + digests[labels, others]
        _, first, place = np.unique(pairs, return_index=True, return_inverse=True)
        return exact_products(vectors, labels[first], rows[first], others[first])[place]

    def _put(self, questions: Questions, rows: Integers, values: Scores) -> None:
        """Fill in the donors of some choices from their candidates (r, k), the best first."""
        chosen = slice(self.first, self.first + self.slots)
        self.donors.rows[questions.place, questions.label] = rows[:, chosen]
        self.donors.valid[questions.place, questions.label] = np.isfinite(values[:, chosen])

    # --- classes that a client has not seen (B3) ----------------------------------------------------------

    def add_up(self, similarity: Vectors) -> None:
        """Add the similarities of a product to the sums: 0 where either has not seen the class."""
        if self.routing.empty_query == "client" and len(self.partial):
            if len(self.clients) == 1:
                self.sums[0] = similarity.sum(axis=0, dtype=np.float64)
            else:
                self.sums += similarity[self.partial]

    def make_unseen(self, labels: Iterable[int] | None = None) -> None:
        """Choose for the classes that clients have not seen, or for those of ``labels``."""
        if not len(self.partial):
            return
        seen, own = self.uploaded.seen, self.clients[self.partial]
        if self.routing.empty_query == "client":
            scores = _means(self.sums, self._in_common(own, np.arange(len(seen))))
        else:  # the released code: joining order, without the first
            listed = (self.places > 0) & (self.places <= self.routing.external_slots)
            scores = np.tile(np.where(listed, -1.0 * self.places, -np.inf), (len(own), 1))
        for label in np.flatnonzero(~seen[own].all(axis=0)) if labels is None else labels:
            mine = np.flatnonzero(~seen[own, label])
            questions = Questions(own[mine], np.full_like(mine, label), self.partial[mine])
            self.make(questions, scores[mine], by_class=False)

    def _in_common(self, clients: Integers, others: Integers) -> Integers:
        """Return how many classes (m, p) each of ``clients`` (m,) and each of ``others`` (p,) have both seen."""
        seen = self.uploaded.seen.astype(np.float32)
        common: Integers = np.rint(seen[clients] @ seen[others].T).astype(np.int64)
        return common

    def _settle_alike(self, questions: Questions) -> None:
        """Choose the first that have a class, in the order of their mean similarities, which is one for all classes.

        Means that are too close to order are computed again exactly, if vectors differ and they matter.
        """
        ranking = self.uploaded.ranking
        among = ranking[self.reached[ranking]]  # the ranking decides between equals
        clients, place = np.unique(questions.client, return_inverse=True)
        of_client = np.split(np.argsort(place, kind="stable"), np.cumsum(np.bincount(place))[:-1])
        for start in range(0, len(clients), ASKING):
            asking = clients[start : start + ASKING]
            scores, keys = self._means_among(asking, among)
            orders = np.argsort(-scores, axis=1, kind="stable")
            values, keys = (np.take_along_axis(array, orders, axis=1) for array in (scores, keys))
            close = values[:, :-1] - values[:, 1:] <= NEARER
            doubtful = close & (keys[:, :-1] != keys[:, 1:])
            for i, (own, mine) in enumerate(zip(asking, of_client[start : start + ASKING], strict=True)):
                order, labels = orders[i], questions.label[mine]
                best = self._first_with(labels, among[order], own)
                run = np.concatenate([[0], np.cumsum(~close[i])])  # of clients each of which is close to the next
                runs = run[1:][doubtful[i]]
                runs = runs[runs <= run[best.max()]]
                if len(runs):
                    again = order[np.isin(run, runs)]
                    who = np.full(len(again), own)
                    scores[i, again] = self._exact(Questions(who, who, who), among[again], False)
                    order = np.argsort(-scores[i], kind="stable")
                    best = self._first_with(labels, among[order], own)
                self._put(questions.of(mine), among[order][best], np.zeros(best.shape))

    def _first_with(self, labels: Integers, order: Integers, own: int) -> Integers:
        """Return the places (q, needed) in an ``order`` of clients of the first that have each of ``labels`` (q,)."""
        for reach in (8 * self.needed, len(order)):
            has = self.uploaded.seen[order[:reach]][:, labels].T & (order[:reach] != own)
            if (has.sum(axis=1) >= self.needed).all():
                break
        return np.argsort(~has, axis=1, kind="stable")[:, : self.needed]

    def _means_among(self, clients: Integers, among: Integers) -> tuple[Reals, Reals]:
        """Return the mean similarities (m, p) of ``clients`` (m,) and ``among`` (p,), and keys (m, p) of the vectors.

        Equal vectors are multiplied once per class, in double precision, so that clients with the same vectors have the
        same mean, and the same key.
        """
        vectors, seen = self.uploaded.vectors, self.uploaded.seen
        total, keys = np.zeros((2, len(clients), len(among)))
        for label in range(len(vectors)):
            asking = np.flatnonzero(seen[clients, label])
            digests = self.uploaded.digests_by_class(np.array([label]))[0][among]
            _, first, place = np.unique(digests, return_index=True, return_inverse=True)
            total[asking] += wide_products(vectors[label], clients[asking], among[first])[:, place]
            # 40 bits per class: sums that are the same for the same vectors, exact in float64
            keys[asking] += (digests * _ODD * np.uint64(2 * label + 1) >> np.uint64(24)).astype(np.float64)
        return _means(total, self._in_common(clients, among)), keys


def _means(total: Reals, count: Integers) -> Reals:
    """Return the mean similarity over so many classes."""
    result: Reals = np.where(count > 0, total / np.maximum(count, 1), NOTHING_IN_COMMON)
    return result


def exact_products(vectors: Vectors, labels: Any, rows: Integers, others: Any) -> Reals:
    """Return products (p,) in float64 of pairs ``rows`` and ``others``, each for its label, or all for one.

    Each is summed by itself, so that equal vectors give equal products.
    """
    labels, rows, others = np.broadcast_arrays(labels, rows, others)
    dots = np.empty(len(rows))
    for start in range(0, len(rows), _CHUNK):
        part = slice(start, start + _CHUNK)
        first, second = vectors[labels[part], rows[part]], vectors[labels[part], others[part]]
        dots[part] = np.multiply(first, second, dtype=np.float64).sum(axis=1)
    return dots


def wide_products(vectors: Vectors, clients: Integers, rows: Integers) -> Reals:
    """Return the products (m, p) in double precision, in any order of summation, of ``clients`` (m,) and ``rows``."""
    own, products = vectors[clients].astype(np.float64), np.empty((len(clients), len(rows)))
    for start in range(0, len(rows), _CHUNK):
        part = slice(start, start + _CHUNK)
        np.matmul(own, vectors[rows[part]].astype(np.float64).T, out=products[:, part])
    return products


def near_another(values: Scores, tolerance: float) -> Mask:
    """Return which of ``values`` (r, k), the largest first, are too close to the value before or after them."""
    with np.errstate(invalid="ignore"):  # -inf beside -inf
        close = values[:, :-1] - values[:, 1:] <= tolerance
    near: Mask = np.zeros(values.shape, np.bool_)
    near[:, :-1] = close
    near[:, 1:] |= close
    return near


def largest(scores: Scores, k: int) -> tuple[Integers, Scores]:
    """Return the places (r, k) and values (r, k) of the k largest of ``scores`` (r, n), best first, ties in any order.

    >>> [array.tolist() for array in largest(np.array([[3.0, 1.0, 4.0, 2.0]]), 2)]
    [[[2, 0]], [[4.0, 3.0]]]
    """
    places = np.argpartition(scores, -k, axis=1)[:, -k:]
    values = np.take_along_axis(scores, places, axis=1)
    order = np.argsort(values, axis=1)[:, ::-1]
    return np.take_along_axis(places, order, axis=1), np.take_along_axis(values, order, axis=1)


# --- clients with the same prototype --------------------------------------------------------------------------


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


def digests_of(vectors: Vectors) -> NDArray[np.uint64]:
    """Return 64 bits for each of ``vectors`` (n, D), which are the same for equal ones (0.0 equals -0.0); 0 for zeros.

    They tell which donors are tied without a look at the numbers. Two sums of the bits, each with weights that this
    process has drawn: who does not know them cannot make two vectors whose digests agree, and by chance they hardly do.
    """
    n, dim = vectors.shape
    plain = np.zeros((n, dim + dim % 2), np.float32)
    np.add(vectors, np.float32(0), out=plain[:, :dim])  # -0.0 becomes 0.0
    pairs, weights = plain.view(np.uint64), _weights(plain.shape[1] // 2)
    first = np.einsum("nd,d->n", pairs, weights[0])  # modulo 2^64
    # what differs in high bits only changes high bits of a sum only: so the second sum is of the high halves, and its
    # high bits become its low ones
    second = np.einsum("nd,d->n", pairs >> np.uint64(32), weights[1])
    digests: NDArray[np.uint64] = first ^ (second << np.uint64(32) | second >> np.uint64(32))
    return digests


@lru_cache
def _weights(dim: int) -> NDArray[np.uint64]:
    return np.frombuffer(os.urandom(16 * dim), np.uint64).reshape(2, dim)
