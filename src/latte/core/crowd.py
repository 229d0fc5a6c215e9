"""Very many clients: their class sums in single precision, and how much of them some of the clients use.

The numbers are those of :mod:`neighbourhoods`, for m of n clients, with one difference: the distance between two
clients is measured along a few random directions instead of all D dimensions. So the large array, the sums (n, C, D),
is read only once, to be added up with the routes as weights. What depends on one client alone is calculated when it
uploads.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from .class_sums import EPS, ClassSums
from .neighbourhoods import LIVE, Evidence, Pool, Span, noise_of, open_shares, precision_of, row_sums, spread_of
from .sums_table import NamedRows
from .table import FEWEST
from .types import Integers, Reals, Vectors

DONORS = 4096  # clients whose sums are added up at a time in single precision: larger parts are 2 % faster at most
PAIRS, LEAST_PART = 2**16, 1024  # of clients that are compared at a time; the fewest donors among them
TOGETHER = 64  # clients that are answered at a time: 32 to 256 take the same time within 10 %
# For up to SHARING clients at once, donors come in parts that stay in a cache until all clients have used them. With
# more clients the product is bound by arithmetic, and larger parts are better.
SHARING, CACHED_DONORS = 16, 64


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
        for part in _slices(len(self), DONORS):
            crowd.inside[part] = (crowd.sums[part] * crowd.inverse[part][:, :, None]) @ self.span
        crowd.inside_squares[:] = np.einsum("ncq,ncq->nc", crowd.inside, crowd.inside)

    @property
    def crowd(self) -> CrowdSums:
        """What everyone uploaded, by row."""
        return CrowdSums(*self.arrays)


# --- what some clients use ------------------------------------------------------------------------------------


class CommonNoise(NamedTuple):
    """What the routes of all clients have in common.

    ``noise`` is the variance of a sample, ``removed`` the part of it that is taken out of distances.
    """

    noise: float
    removed: float


def pool_some(
    crowd: CrowdSums, rows: Integers, routing: str, factors: Reals, span: Span | None = None
) -> tuple[Reals, Pool]:
    """Return the routes (m, n) of the clients in ``rows`` (m,), and what they use.

    ``factors`` (n,) are what the counts of each client are multiplied by. With a ``span``, clients are not trusted.
    """
    noise = noise_of(crowd.spread)
    if routing in ("everyone", "alone"):
        routes = np.full((len(rows), len(factors)), 1.0 if routing == "everyone" else 0.0)
    else:
        sharing = CommonNoise(noise, noise if routing == "evidence" else 0.0)
        routes = _routes(crowd, rows, sharing, factors, span)
    routes[np.arange(len(rows)), rows] = 1.0
    weights = routes * factors
    return routes, Pool(weights @ crowd.counts, _add_up(crowd.sums, weights.astype(np.float32)))


def _routes(crowd: CrowdSums, rows: Integers, sharing: CommonNoise, factors: Reals, span: Span | None) -> Reals:
    routes = np.empty((len(rows), len(factors)))
    larger = np.reciprocal(factors).astype(np.float32)[:, None]
    asking, own = crowd.of(rows), crowd.inverse[rows] * larger[rows]
    images = row_sums(crowd.counts) * factors
    for part in _slices(len(factors), max(LEAST_PART, PAIRS // len(rows))):
        donors = crowd.of(part)
        inverse = own, donors.inverse * larger[part]
        bias = _biases((asking.short, asking.squares), (donors.short, donors.squares), inverse, sharing.removed)
        bias *= donors.precision * (factors[part] / sharing.noise)
        if span is not None:
            inside = (asking.inside, asking.inside_squares), (donors.inside, donors.inside_squares)
            other = _biases(*inside, inverse, span.noise) * (donors.precision * (factors[part] / span.noise))
            bias = np.maximum(bias, other)
            routes[:, part] = open_shares(bias.astype(np.float64), images[rows], images[part])
            continue
        bias += 1.0
        np.reciprocal(bias, out=routes[:, part])
    return routes


def _biases(
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
    for part in _slices(len(sums), DONORS):
        flat += _product(weights[:, part], sums[part].reshape(len(sums[part]), -1))
    return total


def _product(weights: Vectors, vectors: Vectors) -> Vectors:
    """Return weights (m, B) @ vectors (B, C * D), for vectors that are too many for a cache."""
    if not 1 < len(weights) <= SHARING:
        product: Vectors = weights @ vectors
        return product
    product = np.zeros((len(weights), vectors.shape[1]), np.float32)
    for part in _slices(len(vectors), CACHED_DONORS):
        product += weights[:, part] @ vectors[part]
    return product


def _slices(n: int, size: int) -> Iterator[slice]:
    for start in range(0, n, size):
        yield slice(start, start + size)
