"""All experiments of the theory: :func:`run_study` returns the :class:`Study` that the report draws."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..core.types import Integers, Reals
from .bounds import BOUND_FORMS, ErrorBound, multi_client, single_client
from .errors import (
    Crowd,
    Errors,
    Strangers,
    Trial,
    error_by_clients,
    error_by_samples,
    error_by_strangers,
)
from .limit import Limit, LimitSetup, measure_limit
from .model import World
from .planes import LemmaGrid, Planes, compare_grid, compare_planes
from .rate import Containment, Rate, measure_containment, measure_rate
from .sharing import CONTENTS, SELECTIONS
from .vacuous import SampleNeeds, samples_needed

# |μ|, the angle from μ to w_pre in radians, b_pre. In the first the converged classifier still errs.
OVERLAPPING = (0.8, 1.0, 0.3)
SEPARABLE = (1.13, 1.0, 0.3)
DELTA = 0.1
CASES = (  # (d, N, k, δ); all side conditions hold for the first three
    (2, 24_000, 4, 0.1),
    (2, 48_000, 8, 0.05),
    (3, 135_000, 4, 0.1),
    (5, 60_000, 4, 0.1),
    (8, 60_000, 2, 0.2),
)
LEMMA_DIMENSIONS = (2, 3, 5, 16)  # of the worlds in which ε_asym ≤ ε_pre is measured as well
DIMENSIONS = (2, 3, 4, 5, 8, 12, 16, 32, 64, 128, 256, 512, 768, 1024)
FULL_TRIAL = Trial(repetitions=150, queries=3000)


@dataclass(frozen=True, slots=True)
class StudyPlan:
    """The size of every experiment. ``quick`` is for a first look: the same experiments with fewer repetitions."""

    rate_repetitions: int = 100
    rate_samples: tuple[int, ...] = tuple(2**i for i in range(11, 19))
    repetitions: int = 200
    trial: Trial = FULL_TRIAL
    images: int = 400

    @classmethod
    def quick(cls) -> StudyPlan:
        """Return a plan that takes some seconds."""
        samples = tuple(2**i for i in range(11, 17))
        return cls(30, samples, repetitions=40, trial=Trial(25, 1500), images=120)


@dataclass(frozen=True, slots=True, eq=False)
class BoundCurve:
    """Measured errors and the three forms of the bound against N, for one client."""

    d: int
    k: int
    errors: Errors
    error_initial: float
    error_asymptotic: float
    bounds: dict[str, tuple[ErrorBound, ...]]


@dataclass(frozen=True, slots=True, eq=False)
class Product:
    """Errors for several (n_ID, N), which the theory orders by n_ID · N: one :class:`Errors` per N."""

    by_clients: tuple[Errors, ...]
    samples: tuple[int, ...]
    prototypes: Errors  # the same with prototypes instead of samples, at samples[0]
    bounds: tuple[ErrorBound, ...]  # corrected, at samples[0], per n_ID

    @property
    def products(self) -> tuple[Integers, ...]:
        """n_ID · N of each point."""
        return tuple(e.x * n for e, n in zip(self.by_clients, self.samples, strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class Study:
    """All results."""

    seed: int
    rates: tuple[Rate, ...]
    containment: tuple[Containment, ...]
    curves: tuple[BoundCurve, ...]
    product: Product
    strangers: tuple[Strangers, ...]
    limit: Limit
    needed: tuple[SampleNeeds, ...]
    needed_separable: tuple[SampleNeeds, ...]
    planes: tuple[Planes, ...]
    planes_grid: LemmaGrid


def run_study(seed: int = 0, plan: StudyPlan | None = None) -> Study:
    """Run every experiment; each has its own stream of random numbers."""
    plan = plan or StudyPlan()
    rngs = [np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(7)]
    return Study(
        seed,
        study_rates(plan, rngs[0]),
        study_containment(plan, rngs[1]),
        study_curves(plan, rngs[2]),
        study_product(plan, rngs[3]),
        study_strangers(plan, rngs[4]),
        study_limit(plan, rngs[5]),
        tuple(samples_needed(World.make(d, *OVERLAPPING).setting, 8, DELTA) for d in DIMENSIONS),
        tuple(samples_needed(World.make(d, *SEPARABLE).setting, 8, DELTA) for d in DIMENSIONS),
        study_planes(plan, rngs[6]),
        compare_grid(DIMENSIONS),
    )


def study_rates(plan: StudyPlan, rng: np.random.Generator) -> tuple[Rate, ...]:
    """Measure how fast the memory converges, for d = 2, 3, 5."""
    worlds = [World.make(d, *OVERLAPPING) for d in (2, 3, 5)]
    samples = np.array(plan.rate_samples)
    return tuple(measure_rate(world, 8, samples, plan.rate_repetitions, rng, DELTA) for world in worlds)


def study_containment(plan: StudyPlan, rng: np.random.Generator) -> tuple[Containment, ...]:
    """Measure how often the memories lie in their caps."""
    return tuple(
        measure_containment(World.make(d, *OVERLAPPING), n, k, delta, plan.repetitions, rng) for d, n, k, delta in CASES
    )


def study_curves(plan: StudyPlan, rng: np.random.Generator) -> tuple[BoundCurve, ...]:
    """Measure the error against N, with and without overlap and with k = 1, beside the bounds."""
    samples = np.array([30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000])
    overlapping = [(World.make(d, *OVERLAPPING), k) for d, k in ((2, 8), (3, 8), (3, 1))]
    separable = [(World.make(d, *SEPARABLE), 8) for d in (2, 3)]
    pairs = overlapping + separable
    return tuple(bound_curve(world, k, samples, plan.trial, rng) for world, k in pairs)


def bound_curve(world: World, k: int, samples: Integers, trial: Trial, rng: np.random.Generator) -> BoundCurve:
    """Return the measured error and the bounds of one client."""
    setting = world.setting
    bounds = {form: tuple(single_client(setting, int(n), k, DELTA, form) for n in samples) for form in BOUND_FORMS}
    errors = error_by_samples(world, k, samples, trial, rng)
    return BoundCurve(setting.d, k, errors, setting.error_initial, setting.error_asymptotic, bounds)


def study_product(plan: StudyPlan, rng: np.random.Generator) -> Product:
    """Measure the error against n_ID for two N that share some n_ID · N."""
    world, n_id, samples, k = World.make(3, *OVERLAPPING), (1, 2, 4, 8, 16, 32), (200, 800), 8
    by = [error_by_clients(world, Crowd(n, k), n_id, CONTENTS[0], plan.trial, rng) for n in samples]
    prototypes = error_by_clients(world, Crowd(samples[0], k), n_id, CONTENTS[1], plan.trial, rng)
    bounds = tuple(multi_client(world.setting, samples[0], n, k, DELTA) for n in n_id)
    return Product(tuple(by), samples, prototypes, bounds)


def study_strangers(plan: StudyPlan, rng: np.random.Generator) -> tuple[Strangers, ...]:
    """Measure the error against n_OOD, by the selection of clients and the certainty of the strangers."""
    world, n_ood = World.make(3, *OVERLAPPING), (0, 2, 4, 8, 16, 32)
    return tuple(
        error_by_strangers(world, Crowd(300, 8, 4, 0, certain), n_ood, selection, plan.trial, rng)
        for selection in SELECTIONS
        for certain in (-0.5, 0.0, 0.5)
    )


def study_planes(plan: StudyPlan, rng: np.random.Generator) -> tuple[Planes, ...]:
    """Compare the errors of the converged and the initial plane, with and without overlap."""
    worlds = [("overlapping", OVERLAPPING), ("separable", SEPARABLE)]
    queries = plan.trial.repetitions * plan.trial.queries
    return tuple(
        compare_planes(name, World.make(d, *world), queries, rng) for name, world in worlds for d in LEMMA_DIMENSIONS
    )


def study_limit(plan: StudyPlan, rng: np.random.Generator) -> Limit:
    """Measure from which α and β on Latte agrees with 1-NN."""
    beta: Reals = 10.0 ** np.arange(0, 6.5, 0.5)
    alpha: Reals = 10.0 ** np.arange(-2, 4.5, 0.5)
    return measure_limit(beta.tolist(), alpha.tolist(), LimitSetup(images=plan.images), rng)
