"""How much of everyone's evidence a client uses, and what its neighbourhood then knows of each class.

n clients have uploaded; m of them ask. Steps 1 to 3 of docs/ristretto.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from .class_sums import EPS
from .types import Integers, Reals

LIVE = 1e-6  # a class whose soft count is not above this was not seen
LEAST_NOISE = 1e-3
BLOCK = 64  # donors at a time for one client: their means stay in the cache between the two products
ROOM = 2**22  # numbers in one array of an intermediate result, so that many clients need little memory


class Evidence(NamedTuple):
    """What n clients uploaded: ``counts`` (n, C), ``means`` (n, C, D), and the ``squares`` |mean|² (n, C)."""

    counts: Reals
    means: Reals
    squares: Reals

    def of(self, rows: Integers) -> Evidence:
        """Return that of some clients."""
        return Evidence(*(array[rows] for array in self))


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
    spread = 1.0 - (evidence.counts * evidence.squares).sum(axis=1) / evidence.counts.sum(axis=1)
    return max(float(np.median(spread)), LEAST_NOISE)


def parts(rows: Integers, evidence: Evidence) -> Iterator[Integers]:
    """Yield ``rows`` in parts whose intermediate results have at most ROOM numbers."""
    n, classes, dim = evidence.means.shape
    size = max(1, ROOM // max(n, classes * dim))
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def pool(evidence: Evidence, rows: Integers, noise: float) -> Pool:
    """Return what the clients in ``rows`` (m,) use."""
    return pool_one(evidence, int(rows[0]), noise) if len(rows) == 1 else pool_many(evidence, rows, noise)


# --- many clients: a product per class ----------------------------------------------------------------------


def pool_many(evidence: Evidence, rows: Integers, noise: float) -> Pool:
    """Return the pools of several clients."""
    counts, means, _ = evidence
    routes = _routes(evidence, rows, noise)
    sums = np.empty((len(rows), *means.shape[1:]))
    for label in range(counts.shape[1]):
        np.matmul(routes * counts[:, label], means[:, label], out=sums[:, label])
    return Pool(routes, routes @ counts, sums)


def _routes(evidence: Evidence, rows: Integers, noise: float) -> Reals:
    """Return a_ij (m, n)."""
    counts, means, squares = evidence
    safe = np.maximum(counts, EPS)
    distance, weight = np.zeros((2, len(rows), len(counts)))
    for label in range(counts.shape[1]):
        own, other = safe[rows, label, None], safe[:, label]
        w = own * other / (own + other)
        dots = means[rows, label] @ means[:, label].T
        distance += w * (squares[rows, label, None] + squares[:, label] - 2 * dots)
        weight += w
    live = (counts > LIVE).astype(np.float64)
    bias = np.maximum((distance - noise * (live[rows] @ live.T)) / np.maximum(weight, EPS), 0.0)
    routes: Reals = 1.0 / (1.0 + _precision(counts) * bias / noise)
    routes[np.arange(len(rows)), rows] = 1.0
    return routes


def _precision(counts: Reals) -> Reals:
    """Return the mean count of a sample's class (n,): a donor's precision, in units of one sample's."""
    precision: Reals = (counts**2).sum(axis=1) / counts.sum(axis=1)
    return precision


# --- one client: everyone's means are read once ---------------------------------------------------------------


def pool_one(evidence: Evidence, row: int, noise: float) -> Pool:
    """Return the pool of one client."""
    counts, means, squares = evidence
    n, classes, dim = means.shape
    safe = np.maximum(counts, EPS)
    w = safe * safe[row] / (safe + safe[row])  # (n, C)
    live = counts > LIVE
    known = (w * (squares + squares[row])).sum(axis=1) - noise * (live & live[row]).sum(axis=1)
    strength = _precision(counts) / (noise * np.maximum(w.sum(axis=1), EPS))
    routes, sums = np.empty(n), np.zeros((classes, 1, dim))
    query = means[row][:, :, None].copy()
    double = 2 * w
    for start in range(0, n, BLOCK):
        part = slice(start, start + BLOCK)
        block = means[part].transpose(1, 0, 2)  # (C, B, D)
        dots = np.matmul(block, query)[:, :, 0].T  # (B, C)
        bias = np.maximum(known[part] - np.einsum("bc,bc->b", double[part], dots), 0.0)
        routes[part] = 1.0 / (1.0 + strength[part] * bias)
        if start <= row < start + BLOCK:
            routes[row] = 1.0
        sums += np.matmul((routes[part, None] * counts[part]).T[:, None, :], block)
    return Pool(routes[None], (routes @ counts)[None], sums.transpose(1, 0, 2))


# --- what a neighbourhood knows -------------------------------------------------------------------------------


def offsets_of(pooled: Pool, centred_text: Reals, kappa: float) -> Offsets:
    """Return the class offsets of each neighbourhood; a class that nobody has seen falls back to its text's."""
    counts, sums = pooled.counts, pooled.sums
    centre = sums.sum(axis=1) / counts.sum(axis=1)[:, None]
    raw = sums - counts[:, :, None] * centre[:, None]
    scale = np.einsum("mcd,cd->m", raw, centred_text) / np.maximum(counts @ (centred_text**2).sum(axis=1), EPS)
    prior = kappa * np.clip(scale, 0.0, 2.0)
    delta = (prior[:, None, None] * centred_text + raw) / (kappa + counts)[:, :, None]
    return Offsets(counts, centre, delta)
