"""How much of everyone's evidence a client uses, and what its neighbourhood then knows of each class.

n clients have uploaded; m of them ask. Steps 1 to 3 of docs/ristretto.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .class_sums import EPS
from .types import Integers, Reals

# how evidence is shared: as step 2 has it; with the sampling noise left in the distances; all of everyone's; one's own
ROUTINGS = ("evidence", "raw", "everyone", "alone")
LIVE = 1e-6  # a class whose soft count is not above this was not seen
LEAST_NOISE = 1e-3
BLOCK = 128  # donors at a time for one client: their means stay in the cache between the two products
MANY = 1024  # donors at a time for several clients
TOGETHER = 64  # clients that are answered at a time: 32 to 256 take the same time within 10 %
ROOM = 2**22  # numbers in one array of an intermediate result, so that many clients need little memory


class Evidence(NamedTuple):
    """What n clients uploaded: ``counts`` (n, C), ``means`` (n, C, D), and the ``squares`` |mean|² (n, C).

    The means may be float32, which makes the products of very many clients cheaper; all else is float64.
    """

    counts: Reals
    means: NDArray[Any]
    squares: Reals

    def of(self, rows: Integers) -> Evidence:
        """Return that of some clients, in float64."""
        return Evidence(self.counts[rows], self.means[rows].astype(np.float64), self.squares[rows])


class Pool(NamedTuple):
    """What m clients use: ``routes`` (m, n) the share of each donor, ``counts`` (m, C) and ``sums`` (m, C, D)."""

    routes: Reals
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
        total: Reals = self.counts.sum(axis=1)
        return total


def noise_of(evidence: Evidence) -> float:
    """Return the variance of one sample around its class mean: the median over the clients."""
    spread = 1.0 - np.einsum("nc,nc->n", evidence.counts, evidence.squares) / _row_sums(evidence.counts)
    return max(float(np.median(spread)), LEAST_NOISE)


def _row_sums(array: Reals) -> Reals:
    """Return the sums (n,) of short rows (n, C), faster than ``sum`` does it."""
    sums: Reals = array @ np.ones(array.shape[1])
    return sums


def parts(rows: Integers, evidence: Evidence) -> Iterator[Integers]:
    """Yield ``rows`` in parts whose intermediate results have about ROOM numbers at most."""
    _, classes, dim = evidence.means.shape
    size = max(1, min(TOGETHER, ROOM // (classes * dim)))
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def pool(evidence: Evidence, rows: Integers, noise: float, routing: str = "evidence") -> Pool:
    """Return what the clients in ``rows`` (m,) use."""
    if routing in ("everyone", "alone"):
        return _pool_by(evidence, _fixed_routes(len(evidence.counts), rows, routing))
    removed = noise if routing == "evidence" else 0.0
    if len(rows) == 1:
        return pool_one(evidence, int(rows[0]), noise, removed)
    return pool_many(evidence, rows, noise, removed)


def _fixed_routes(n: int, rows: Integers, routing: str) -> Reals:
    routes = np.full((len(rows), n), 1.0 if routing == "everyone" else 0.0)
    routes[np.arange(len(rows)), rows] = 1.0
    return routes


def _pool_by(evidence: Evidence, routes: Reals) -> Pool:
    weighted = routes[:, :, None] * evidence.counts  # (m, n, C)
    sums = np.stack([weighted[:, :, y] @ evidence.means[:, y] for y in range(evidence.counts.shape[1])], axis=1)
    return Pool(routes, routes @ evidence.counts, sums.astype(np.float64, copy=False))


# --- many clients: a product per class ----------------------------------------------------------------------


def pool_many(evidence: Evidence, rows: Integers, noise: float, removed: float) -> Pool:
    """Return the pools of several clients; ``removed`` is the noise that is taken out of a distance, per class."""
    n, classes, dim = evidence.means.shape
    own = Evidence(*(array[rows] for array in evidence))
    routes, sums = np.empty((len(rows), n)), np.zeros((len(rows), classes, dim))
    for start in range(0, n, MANY):
        part = slice(start, start + MANY)
        donors = Evidence(*(array[part] for array in evidence))
        routes[:, part] = _routes(own, donors, noise, removed)
        mine = np.flatnonzero((start <= rows) & (rows < start + MANY))
        routes[mine, rows[mine]] = 1.0
        for label in range(classes):
            shares = (routes[:, part] * donors.counts[:, label]).astype(donors.means.dtype, copy=False)
            sums[:, label] += shares @ donors.means[:, label]
    return Pool(routes, routes @ evidence.counts, sums)


def _routes(own: Evidence, donors: Evidence, noise: float, removed: float) -> Reals:
    """Return a_ij (m, n) of clients that are not their own donors."""
    mine, others = np.maximum(own.counts, EPS), np.maximum(donors.counts, EPS)
    distance, weight = np.zeros((2, len(mine), len(others)))
    for label in range(mine.shape[1]):
        w = mine[:, label, None] * others[:, label]
        w /= mine[:, label, None] + others[:, label]
        apart = -2.0 * (own.means[:, label] @ donors.means[:, label].T)
        apart += own.squares[:, label, None]
        apart = apart + donors.squares[:, label]
        apart *= w
        distance += apart
        weight += w
    seen, there = ((one.counts > LIVE).astype(np.float64) for one in (own, donors))
    bias = np.maximum((distance - removed * (seen @ there.T)) / np.maximum(weight, EPS), 0.0)
    routes: Reals = 1.0 / (1.0 + _precision(donors.counts) * bias / noise)
    return routes


def _precision(counts: Reals) -> Reals:
    """Return the mean count of a sample's class (n,): a donor's precision, in units of one sample's."""
    precision: Reals = np.einsum("nc,nc->n", counts, counts) / _row_sums(counts)
    return precision


# --- one client: everyone's means are read once ---------------------------------------------------------------


def pool_one(evidence: Evidence, row: int, noise: float, removed: float) -> Pool:
    """Return the pool of one client; ``removed`` is the noise that is taken out of a distance, per class."""
    counts, means, _ = evidence
    n, classes, dim = means.shape
    known, double, strength = _before_products(evidence, row, noise, removed)
    narrow = np.ascontiguousarray(counts.T, means.dtype)[:, None]  # (C, 1, n)
    query = means[row][:, :, None].copy()
    inverse, sums = np.empty(n), np.zeros((classes, 1, dim))
    for start in range(0, n, BLOCK):
        part = slice(start, start + BLOCK)
        block = means[part].transpose(1, 0, 2)  # (C, B, D)
        dots = np.matmul(block, query)[:, :, 0]
        bias = known[part] - np.einsum("bc,cb->b", double[part], dots)
        inverse[part] = 1.0 + strength[part] * np.maximum(bias, 0.0)
        sums += np.matmul(narrow[:, :, part] / inverse[part].astype(means.dtype, copy=False), block)
    routes = 1.0 / inverse
    return Pool(routes[None], (routes @ counts)[None], sums.transpose(1, 0, 2))


def _before_products(evidence: Evidence, row: int, noise: float, removed: float) -> tuple[Reals, Reals, Reals]:
    """Return all of the routes that needs no product of means: a_j = 1 / (1 + strength (known - double · dots)⁺)."""
    counts, _, squares = evidence
    safe = np.maximum(counts, EPS)
    w = safe * safe[row] / (safe + safe[row])  # (n, C)
    common = (counts > LIVE).astype(np.float64) @ (counts[row] > LIVE)
    known = np.einsum("nc,nc->n", w, squares) + w @ squares[row] - removed * common
    strength = _precision(counts) / (noise * np.maximum(_row_sums(w), EPS))
    strength[row] = 0.0  # a client has no bias towards itself
    return known, 2 * w, strength


# --- what a neighbourhood knows -------------------------------------------------------------------------------


def offsets_of(pooled: Pool, centred_text: Reals, kappa: float) -> Offsets:
    """Return the class offsets of each neighbourhood; a class that nobody has seen falls back to its text's."""
    counts, sums = pooled.counts, pooled.sums
    centre = sums.sum(axis=1) / counts.sum(axis=1)[:, None]
    delta = sums - counts[:, :, None] * centre[:, None]
    scale = np.einsum("mcd,cd->m", delta, centred_text) / np.maximum(counts @ (centred_text**2).sum(axis=1), EPS)
    delta += (kappa * np.clip(scale, 0.0, 2.0))[:, None, None] * centred_text
    delta /= (kappa + counts)[:, :, None]
    return Offsets(counts, centre, delta)
