"""How much of each other client's evidence a client uses, and what its neighbourhood then knows of each class.

These are steps 1 to 3 of docs/ristretto.md, for all n clients that have uploaded at once, in float64.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from .class_sums import EPS
from .types import Reals

# how evidence is shared: as in step 2; with the sampling noise left in the distances; all of it; none but one's own
ROUTINGS = ("evidence", "raw", "everyone", "alone")
LIVE = 1e-6  # a class whose soft count is not above this was not seen
LEAST_NOISE = 1e-3
LEAST_SPAN_NOISE = 1e-4
MOST_DIRECTIONS = 64  # of the class offsets in which an open task measures distances, too
COMPARED_TOGETHER = 64  # clients that are compared with the others at a time
MOST_NUMBERS = 2**22  # numbers in one large intermediate result, so that many classes need little memory


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
    spread: Reals = 1.0 - np.einsum("nc,nc->n", counts, squares) / row_sums(counts)
    return spread


def noise_of(spread: Reals) -> float:
    """Return the variance of one sample around its class mean: the median over the clients."""
    middle = [(len(spread) - 1) // 2, len(spread) // 2]
    median = np.partition(spread, middle)[middle].mean()  # a fifth of the time of np.median
    return max(float(median), LEAST_NOISE)


def precision_of(counts: Reals) -> Reals:
    """Return the mean count of a sample's class (n,): a donor's precision, in units of one sample's."""
    precision: Reals = np.einsum("nc,nc->n", counts, counts) / row_sums(counts)
    return precision


def factors_within(counts: Reals, cap: float | None) -> Reals:
    """Return what ``counts`` (n, C) are multiplied by (n,), so that no row sums to more than ``cap`` times the median.

    >>> factors_within(np.array([[10.0, 0.0], [10.0, 10.0], [0.0, 30.0], [8000.0, 0.0]]), 4.0)
    array([1.    , 1.    , 1.    , 0.0125])
    """
    if cap is None:
        return np.ones(len(counts))
    totals = row_sums(counts)
    factors: Reals = np.minimum(cap * np.median(totals) / totals, 1.0)
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
    n = len(evidence.counts)
    bias = np.empty((n, n))
    for start in range(0, n, COMPARED_TOGETHER):
        own, others = slice(start, start + COMPARED_TOGETHER), slice(start, n)
        bias[own, others] = _biases_between(evidence, own, others, removed)
        bias[others, own] = bias[own, others].T
    return bias


def _biases_between(evidence: Evidence, own: slice, others: slice, removed: float) -> Reals:
    counts, means, squares = evidence
    inverse = 1.0 / np.maximum(counts, EPS)
    shape = len(counts[own]), len(counts[others])
    distance, weight = np.zeros(shape), np.zeros(shape)
    for label in range(counts.shape[1]):
        w = np.reciprocal(inverse[own, label, None] + inverse[others, label])
        apart = (-2.0 * means[own, label]) @ means[others, label].T
        apart += squares[own, label, None]
        apart += squares[others, label]
        apart *= w
        distance += apart
        weight += w
    live = (counts > LIVE).astype(np.float64)
    distance -= removed * (live[own] @ live[others].T)
    distance /= np.maximum(weight, EPS)
    return np.maximum(distance, 0.0)


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
    held = counts * np.minimum(1.0, np.median(images) / images)[:, None]
    centre = (counts[:, :, None] * means).sum(axis=1) / images[:, None]
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
    return Span(directions, max(float(np.median(spread)), LEAST_SPAN_NOISE))


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
    size = max(1, room // max(array[:1].size, 1))
    for start in range(0, len(array), size):
        yield slice(start, start + size)


def offsets_of(pooled: Pool, centred_text: Reals, kappa: float) -> Offsets:
    """Return the class offsets of each neighbourhood; a class that nobody has seen falls back to its text's.

    They take the place of the sums in ``pooled``.
    """
    counts, delta = pooled
    centre = delta.sum(axis=1) / row_sums(counts)[:, None]
    delta -= counts[:, :, None] * centre[:, None]
    scale = np.einsum("mcd,cd->m", delta, centred_text) / np.maximum(counts @ (centred_text**2).sum(axis=1), EPS)
    share = 1.0 / (kappa + counts)
    delta *= share[:, :, None]
    delta += ((kappa * np.clip(scale, 0.0, 2.0))[:, None] * share)[:, :, None] * centred_text
    return Offsets(counts, centre, delta)
