"""The error of the 1-NN readout against samples seen, clients of the same domain, and clients of other domains."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..core.readout import MergedItems
from ..core.types import Integers, Reals
from ..core.validate import at_least
from .bounds import Setting
from .model import SphereClient, World, nearest_label
from .sharing import Sharing, merge

LOCAL = Sharing()
Z_95 = 1.96


@dataclass(frozen=True, slots=True, eq=False)
class Errors:
    """Error rates on unseen samples: ``rates`` (R, P), in R repetitions at the P values of ``x``."""

    label: str
    x: Integers
    rates: Reals

    @property
    def mean(self) -> Reals:
        """The mean (P,)."""
        centre: Reals = self.rates.mean(axis=0)
        return centre

    @property
    def half_width(self) -> Reals:
        """Half the width (P,) of the 95 % confidence interval of the mean."""
        return Z_95 * self.standard_error

    @property
    def standard_error(self) -> Reals:
        """The standard error of the mean (P,)."""
        deviation: Reals = self.rates.std(axis=0, ddof=1)
        return deviation / math.sqrt(len(self.rates))

    def slope(self) -> tuple[float, float]:
        """Return the slope of the error against x, by least squares, and half its 95 % confidence interval.

        The columns are independent, so the variance of the slope is the sum of theirs times squared weights.
        """
        centred = self.x - self.x.mean()
        weights = centred / (centred**2).sum()
        return float(weights @ self.mean), float(Z_95 * np.sqrt((weights**2) @ self.standard_error**2))

    @property
    def flat(self) -> bool:
        """Whether 0 lies in the confidence interval of the slope."""
        slope, half = self.slope()
        return abs(slope) <= half


@dataclass(frozen=True, slots=True)
class Crowd:
    """The clients of a trial: ``n_id`` of the target's domain (itself included) and ``n_ood`` of other domains.

    Each has seen ``samples`` samples and has ``k`` slots per class. ``more_certain`` is how much more certain
    the samples of the other domains are, see :meth:`World.elsewhere`; no two of the ``n_ood`` clients share a domain.
    """

    samples: int
    k: int
    n_id: int = 1
    n_ood: int = 0
    more_certain: float = 0.0

    def __post_init__(self) -> None:
        at_least("n_id", self.n_id, 1)
        at_least("n_ood", self.n_ood, 0)


@dataclass(frozen=True, slots=True)
class Trial:
    """How many repetitions, and how many unseen samples in each."""

    repetitions: int
    queries: int


def merged_memory(world: World, crowd: Crowd, sharing: Sharing, rng: np.random.Generator) -> MergedItems:
    """Let every client of a crowd observe its samples, and return the memory that the first client reads."""
    others = [world.elsewhere(rng, crowd.more_certain) for _ in range(crowd.n_ood)]
    clients = [SphereClient(d, world.classifier, crowd.k) for d in (*[world.domain] * crowd.n_id, *others)]
    for client in clients:
        client.observe(crowd.samples, rng)
    return merge(clients[0], clients[1:], sharing)


def error_of(world: World, merged: MergedItems, queries: int, rng: np.random.Generator) -> float:
    """Return the error rate of 1-NN on ``queries`` unseen samples."""
    points, y = world.domain.sample(queries, rng)
    return float(np.mean(nearest_label(merged.vectors, merged.valid, points) != y))


def crowd_errors(
    world: World, crowds: Sequence[Crowd], sharing: Sharing, trial: Trial, rng: np.random.Generator
) -> Reals:
    """Return the error rates (R, P) of P crowds, with fresh samples for each entry."""
    rates = np.zeros((trial.repetitions, len(crowds)))
    for place in np.ndindex(*rates.shape):
        merged = merged_memory(world, crowds[place[1]], sharing, rng)
        rates[place] = error_of(world, merged, trial.queries, rng)
    return rates


def error_by_samples(world: World, k: int, samples: Integers, trial: Trial, rng: np.random.Generator) -> Errors:
    """Return the error of one client on its own against N."""
    crowds = [Crowd(int(n), k) for n in samples]
    return Errors(f"k = {k}", np.asarray(samples), crowd_errors(world, crowds, LOCAL, trial, rng))


def error_by_clients(
    world: World, crowd: Crowd, n_id: Sequence[int], content: str, trial: Trial, rng: np.random.Generator
) -> Errors:
    """Return the error against the number of clients of the target's domain, all of which contribute."""
    crowds = [Crowd(crowd.samples, crowd.k, n) for n in n_id]
    rates = crowd_errors(world, crowds, Sharing(content=content), trial, rng)
    return Errors(f"N = {crowd.samples}, {content}", np.asarray(n_id), rates)


@dataclass(frozen=True, slots=True, eq=False)
class Strangers:
    """The effect of strangers: the errors against their number, and how often they fill all slots of a class.

    ``lost`` (P,) is the measured share of class memories without a sample of the client's own domain. ``even`` (P,)
    is the share to expect if all domains were equally certain and every client contributed.
    """

    errors: Errors
    lost: Reals
    even: Reals


def error_by_strangers(
    world: World, crowd: Crowd, n_ood: Sequence[int], selection: str, trial: Trial, rng: np.random.Generator
) -> Strangers:
    """Measure against the number of clients of other domains; everyone contributes, or the nearest n_ID - 1."""
    sharing = Sharing(selection, donors=crowd.n_id - 1)
    rates = np.zeros((trial.repetitions, len(n_ood)))
    lost = np.zeros_like(rates)
    for row, column in np.ndindex(*rates.shape):
        merged = merged_memory(world, replace(crowd, n_ood=n_ood[column]), sharing, rng)
        rates[row, column] = error_of(world, merged, trial.queries, rng)
        lost[row, column] = share_lost(world, merged)
    even = np.array([share_without_own(crowd.n_id, n, crowd.k) for n in n_ood])
    givers = "everyone contributes" if selection == "everyone" else f"only the {selection} contribute"
    label = f"{givers}, strangers {_certainty(crowd.more_certain)} certain"
    return Strangers(Errors(label, np.asarray(n_ood), rates), lost.mean(axis=0), even)


def _certainty(more_certain: float) -> str:
    if more_certain == 0:
        return "equally"
    return "more" if more_certain > 0 else "less"


def share_lost(world: World, merged: MergedItems) -> float:
    """Return the share of the two class memories without a sample of the client's own balls."""
    gaps = merged.vectors[:, :, None] - world.domain.centres  # (2, k, 2, d)
    own = (np.linalg.norm(gaps, axis=-1) <= 1 + 1e-6).any(axis=2) & merged.valid
    return float(np.mean(~own.any(axis=1)))


def share_without_own(n_id: int, n_ood: int, k: int) -> float:
    """Return the probability that k slots hold no sample of the client's own domain, if all are equally certain.

    Each of the k most certain samples then comes from any client with the same probability.

    >>> share_without_own(n_id=1, n_ood=3, k=2)
    0.5625
    """
    return (n_ood / (n_id + n_ood)) ** k


def excess(errors: Errors, setting: Setting) -> Reals:
    """Return the mean error above ε_asym (P,)."""
    return errors.mean - setting.error_asymptotic
