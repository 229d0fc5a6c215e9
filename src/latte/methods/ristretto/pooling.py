"""Pooling: how much of each other client's evidence a client uses, and what its neighbourhood then knows of each class.

These are steps 1 to 3 of docs/ristretto.md, for all n clients that have uploaded at once, in float64.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ...core.exchange import FEWEST, NamedRows
from ...core.types import Integers, Reals, Vectors
from .sums import EPS, LIVE, ClassSums

# how evidence is shared: as in step 2; with the sampling noise left in the distances; all of it; none but one's own
ROUTINGS = ("evidence", "raw", "everyone", "alone")
LEAST_NOISE = 1e-3
LEAST_SPAN_NOISE = 1e-4
MOST_DIRECTIONS = 64  # of the class offsets in which an open task measures distances, too
COMPARED_TOGETHER = 64  # clients that are compared with the others at a time
MOST_NUMBERS = 2**22  # numbers in one large intermediate result, so that many classes need little memory
DONORS = 4096  # clients whose sums are added up at a time in single precision: larger parts are 2 % faster at most
PAIRS, LEAST_PART = 2**16, 1024  # of clients that are compared at a time; the fewest donors among them
TOGETHER = 64  # clients that are answered at a time: 32 to 256 take the same time within 10 %
# For up to SHARING clients at once, donors come in parts that stay in a cache until all clients have used them. With
# more clients the product is bound by arithmetic, and larger parts are better.
SHARING, CACHED_DONORS = 16, 64


class Evidence(NamedTuple):
    """What n clients uploaded: ``counts`` (n, C), ``means`` (n, C, D), and the ``squares`` |mean|² (n, C)."""

    counts: Reals
    means: Reals
    squares: Reals

    @classmethod
    def of(cls, counts: Reals, means: Reals) -> Evidence:
        """Return the evidence of these uploads."""
        return cls(counts, means, np.einsum("ncd,ncd->nc", means, means))

    def times(self, factors: Reals) -> Evidence:
        """Return the evidence with the counts of each client multiplied by a factor (n,)."""
        return self._replace(counts=self.counts * factors[:, None])


class Pool(NamedTuple):
    """What m clients use: ``counts`` (m, C) of samples and ``sums`` (m, C, D) of their embeddings."""

    counts: Reals
    sums: Reals


class Offsets(NamedTuple):
    """The classes of m neighbourhoods: ``counts`` (m, C), ``centre`` (m, D), ``delta`` (m, C, D) from it per class."""

    counts: Reals
    centre: Reals
    delta: Reals

    @property
    def total(self) -> Reals:
        """The evidence in samples (m,)."""
        return row_sums(self.counts)


def row_sums(array: Reals) -> Reals:
    """Return the sums (n,) of short rows (n, C), faster than ``sum`` does it."""
    sums: Reals = array @ np.ones(array.shape[1], array.dtype)
    return sums


def spread_of(counts: Reals, squares: Reals) -> Reals:
    """Return the variance of the samples of each client (n,) around its class means: they are unit vectors."""
    spread: Reals = 1.0 - np.einsum("nc,nc->n", counts, squares) / np.maximum(row_sums(counts), EPS)
    return spread


def noise_of(spread: Reals) -> float:
    """Return the variance of one sample around its class mean: the median over the clients."""
    middle = [(len(spread) - 1) // 2, len(spread) // 2]
    median = np.partition(spread, middle)[middle].mean()  # a fifth of the time of np.median
    return max(float(median), LEAST_NOISE)


def precision_of(counts: Reals) -> Reals:
    """Return the mean count of a sample's class (n,): a donor's precision, in units of one sample's."""
    precision: Reals = np.einsum("nc,nc->n", counts, counts) / np.maximum(row_sums(counts), EPS)
    return precision


def factors_within(counts: Reals, cap: float | None) -> Reals:
    """Return what ``counts`` (n, C) are multiplied by (n,), so that no row sums to more than ``cap`` times the median.

    >>> factors_within(np.array([[10.0, 0.0], [10.0, 10.0], [0.0, 30.0], [8000.0, 0.0]]), 4.0)
    array([1.    , 1.    , 1.    , 0.0125])
    """
    if cap is None:
        return np.ones(len(counts))
    totals = row_sums(counts)
    factors: Reals = np.minimum(cap * np.median(totals[totals > LIVE]) / np.maximum(totals, EPS), 1.0)
    return factors


# --- routes ---------------------------------------------------------------------------------------------------


def routes_of(evidence: Evidence, noise: float, routing: str = "evidence") -> Reals:
    """Return a_ij (n, n): the share of client j's evidence that client i uses."""
    n = len(evidence.counts)
    if routing in ("everyone", "alone"):
        return np.ones((n, n)) if routing == "everyone" else np.eye(n)
    bias = _biases(evidence, noise if routing == "evidence" else 0.0)
    routes: Reals = 1.0 / (1.0 + bias * (precision_of(evidence.counts) / noise))
    np.fill_diagonal(routes, 1.0)
    return routes


def _biases(evidence: Evidence, removed: float) -> Reals:
    """Return D_ij (n, n); ``removed`` is the noise that is taken out of a distance, per class. It is symmetric."""
    counts, means, squares = evidence
    n, classes = counts.shape
    inverse, live, bias = 1.0 / np.maximum(counts, EPS), (counts > LIVE).astype(np.float64), np.empty((n, n))
    for start in range(0, n, COMPARED_TOGETHER):
        own, others = slice(start, start + COMPARED_TOGETHER), slice(start, n)
        distance, weight = np.zeros((2, len(counts[own]), n - start))
        for label in range(classes):
            w = np.reciprocal(inverse[own, label, None] + inverse[others, label])
            apart = (-2.0 * means[own, label]) @ means[others, label].T
            apart += squares[own, label, None]
            apart += squares[others, label]
            apart *= w
            distance += apart
            weight += w
        distance -= removed * (live[own] @ live[others].T)
        distance /= np.maximum(weight, EPS)
        bias[own, others] = np.maximum(distance, 0.0)
        bias[others, own] = bias[own, others].T
    return bias


# --- routes where not every client is trusted -----------------------------------------------------------------


class Span(NamedTuple):
    """Where a lie has little noise to hide in: the ``directions`` (D, q) of class offsets, and the ``noise`` there."""

    directions: Reals
    noise: float


def open_routes(evidence: Evidence, noise: float) -> tuple[Reals, Span]:
    """Return the routes (n, n) among clients that are not all trusted, and the span that they were measured in."""
    n, classes, dim = evidence.means.shape
    if n == 1:  # nobody to compare with
        return np.ones((1, 1)), Span(np.zeros((dim, span_width(classes, dim))), LEAST_SPAN_NOISE)
    precision = precision_of(evidence.counts)
    bias = _biases(evidence, noise) * (precision / noise)
    span = span_of(evidence, 1.0 / (1.0 + bias))
    within = Evidence.of(evidence.counts, evidence.means @ span.directions)
    bias = np.maximum(bias, _biases(within, span.noise) * (precision / span.noise))
    images = row_sums(evidence.counts)
    routes = open_shares(bias, images, images)
    np.fill_diagonal(routes, 1.0)
    return routes, span


def open_shares(bias: Reals, own: Reals, others: Reals) -> Reals:
    """Return the share (m, n) of each donor's evidence: none counts for more images than the receiver's own.

    ``bias`` (m, n) is in units of what the donors' counts resolve, ``own`` (m,) and ``others`` (n,) are images.
    """
    shares = (1.0 + bias) ** -2
    shares *= np.minimum(1.0, own[:, None] / np.maximum(shares * others, EPS))
    return shares


def span_width(classes: int, dim: int) -> int:
    """Return the number of directions of a span: class offsets have one less than classes."""
    return min(classes - 1, MOST_DIRECTIONS, dim)


def span_of(evidence: Evidence, routes: Reals) -> Span:
    """Return the span of the class offsets of all clients, none of which counts for more than the median client.

    Before clients have seen a few images each, some of its directions are those of rounding errors. That does no harm
    (a client then uses hardly anything of others), but the operations are therefore those of the specification, one
    by one: other ones, equal up to rounding, would find other directions.
    """
    counts, means, _ = evidence
    images = counts.sum(axis=1)
    held = counts * np.minimum(1.0, np.median(images[images > LIVE]) / np.maximum(images, EPS))[:, None]
    centre = (counts[:, :, None] * means).sum(axis=1) / np.maximum(images, EPS)[:, None]
    total = held.sum(axis=0)
    offsets = (held[:, :, None] * (means - centre[:, None])).sum(axis=0) / (1.0 + total)[:, None]
    width = span_width(*offsets.shape)
    directions = np.linalg.svd(np.sqrt(total)[:, None] * offsets, full_matrices=False)[2][:width].T
    others = routes.copy()
    np.fill_diagonal(others, 0.0)
    within = means @ directions
    rest, sums = pool(Evidence.of(counts, within), others)
    apart = within - sums / np.maximum(rest, EPS)[:, :, None]
    weight = counts * rest / np.maximum(counts + rest, EPS)
    live = ((counts > LIVE) & (rest > LIVE)).sum(axis=1)
    spread = np.einsum("nc,ncq,ncq->n", weight, apart, apart) / np.maximum(live, 1)
    return Span(directions, max(float(np.median(spread[images > LIVE])), LEAST_SPAN_NOISE))


# --- what a neighbourhood knows -------------------------------------------------------------------------------


def pool(evidence: Evidence, routes: Reals) -> Pool:
    """Return what the clients with these ``routes`` (m, n) use."""
    n, classes, dim = evidence.means.shape
    size = max(1, MOST_NUMBERS // (n * dim))
    sums = []
    for start in range(0, classes, size):
        some = slice(start, start + size)
        weighted = evidence.counts[:, some, None] * evidence.means[:, some]
        sums.append((routes @ weighted.reshape(n, -1)).reshape(len(routes), -1, dim))
    return Pool(routes @ evidence.counts, sums[0] if len(sums) == 1 else np.concatenate(sums, axis=1))


def parts(array: Reals, room: int) -> Iterator[slice]:
    """Yield slices of rows (n, C, D) that have about ``room`` numbers each, at least one row."""
    return slices(len(array), max(1, room // max(array[:1].size, 1)))


def offsets_of(pooled: Pool, centred_text: Reals, kappa: float) -> Offsets:
    """Return the class offsets of each neighbourhood; a class that nobody has seen falls back to its text's.

    They take the place of the sums in ``pooled``.
    """
    counts, delta = pooled
    centre = delta.sum(axis=1) / np.maximum(row_sums(counts), EPS)[:, None]
    delta -= counts[:, :, None] * centre[:, None]
    scale = np.einsum("mcd,cd->m", delta, centred_text) / np.maximum(counts @ (centred_text**2).sum(axis=1), EPS)
    share = 1.0 / (kappa + counts)
    delta *= share[:, :, None]
    delta += ((kappa * np.clip(scale, 0.0, 2.0))[:, None] * share)[:, :, None] * centred_text
    return Offsets(counts, centre, delta)


# --- tables of class sums: few clients exactly, very many in single precision --------------------------------


class SumsTable(NamedRows):
    """What everyone uploaded, in float64."""

    def __init__(self, classes: int, dim: int) -> None:
        shape = (FEWEST, classes)
        super().__init__(np.zeros(shape), np.zeros((*shape, dim)), np.zeros(shape))

    def put(self, name: str, upload: ClassSums) -> None:
        """Store the checked upload of a client; a new one joins."""
        self.set(name, upload.counts, upload.means, np.einsum("cd,cd->c", upload.means, upload.means))

    @property
    def evidence(self) -> Evidence:
        """What everyone uploaded, by row."""
        return Evidence(*self.arrays)

    @property
    def by_content(self) -> Integers:
        """The rows (n,) in an order that depends on the uploads only, neither on names nor on the order of joining."""
        counts, _, squares = self.arrays
        return np.lexsort(np.concatenate([squares, counts], axis=1).T)


class CrowdSums(NamedTuple):
    """What n clients uploaded, and what follows from each upload alone; small arrays class after class in memory."""

    counts: Reals  # (n, C)
    sums: Vectors  # (n, C, D) count times class mean
    inverse: Vectors  # (n, C) 1 / count
    short: Vectors  # (n, C, K) the class mean along the directions
    squares: Vectors  # (n, C) the squared length of that
    precision: Vectors  # (n,) see precision_of
    spread: Reals  # (n,) see spread_of
    inside: Vectors  # (n, C, q) the class mean in the span of the class offsets; q = 0 where clients are trusted
    inside_squares: Vectors  # (n, C) the squared length of that

    def of(self, rows: Integers | slice) -> CrowdSums:
        """Return the arrays of some clients."""
        return CrowdSums._make(array[rows] for array in self)

    def evidence(self, rows: Integers) -> Evidence:
        """Return what some clients uploaded, in float64."""
        counts = self.counts[rows]
        return Evidence.of(counts, self.sums[rows] / np.maximum(counts, EPS)[:, :, None])


def draw_directions(dim: int, number: int, secret: int) -> Vectors:
    """Return ``number`` random directions (D, K), scaled so that lengths along them are right in the mean.

    If ``number`` is D or more, they are the D dimensions themselves.
    """
    if number >= dim:
        return np.eye(dim, dtype=np.float32)
    orthogonal, _ = np.linalg.qr(np.random.default_rng(secret).normal(size=(dim, number)))
    directions: Vectors = (np.sqrt(dim / number) * orthogonal).astype(np.float32)
    return directions


class CrowdTable(NamedRows):
    """What everyone uploaded, a row per client."""

    def __init__(self, classes: int, directions: Vectors, span: int = 0) -> None:
        self.directions, (dim, number) = directions, directions.shape
        self.span: Vectors = np.zeros((dim, span), np.float32)
        counts = np.zeros((classes, FEWEST)).T
        inverse, squares, inside_squares = np.zeros((3, classes, FEWEST), np.float32).transpose(0, 2, 1)
        sums, short = np.zeros((FEWEST, classes, dim), np.float32), np.zeros((classes, FEWEST, number), np.float32)
        inside, vector = np.zeros((classes, FEWEST, span), np.float32), np.zeros(FEWEST)
        alone = vector.astype(np.float32), vector
        short, inside = short.transpose(1, 0, 2), inside.transpose(1, 0, 2)
        super().__init__(counts, sums, inverse, short, squares, *alone, inside, inside_squares)

    def put(self, name: str, upload: ClassSums) -> None:
        """Store the checked upload of a client; a new one joins."""
        self.restore(name, upload.counts, (upload.counts[:, None] * upload.means).astype(np.float32))

    def restore(self, name: str, counts: Reals, sums: Vectors) -> None:
        """Store counts (C,) and sums (C, D) as they stand in a table."""
        inverse = (1 / np.maximum(counts, EPS)).astype(np.float32)
        means = sums * inverse[:, None]
        lengths = np.einsum("cd,cd->c", means, means, dtype=np.float64)
        short = means @ self.directions
        alone = precision_of(counts[None])[0], spread_of(counts[None], lengths[None])[0]
        inside = means @ self.span
        squares = [np.einsum("ck,ck->c", rows, rows) for rows in (short, inside)]
        self.set(name, counts, sums, inverse, short, squares[0], *alone, inside, squares[1])

    def use_span(self, directions: Reals) -> None:
        """Measure distances in the span of these ``directions`` (D, q), too."""
        self.span = directions.astype(np.float32)
        crowd = self.crowd
        for part in slices(len(self), DONORS):
            crowd.inside[part] = (crowd.sums[part] * crowd.inverse[part][:, :, None]) @ self.span
        crowd.inside_squares[:] = np.einsum("ncq,ncq->nc", crowd.inside, crowd.inside)

    @property
    def crowd(self) -> CrowdSums:
        """What everyone uploaded, by row."""
        return CrowdSums(*self.arrays)


# --- what some clients use ------------------------------------------------------------------------------------


def pool_some(
    crowd: CrowdSums, rows: Integers, routing: str, factors: Reals, span: Span | None = None
) -> tuple[Reals, Pool]:
    """Return the routes (m, n) of the clients in ``rows`` (m,), and what they use.

    ``factors`` (n,) are what the counts of each client are multiplied by. With a ``span``, clients are not trusted.
    """
    noise = noise_of(crowd.spread[crowd.precision > 0])  # without clients all of whose images have labels
    if routing in ("everyone", "alone"):
        routes = np.full((len(rows), len(factors)), 1.0 if routing == "everyone" else 0.0)
    else:
        routes = _routes(crowd, rows, noise, noise if routing == "evidence" else 0.0, factors, span)
    routes[np.arange(len(rows)), rows] = 1.0
    weights = routes * factors
    return routes, Pool(weights @ crowd.counts, _add_up(crowd.sums, weights.astype(np.float32)))


def _routes(crowd: CrowdSums, rows: Integers, noise: float, removed: float, factors: Reals, span: Span | None) -> Reals:
    """Return the routes (m, n) of ``rows``; ``removed`` is the part of the noise that is taken out of distances."""
    routes = np.empty((len(rows), len(factors)))
    larger = np.reciprocal(factors).astype(np.float32)[:, None]
    asking, own = crowd.of(rows), crowd.inverse[rows] * larger[rows]
    images = row_sums(crowd.counts) * factors
    for part in slices(len(factors), max(LEAST_PART, PAIRS // len(rows))):
        donors = crowd.of(part)
        inverse = own, donors.inverse * larger[part]
        bias = _crowd_biases((asking.short, asking.squares), (donors.short, donors.squares), inverse, removed)
        bias *= donors.precision * (factors[part] / noise)
        if span is not None:
            inside = (asking.inside, asking.inside_squares), (donors.inside, donors.inside_squares)
            other = _crowd_biases(*inside, inverse, span.noise) * (donors.precision * (factors[part] / span.noise))
            bias = np.maximum(bias, other)
            routes[:, part] = open_shares(bias.astype(np.float64), images[rows], images[part])
            continue
        bias += 1.0
        np.reciprocal(bias, out=routes[:, part])
    return routes


def _crowd_biases(
    asking: tuple[Vectors, Vectors], donors: tuple[Vectors, Vectors], inverse: tuple[Vectors, Vectors], removed: float
) -> Vectors:
    """Return D_ij (m, B) between m clients and B donors, of which there are class means and their squared lengths.

    ``inverse`` are 1 / counts of both, (m, C) and (B, C).
    """
    (means, squares), (other_means, other_squares), (own, others) = asking, donors, inverse
    distance, weight = np.zeros((2, len(own), len(others)), np.float32)
    for label in range(own.shape[1]):
        w = np.add(own[:, label, None], others[:, label])
        np.reciprocal(w, out=w)  # N_i N_j / (N_i + N_j)
        apart = (-2 * means[:, label]) @ other_means[:, label].T
        apart += squares[:, label, None]
        apart += other_squares[:, label]
        apart *= w
        distance += apart
        weight += w
    live = [(side < np.float32(1 / LIVE)).astype(np.float32) for side in inverse]
    distance -= np.float32(removed) * (live[0] @ live[1].T)
    distance /= np.maximum(weight, np.float32(EPS))
    return np.maximum(distance, 0, out=distance)


def _add_up(sums: Vectors, weights: Vectors) -> Reals:
    """Return everyone's ``sums`` (n, C, D) added up with these weights (m, n), as (m, C, D)."""
    total = np.zeros((len(weights), *sums.shape[1:]))
    flat = total.reshape(len(weights), -1)
    for part in slices(len(sums), DONORS):
        some, vectors = weights[:, part], sums[part].reshape(len(sums[part]), -1)
        if 1 < len(weights) <= SHARING:  # vectors that are too many for a cache
            product = np.zeros(flat.shape, np.float32)
            for few in slices(len(vectors), CACHED_DONORS):
                product += some[:, few] @ vectors[few]
            flat += product
        else:
            flat += some @ vectors
    return total


def slices(n: int, size: int) -> Iterator[slice]:
    """Yield slices of n rows, ``size`` at a time."""
    for start in range(0, n, size):
        yield slice(start, start + size)
