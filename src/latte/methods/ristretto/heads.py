"""Heads of the clients: each a linear discriminant of its neighbourhood, with one covariance for all.

Steps 4 to 6 of benchmarks/results/ristretto.md, and step 7, which adds what labels say.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ...core.memory import NEUTRAL, check_near_copy, near_copy_field
from ...core.types import Reals
from ...core.validate import choice, factor
from ...core.zero_shot import ZeroShot
from ...errors import refuse
from ..labels import LabelSums, label_head
from . import pooling
from .sums import EPS, LIVE

TRUSTS = ("fleet", "open")
APPROXIMATIONS = ("auto", "off")
LEAST_VOTE = 1e-12  # squared size of rows that say nothing about a covariance
CACHED = 2**16  # numbers in an array that is worked on at a time: a few of them fit into a cache of 1 MB
ROWS_AT_ONCE = 2048  # rows whose products are added up at a time: many are cheaper than few


@dataclass(frozen=True, slots=True)
class RistrettoParams:
    """Parameters of Ristretto; one preset for every dataset.

    Parameters
    ----------
    kappa
        The text's direction counts as this many samples of its class.
    rho
        The ridge, in units of the mean eigenvalue of the covariance.
    eta
        The weight of the head against zero-shot, with all the evidence there can be.
    nu
        The samples per class at which half of that weight is reached.
    routing
        For ablations. "evidence": the method. "raw": sampling noise stays in the distances between clients. "everyone":
        all evidence is pooled. "alone": none but the client's own.
    near_copy
        The cosine from which an image counts as a copy of a recent one and is not learnt from; 0: copies are, too.
    count_cap
        Bounds what a client can claim: with a cap of 4, no client counts for more images than four times the median
        over all clients. None: there is no bound, which is for a server that knows its clients.
    trust
        Whose clients they are. "fleet": all are yours. "open": some may be hostile, so that the head chooses only among
        the classes that zero-shot finds plausible, soft labels are those of zero-shot alone, distances between clients
        are measured in the span of the class offsets, too, and nobody else's evidence counts for more images than a
        client's own. That costs some of the gain, and takes most of the harm away; docs/robustness.md has both.
    approximation
        "auto": very many clients are answered approximately (:class:`~.server.Freshness`). "off": never.
    """

    kappa: float = 1.0
    rho: float = 1.0
    eta: float = 4.0
    nu: float = 50.0
    routing: str = "evidence"
    near_copy: float = near_copy_field()
    count_cap: float | None = None
    trust: str = field(default="fleet", metadata={NEUTRAL: True})
    approximation: str = field(default="auto", metadata={NEUTRAL: True})

    def __post_init__(self) -> None:
        for name, least in (("kappa", EPS), ("rho", LIVE), ("eta", 0.0), ("nu", 0.0)):
            factor(name, getattr(self, name), least)
        choice("routing", self.routing, pooling.ROUTINGS)
        check_near_copy(self.near_copy)
        if self.count_cap is not None:
            factor("count_cap", self.count_cap, 1.0)
        choice("trust", self.trust, TRUSTS)
        choice("approximation", self.approximation, APPROXIMATIONS)
        if self.trust == "open" and self.routing != "evidence":
            raise refuse("routing", repr(self.routing), "'evidence' with trust='open', which has routes of its own")


class HeadTask(NamedTuple):
    """What all clients share from the start: the text embeddings less their mean (C, D), the scale, the constants."""

    centred_text: Reals
    scale: float
    params: RistrettoParams

    @classmethod
    def of(cls, zero_shot: ZeroShot, params: RistrettoParams) -> HeadTask:
        """Return what the clients of a classifier share."""
        text = zero_shot.precise_text
        return cls(text - text.mean(axis=0), zero_shot.scale, params)


class Heads(NamedTuple):
    """The heads of m clients: ``weights`` (m, C, D), ``bias`` (m, C), ``trust`` (m,)."""

    weights: Reals
    bias: Reals
    trust: Reals


# --- one covariance for all -----------------------------------------------------------------------------------


class Vote:
    """The mean over clients of their scatter (D, D), scaled to trace D: one client, one vote."""

    def __init__(self, dim: int) -> None:
        self._sum, self._voters = np.zeros((dim, dim)), 0
        self._rows, self._filled = np.empty((ROWS_AT_ONCE, dim)), 0  # whose products have not been added up yet

    def add(self, rows: Reals, weights: Reals) -> None:
        """Count the votes of clients with these ``rows`` (m, C, D), each of a ``weight`` (m, C)."""
        size = pooling.row_sums(weights * np.einsum("mcd,mcd->mc", rows, rows))
        voting = size > LEAST_VOTE
        factors = np.sqrt(weights / np.where(voting, size, 1.0)[:, None]) * voting[:, None]
        count = rows.shape[0] * rows.shape[1]
        if self._filled + count > len(self._rows):
            self._add_up()
        if count > len(self._rows):
            self._rows = np.empty((count, rows.shape[2]))
        place = self._rows[self._filled : self._filled + count]
        np.multiply(rows, factors[:, :, None], out=place.reshape(rows.shape))
        self._filled += count
        self._voters += int(voting.sum())

    def _add_up(self) -> None:
        rows = self._rows[: self._filled]
        self._sum += rows.T @ rows
        self._filled = 0

    def result(self) -> Reals:
        """Return the scatter; the identity if nobody has voted."""
        self._add_up()
        dim = len(self._sum)
        return self._sum * (dim / self._voters) if self._voters else np.eye(dim)


class SharedCovariance(NamedTuple):
    """What the heads of all clients have in common.

    The ``covariance`` (D, D), its regularised ``inverse``, and the ``variance`` of zero-shot logits, up to the scale.
    """

    covariance: Reals
    inverse: Reals
    variance: float

    @classmethod
    def of(cls, covariance: Reals, task: HeadTask) -> SharedCovariance:
        """Return what follows from a covariance."""
        text, ridge = task.centred_text, task.params.rho * np.eye(len(covariance))
        inverse: Reals = np.linalg.inv(covariance + ridge).astype(np.float64, copy=False)
        return cls(covariance, inverse, max(float(((text @ covariance) * text).sum()), 0.0))


class Solution(NamedTuple):
    """What follows from the evidence of n clients: the covariance, and of each client its routes and its classes."""

    shared: SharedCovariance
    routes: Reals  # (n, n)
    offsets: pooling.Offsets
    span: pooling.Span | None  # in which an open task measures distances
    spread: float  # of images around the centre of their neighbourhood: the median variance


def solve(evidence: pooling.Evidence, task: HeadTask) -> Solution:
    """Return the covariance, the routes and the classes from the evidence of all clients."""
    live = pooling.row_sums(evidence.counts) > LIVE  # a client all of whose images have labels has no vote
    noise, dim = pooling.noise_of(pooling.spread_of(evidence.counts, evidence.squares)[live]), evidence.means.shape[2]
    if task.params.trust == "open":
        routes, span = pooling.open_routes(evidence, noise)
    else:
        routes, span = pooling.routes_of(evidence, noise, task.params.routing), None
    pooled = pooling.pool(evidence, routes)
    within, between, centre = Vote(dim), Vote(dim), np.empty((len(routes), dim))
    for part in pooling.parts(pooled.sums, CACHED):
        own, used = (
            pooling.Evidence(*(array[part] for array in evidence)),
            pooling.Pool(*(array[part] for array in pooled)),
        )
        # a client's means less those of the rest of its neighbourhood: the difference of two means, weighted by their
        # counts, has the covariance of one sample
        rest = np.maximum(used.counts - own.counts, 0.0)
        share = 1.0 / np.maximum(rest, EPS)
        rows = own.means * (1.0 + own.counts * share)[:, :, None]  # mean - (sum - count mean) / rest
        rows -= used.sums * share[:, :, None]
        within.add(rows, np.where(rest > LIVE, own.counts * rest / np.maximum(own.counts + rest, EPS), 0.0))
        offsets = pooling.offsets_of(used, task.centred_text, task.params.kappa)
        between.add(offsets.delta, used.counts)
        centre[part] = offsets.centre
    everyone = pooling.Offsets(pooled.counts, centre, pooled.sums)
    squares = np.einsum("mcd,mcd->mc", everyone.delta, everyone.delta)
    spread = pooling.row_sums(everyone.counts * squares)[live] / everyone.total[live]  # between classes
    between_spread = float(np.median(spread))
    covariance = (noise * within.result() + between_spread * between.result()) / (noise + between_spread)
    around = float(np.median(1.0 - np.einsum("md,md->m", centre, centre)[live]))
    return Solution(SharedCovariance.of(covariance, task), routes, everyone, span, around)


# --- heads ----------------------------------------------------------------------------------------------------


def heads_of(offsets: pooling.Offsets, shared: SharedCovariance, task: HeadTask) -> Heads:
    """Return the head of each neighbourhood: as much logit variance as zero-shot, times eta, times its evidence."""
    trust = offsets.total / (offsets.total + task.params.nu * offsets.delta.shape[1])
    heads = Heads(np.empty(offsets.delta.shape), np.empty(offsets.counts.shape), trust)
    dim, params = offsets.delta.shape[2], task.params
    for part in pooling.parts(offsets.delta, CACHED):
        weights, bias, delta = heads.weights[part], heads.bias[part], offsets.delta[part]
        np.matmul(delta.reshape(-1, dim), shared.inverse, out=weights.reshape(-1, dim))
        bias[:] = -np.einsum("mcd,md->mc", weights, offsets.centre[part]) - np.einsum("mcd,mcd->mc", weights, delta) / 2
        weights -= weights.mean(axis=1, keepdims=True)
        bias -= bias.mean(axis=1, keepdims=True)
        # tr W S W' with S W' = delta' - rho W', up to what is the same for all classes and W is free of
        variance = np.einsum("mcd,mcd->m", weights, delta) - params.rho * np.einsum("mcd,mcd->m", weights, weights)
        gain = task.scale * params.eta * trust[part] * np.sqrt(shared.variance / np.maximum(variance, LEAST_VOTE))
        weights *= gain[:, None, None]
        bias *= gain[:, None]
    return heads


def teach(
    heads: Heads,
    centre: Reals,
    shares: Reals,
    donors: Reals,
    sums: LabelSums,
    spread: float,
    inverse: Reals,
    eta: float,
) -> None:
    """Add what labels say to the heads of m neighbourhoods, with as much weight as zero-shot and their head together.

    ``centre`` (m, D) is theirs, ``donors`` (k, D) that of the clients with labels, whose ``sums`` (k, ...) count by
    ``shares`` (m, k): a label is centred where it was taken, then routed.
    """
    residuals = sums.residual_sums - sums.residual_counts[:, :, None] * donors[:, None]
    for part in pooling.parts(heads.weights, CACHED):
        gradient = (shares[part] @ residuals.reshape(len(donors), -1)).reshape(-1, *residuals.shape[1:])
        more = label_head(gradient, shares[part] @ sums.labels, spread, inverse)
        more *= (1.0 + eta * heads.trust[part])[:, None, None]
        heads.weights[part] += more
        heads.bias[part] -= np.einsum("mcd,md->mc", more, centre[part])
