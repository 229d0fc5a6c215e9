"""The head of each client: a linear discriminant of its neighbourhood, with one covariance for all.

Steps 4 to 6 of docs/ristretto.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .class_sums import EPS
from .neighbourhoods import LIVE, ROUTINGS, Evidence, Offsets, Pool, noise_of, offsets_of, parts, pool
from .types import Reals
from .validate import choice, factor
from .zero_shot import ZeroShot

LEAST_VOTE = 1e-12  # squared size of rows that say nothing about a covariance


@dataclass(frozen=True, slots=True)
class RistrettoParams:
    """The four constants of Ristretto; one preset for every dataset.

    ``kappa``: the text's direction counts as this many samples of its class. ``rho``: the ridge, in units of the mean
    eigenvalue of the covariance. ``eta``: the weight of the head against zero-shot, with all the evidence there can be.
    ``nu``: the samples per class at which half of that weight is reached.

    ``routing`` is for ablations: "evidence" is the method; "raw" leaves sampling noise in the distances between
    clients, "everyone" pools all evidence, and "alone" none but the client's own.
    """

    kappa: float = 1.0
    rho: float = 1.0
    eta: float = 4.0
    nu: float = 50.0
    routing: str = "evidence"

    def __post_init__(self) -> None:
        for name, least in (("kappa", EPS), ("rho", LIVE), ("eta", 0.0), ("nu", 0.0)):
            factor(name, getattr(self, name), least)
        choice("routing", self.routing, ROUTINGS)


class Task(NamedTuple):
    """What all clients share from the start: the text embeddings less their mean (C, D), the scale, the constants."""

    centred_text: Reals
    scale: float
    params: RistrettoParams

    @classmethod
    def of(cls, zero_shot: ZeroShot, params: RistrettoParams) -> Task:
        """Return that of a classifier."""
        text = zero_shot.precise_text
        return cls(text - text.mean(axis=0), zero_shot.scale, params)


class Heads(NamedTuple):
    """The heads of m clients: ``weights`` (m, C, D), ``bias`` (m, C), ``trust`` (m,)."""

    weights: Reals
    bias: Reals
    trust: Reals


# --- one covariance for all -----------------------------------------------------------------------------------


class Vote:
    """The mean over clients of their scatter (D, D), each of trace D: one client, one vote."""

    def __init__(self, dim: int) -> None:
        self.sum, self.voters = np.zeros((dim, dim)), 0

    def add(self, rows: Reals, weights: Reals) -> None:
        """Count the votes of clients with these ``rows`` (m, C, D), each of a ``weight`` (m, C)."""
        size = (weights * np.einsum("mcd,mcd->mc", rows, rows)).sum(axis=1)
        voting = size > LEAST_VOTE
        factors = np.sqrt(weights / np.where(voting, size, 1.0)[:, None]) * voting[:, None]
        flat = (rows * factors[:, :, None]).reshape(-1, rows.shape[2])
        self.sum += flat.T @ flat
        self.voters += int(voting.sum())

    def result(self) -> Reals:
        """Return the scatter; the identity if nobody has voted."""
        dim = len(self.sum)
        return self.sum * (dim / self.voters) if self.voters else np.eye(dim)


class SharedCovariance(NamedTuple):
    """What the heads of all clients have in common: the ``covariance`` (D, D), and its regularised ``inverse``."""

    covariance: Reals
    inverse: Reals

    @classmethod
    def of(cls, covariance: Reals, rho: float) -> SharedCovariance:
        """Return it for a covariance."""
        inverse: Reals = np.linalg.inv(covariance + rho * np.eye(len(covariance))).astype(np.float64, copy=False)
        return cls(covariance, inverse)


class Solution(NamedTuple):
    """What follows from the evidence of n clients: the covariance, and of each client its routes and its classes."""

    shared: SharedCovariance
    routes: Reals  # (n, n)
    offsets: Offsets


def solve(evidence: Evidence, task: Task) -> Solution:
    """Return everything, from everyone's evidence."""
    noise, (n, classes, dim) = noise_of(evidence), evidence.means.shape
    within, between = Vote(dim), Vote(dim)
    routes, offsets = np.empty((n, n)), Offsets(*map(np.empty, ((n, classes), (n, dim), (n, classes, dim))))
    for rows in parts(np.arange(n), evidence):
        pooled = pool(evidence, rows, noise, task.params.routing)
        part = offsets_of(pooled, task.centred_text, task.params.kappa)
        within.add(*_left_out(Evidence(*(array[rows] for array in evidence)), pooled))
        between.add(part.delta, part.counts)
        routes[rows] = pooled.routes
        for array, values in zip(offsets, part, strict=True):
            array[rows] = values
    spread = _spread(offsets)
    covariance = (noise * within.result() + spread * between.result()) / (noise + spread)
    return Solution(SharedCovariance.of(covariance, task.params.rho), routes, offsets)


def _left_out(own: Evidence, pooled: Pool) -> tuple[Reals, Reals]:
    """Return rows (m, C, D) and weights (m, C): a client's means less those of the rest of its neighbourhood.

    The difference of two means, weighted by their counts, has the covariance of one sample.
    """
    rest = np.maximum(pooled.counts - own.counts, 0.0)
    rows = own.counts[:, :, None] * own.means
    rows -= pooled.sums
    rows /= np.maximum(rest, EPS)[:, :, None]
    rows += own.means
    return rows, np.where(rest > LIVE, own.counts * rest / np.maximum(own.counts + rest, EPS), 0.0)


def _spread(offsets: Offsets) -> float:
    """Return the variance between classes: the median over the neighbourhoods."""
    squares = np.einsum("mcd,mcd->mc", offsets.delta, offsets.delta)
    return float(np.median((offsets.counts * squares).sum(axis=1) / offsets.total))


# --- heads ----------------------------------------------------------------------------------------------------


def heads_of(offsets: Offsets, shared: SharedCovariance, task: Task) -> Heads:
    """Return the head of each neighbourhood: as much logit variance as zero-shot, times eta, times its evidence."""
    params, text, delta = task.params, task.centred_text, offsets.delta
    weights = (delta.reshape(-1, delta.shape[2]) @ shared.inverse).reshape(delta.shape)
    bias = -np.einsum("mcd,md->mc", weights, offsets.centre) - np.einsum("mcd,mcd->mc", weights, delta) / 2
    weights -= weights.mean(axis=1, keepdims=True)
    bias -= bias.mean(axis=1, keepdims=True)
    # tr W S W' with S W' = delta' - rho W', up to what is the same for all classes and W is free of
    variance = np.einsum("mcd,mcd->m", weights, delta) - params.rho * np.einsum("mcd,mcd->m", weights, weights)
    zero_shot = max(float(((text @ shared.covariance) * text).sum()), 0.0)
    trust = offsets.total / (offsets.total + params.nu * len(text))
    gain = task.scale * params.eta * trust * np.sqrt(zero_shot / np.maximum(variance, LEAST_VOTE))
    weights *= gain[:, None, None]
    return Heads(weights, gain[:, None] * bias, trust)
