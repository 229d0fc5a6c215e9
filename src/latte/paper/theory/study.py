"""All experiments of the theory: :func:`run_study` returns the :class:`Study` that the report draws."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...core.maths import normalised
from ...core.sync import sync
from ...core.types import Integers, Reals, Vectors
from ...core.zero_shot import ZeroShot
from ...methods.latte.client import Latte, LatteParams
from ...methods.latte.readout import MergedItems
from . import bounds
from .bounds import ErrorBound, SampleNeeds, Setting
from .model import CONTENTS, SELECTIONS, Sharing, SphereClient, World, merge, nearest_label

# --- how fast the memory converges to ±(μ + w_pre), and how often it lies inside the caps of the theorem ----------

VECTOR_ROUNDING = 1e-6  # vectors are stored as float32


@dataclass(frozen=True, slots=True, eq=False)
class Rate:
    """Distances of the memory from its limit while one client sees more and more samples.

    ``farthest`` (R, P) is the distance of the farthest of the 2k stored vectors from its apex, in R
    repetitions at the P numbers of ``samples``. A cap of angle θ reaches 2 sin(θ/2) from its apex and holds
    a share ∝ θ^(d+1), so this distance falls as N^(-1/(d+1)); the *depth* below the apex, 1 - cos θ, would
    fall twice as fast.
    """

    d: int
    k: int
    delta: float
    samples: Integers
    farthest: Reals
    theta: Reals  # (P,) as printed
    theta_sharp: Reals  # (P,) without rounding

    @property
    def expected(self) -> float:
        """The slope that the theory gives."""
        return -1 / (self.d + 1)

    @property
    def slopes(self) -> Reals:
        """The slope of log distance against log N in each repetition (R,)."""
        fits: Reals = np.polyfit(np.log(self.samples), np.log(self.farthest).T, 1)[0]
        return fits

    @property
    def slope(self) -> float:
        """The mean slope, which is that of the mean log distance."""
        return float(self.slopes.mean())

    @property
    def reach(self) -> Reals:
        """The distance (P,) that the printed θ allows."""
        return 2 * np.sin(np.minimum(self.theta, math.pi) / 2)


def measure_rate(
    world: World, k: int, samples: Integers, repetitions: int, rng: np.random.Generator, delta: float = 0.1
) -> Rate:
    """Let ``repetitions`` clients observe ``samples[-1]`` samples each, and measure the memory at every N."""
    d = world.domain.d
    farthest = np.zeros((repetitions, len(samples)))
    for row in farthest:
        client = SphereClient(world.domain, world.classifier, k)
        for i, step in enumerate(np.diff(samples, prepend=0)):
            client.observe(int(step), rng)
            gaps = np.linalg.norm(client.memory.vectors - world.apexes[:, None], axis=-1)
            row[i] = gaps[client.memory.valid].max(initial=0.0)
    printed = np.array([bounds.cap_angle(int(n), k, d, delta) for n in samples])
    sharp = np.array([bounds.cap_angle_sharp(int(n), k, d, delta) for n in samples])
    return Rate(d, k, delta, np.asarray(samples), farthest, printed, sharp)


@dataclass(frozen=True, slots=True)
class Containment:
    """How often both memories lay in their caps, for the printed angle and for the one without rounding."""

    d: int
    samples: int
    k: int
    delta: float
    repetitions: int
    theta: float
    theta_sharp: float
    inside: float
    inside_sharp: float
    conditions: bool  # those that the proof uses
    small_angle: bool  # θ < π/12, which only the error bound uses

    @property
    def as_promised(self) -> bool:
        """Whether the frequency is at least 1 - δ."""
        return self.inside >= 1 - self.delta


def measure_containment(
    world: World, samples: int, k: int, delta: float, repetitions: int, rng: np.random.Generator
) -> Containment:
    """Fill ``repetitions`` memories with ``samples`` samples each and count those inside the caps."""
    d, setting = world.domain.d, world.setting
    theta, sharp = bounds.cap_angle(samples, k, d, delta), bounds.cap_angle_sharp(samples, k, d, delta)
    widest = [_widest_angle(world, k, samples, rng) for _ in range(repetitions)]
    return Containment(
        d,
        samples,
        k,
        delta,
        repetitions,
        theta=theta,
        theta_sharp=sharp,
        inside=sum(angle <= theta for angle in widest) / repetitions,
        inside_sharp=sum(angle <= sharp for angle in widest) / repetitions,
        conditions=theta < min(setting.angle_apart, setting.angle_signed),
        small_angle=theta < bounds.SMALL_ANGLE,
    )


def _widest_angle(world: World, k: int, samples: int, rng: np.random.Generator) -> float:
    """Return the angle of the smallest pair of equal caps that hold both memories; infinite if none does."""
    client = SphereClient(world.domain, world.classifier, k)
    client.observe(samples, rng)
    offsets = client.memory.vectors - world.domain.centres[:, None]  # (2, k, d)
    outward = np.stack([-world.classifier.w, world.classifier.w])
    heights = np.einsum("ckd,cd->ck", offsets, outward)[client.memory.valid]
    if np.linalg.norm(offsets, axis=-1)[client.memory.valid].max() > 1 + VECTOR_ROUNDING:
        return math.inf  # a sample of the other ball
    return math.acos(min(float(heights.min()), 1.0))


# --- the paper's lemma ε_asym ≤ ε_pre: the plane that the memory converges to errs no more than the zero-shot one -

ERROR_ROUNDING = 1e-12  # of an error rate, where two of them are equal
NORMS = (0.05, 0.2, 0.4, 0.6, 0.8, 1.0, 1.13, 1.5, 2.5)
ANGLES = (0.0, 0.2, 0.5, 0.8, 1.0, 1.2, 1.4, 1.55)  # from μ to w_pre, below a right angle
BIASES = (-0.99, -0.7, -0.3, 0.0, 0.1, 0.5, 0.9)  # as shares of the largest that the theory allows, μ·w_pre + 1


@dataclass(frozen=True, slots=True)
class Planes:
    """The errors of the three planes in one world: exact, and the first and the last of them measured."""

    name: str
    d: int
    asymptotic: float
    unbiased: float
    initial: float
    measured_asymptotic: float
    measured_initial: float

    @property
    def holds(self) -> bool:
        """Whether ε_asym ≤ ε(w_pre, 0) ≤ ε_pre."""
        return errors_in_order(self.asymptotic, self.unbiased, self.initial)


@dataclass(frozen=True, slots=True)
class LemmaGrid:
    """The lemma on a grid of settings: in how many it holds, and the smallest and the largest gain ε_pre - ε_asym."""

    settings: int
    holding: int
    smallest_gain: float
    largest_gain: float

    @property
    def holds(self) -> bool:
        """Whether it holds in all of them."""
        return self.holding == self.settings


def errors_in_order(asymptotic: float, unbiased: float, initial: float) -> bool:
    """Return whether the three errors are in the order of the proof, up to rounding.

    >>> errors_in_order(0.1, 0.1, 0.2), errors_in_order(0.2, 0.1, 0.3)
    (True, False)
    """
    return asymptotic <= unbiased + ERROR_ROUNDING and unbiased <= initial + ERROR_ROUNDING


def compare_planes(name: str, world: World, queries: int, rng: np.random.Generator) -> Planes:
    """Return the errors of the planes of one world; the measured ones on ``queries`` samples that both see."""
    setting = world.setting
    points, y = world.domain.sample(queries, rng)
    planes = (points @ world.apexes[1], world.classifier.margins(points))
    limit, start = (float(np.mean((margins > 0) != y)) for margins in planes)
    exact = (setting.error_asymptotic, setting.error_unbiased, setting.error_initial)
    return Planes(name, setting.d, *exact, limit, start)


def compare_grid(dimensions: Sequence[int]) -> LemmaGrid:
    """Evaluate the lemma exactly for every combination of dimension, |μ|, angle and bias."""
    gains, holding = [], 0
    for setting in grid_settings(dimensions):
        errors = setting.error_asymptotic, setting.error_unbiased, setting.error_initial
        holding += errors_in_order(*errors)
        gains.append(errors[2] - errors[0])
    return LemmaGrid(len(gains), holding, min(gains), max(gains))


def grid_settings(dimensions: Sequence[int]) -> Iterator[Setting]:
    """Yield the settings of the grid."""
    for d in dimensions:
        for norm in NORMS:
            for angle in ANGLES:
                alignment = norm * math.cos(angle)
                yield from (Setting(d, norm, alignment, share * (alignment + 1)) for share in BIASES)


# --- the 1-NN limit: for α, β → ∞ the real Latte, on the unit sphere, answers as the nearest stored vector --------

LARGE = 1e6
LIMIT_CLIENTS = 3
LIMIT_PERIOD = 25  # images between two syncs


@dataclass(frozen=True, slots=True, eq=False)
class Limit:
    """The share of predictions that equal 1-NN: ``by_beta`` with α = 10⁶, ``by_alpha`` with β = 10⁶."""

    beta: Reals
    by_beta: Reals
    alpha: Reals
    by_alpha: Reals
    predictions: int


def measure_limit(beta: Sequence[float], alpha: Sequence[float], images: int, rng: np.random.Generator) -> Limit:
    """Run the same streams, of ``images`` images each, for every β and every α."""
    zero_shot, streams = make_streams(images, rng)
    by_beta = [agreement(zero_shot, streams, LatteParams(alpha=LARGE, beta=b)) for b in beta]
    by_alpha = [agreement(zero_shot, streams, LatteParams(alpha=a, beta=LARGE)) for a in alpha]
    beta_, alpha_ = np.array(beta, np.float64), np.array(alpha, np.float64)
    return Limit(beta_, np.array(by_beta), alpha_, np.array(by_alpha), predictions=LIMIT_CLIENTS * images)


def make_streams(images: int, rng: np.random.Generator) -> tuple[ZeroShot, Vectors]:
    """Return a classifier and the clients' unit vectors (N, images, D), off its text vectors by a shift.

    They are hard enough for the two readouts to differ.
    """
    classes, dim, noise, shift = 6, 16, 0.45, 0.5
    text = normalised(rng.standard_normal((classes, dim)).astype(np.float32))
    labels = rng.integers(0, classes, (LIMIT_CLIENTS, images))
    moved = text + shift * normalised(rng.standard_normal(text.shape).astype(np.float32))
    around = rng.standard_normal((*labels.shape, dim)) * noise
    names = tuple(f"class {i}" for i in range(classes))
    return ZeroShot(text, names, scale=20.0), normalised((moved[labels] + around).astype(np.float32))


def agreement(zero_shot: ZeroShot, streams: Vectors, params: LatteParams) -> float:
    """Return the share of Latte's predictions that are those of 1-NN over the memory it read."""
    clients = [Latte(zero_shot, params) for _ in streams]
    exchange = Latte.exchange_for(zero_shot, params)
    same = 0
    for i in range(streams.shape[1]):
        for client, stream in zip(clients, streams, strict=True):
            same += client.predict(stream[i : i + 1]).label == nearest_class(client, stream[i])
        if i % LIMIT_PERIOD == LIMIT_PERIOD - 1:
            sync([(str(name), client) for name, client in enumerate(clients)], exchange)
    return same / streams[:, :, 0].size


def nearest_class(client: Latte, vector: Vectors) -> int:
    """Return the class of the stored vector nearest to ``vector`` in Euclidean distance.

    After ``predict`` the merged memory is the one that was read: insertion comes first (B9).
    """
    gaps = np.linalg.norm(client.merged.vectors.astype(np.float64) - vector, axis=-1)
    gaps[np.isneginf(client.merged.offset)] = np.inf  # free slots
    return int(gaps.min(axis=1).argmin())


# --- the error of the 1-NN readout against samples seen, clients of the same domain, and clients of other domains -

Z_95 = 1.96


@dataclass(frozen=True, slots=True, eq=False)
class Errors:
    """Error rates on unseen samples: ``rates`` (R, P), in R repetitions at the P values of ``x``.

    ``lost`` (P,) are the mean shares of class memories without a sample of the client's own domain.
    """

    label: str
    x: Integers
    rates: Reals
    lost: Reals

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


def crowd_errors(
    label: str,
    x: Sequence[int],
    world: World,
    crowds: Sequence[Crowd],
    sharing: Sharing,
    trial: Trial,
    rng: np.random.Generator,
) -> Errors:
    """Return the error rates of 1-NN of a crowd for each ``x``, with fresh samples for each repetition."""
    rates, lost = np.zeros((2, trial.repetitions, len(crowds)))
    for place in np.ndindex(*rates.shape):
        merged = merged_memory(world, crowds[place[1]], sharing, rng)
        points, y = world.domain.sample(trial.queries, rng)
        rates[place] = np.mean(nearest_label(merged.vectors, merged.valid, points) != y)
        lost[place] = share_lost(world, merged)
    return Errors(label, np.asarray(x), rates, lost.mean(axis=0))


def error_by_samples(world: World, k: int, samples: Sequence[int], trial: Trial, rng: np.random.Generator) -> Errors:
    """Return the error of one client on its own against N."""
    return crowd_errors(f"k = {k}", samples, world, [Crowd(int(n), k) for n in samples], Sharing(), trial, rng)


def error_by_clients(
    world: World, crowd: Crowd, n_id: Sequence[int], content: str, trial: Trial, rng: np.random.Generator
) -> Errors:
    """Return the error against the number of clients of the target's domain, all of which contribute."""
    crowds = [Crowd(crowd.samples, crowd.k, n) for n in n_id]
    label = f"N = {crowd.samples}, {content}"
    return crowd_errors(label, n_id, world, crowds, Sharing(content=content), trial, rng)


def error_by_strangers(
    world: World, crowd: Crowd, n_ood: Sequence[int], selection: str, trial: Trial, rng: np.random.Generator
) -> Errors:
    """Measure against the number of clients of other domains; everyone contributes, or the nearest n_ID - 1."""
    sharing = Sharing(selection, donors=crowd.n_id - 1)
    crowds = [replace(crowd, n_ood=n) for n in n_ood]
    givers = "everyone contributes" if selection == "everyone" else f"only the {selection} contribute"
    certainty = {0: "equally", 1: "more", -1: "less"}[int(np.sign(crowd.more_certain))]
    return crowd_errors(f"{givers}, strangers {certainty} certain", n_ood, world, crowds, sharing, trial, rng)


def share_lost(world: World, merged: MergedItems) -> float:
    """Return the share of the two class memories without a sample of the client's own balls."""
    gaps = merged.vectors[:, :, None] - world.domain.centres  # (2, k, 2, d)
    own = (np.linalg.norm(gaps, axis=-1) <= 1 + 1e-6).any(axis=2) & merged.valid
    return float(np.mean(~own.any(axis=1)))


# --- all of it ----------------------------------------------------------------------------------------------------

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

    setting: Setting
    k: int
    errors: Errors
    bounds: dict[str, tuple[ErrorBound, ...]]


@dataclass(frozen=True, slots=True, eq=False)
class Product:
    """Errors for several (n_ID, N), which the theory orders by n_ID · N: one :class:`Errors` per N."""

    by_clients: tuple[Errors, ...]
    samples: tuple[int, ...]
    prototypes: Errors  # the same with prototypes instead of samples, at samples[0]

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
    strangers: tuple[Errors, ...]
    limit: Limit
    needed: tuple[SampleNeeds, ...]
    needed_separable: tuple[SampleNeeds, ...]
    planes: tuple[Planes, ...]
    planes_grid: LemmaGrid


def run_study(seed: int = 0, plan: StudyPlan | None = None) -> Study:
    """Run every experiment; each has its own stream of random numbers."""
    plan = plan or StudyPlan()
    rngs = [np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(7)]
    trial, three = plan.trial, World.make(3, *OVERLAPPING)
    seen, certainties = np.array(plan.rate_samples), (-0.5, 0.0, 0.5)
    curves = [(World.make(d, *OVERLAPPING), k) for d, k in ((2, 8), (3, 8), (3, 1))]
    curves += [(World.make(d, *SEPARABLE), 8) for d in (2, 3)]
    beta, alpha = 10.0 ** np.arange(0, 6.5, 0.5), 10.0 ** np.arange(-2, 4.5, 0.5)
    return Study(
        seed,
        rates=tuple(
            measure_rate(World.make(d, *OVERLAPPING), 8, seen, plan.rate_repetitions, rngs[0], DELTA) for d in (2, 3, 5)
        ),
        containment=tuple(
            measure_containment(World.make(d, *OVERLAPPING), n, k, delta, plan.repetitions, rngs[1])
            for d, n, k, delta in CASES
        ),
        curves=tuple(bound_curve(world, k, trial, rngs[2]) for world, k in curves),
        product=study_product(three, trial, rngs[3]),
        strangers=tuple(
            error_by_strangers(three, Crowd(300, 8, 4, 0, certain), (0, 2, 4, 8, 16, 32), selection, trial, rngs[4])
            for selection in SELECTIONS
            for certain in certainties
        ),
        limit=measure_limit(beta.tolist(), alpha.tolist(), plan.images, rngs[5]),
        needed=tuple(bounds.samples_needed(World.make(d, *OVERLAPPING).setting, 8, DELTA) for d in DIMENSIONS),
        needed_separable=tuple(bounds.samples_needed(World.make(d, *SEPARABLE).setting, 8, DELTA) for d in DIMENSIONS),
        planes=tuple(
            compare_planes(name, World.make(d, *world), trial.repetitions * trial.queries, rngs[6])
            for name, world in (("overlapping", OVERLAPPING), ("separable", SEPARABLE))
            for d in LEMMA_DIMENSIONS
        ),
        planes_grid=compare_grid(DIMENSIONS),
    )


def bound_curve(world: World, k: int, trial: Trial, rng: np.random.Generator) -> BoundCurve:
    """Return the measured error of one client against N, and the bounds."""
    setting, samples = world.setting, (30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000)
    curves = {
        form: tuple(bounds.single_client(setting, n, k, DELTA, form) for n in samples) for form in bounds.BOUND_FORMS
    }
    return BoundCurve(setting, k, error_by_samples(world, k, samples, trial, rng), curves)


def study_product(world: World, trial: Trial, rng: np.random.Generator) -> Product:
    """Measure the error against n_ID for two N that share some n_ID · N."""
    n_id, samples, k = (1, 2, 4, 8, 16, 32), (200, 800), 8
    by = [error_by_clients(world, Crowd(n, k), n_id, CONTENTS[0], trial, rng) for n in samples]
    prototypes = error_by_clients(world, Crowd(samples[0], k), n_id, CONTENTS[1], trial, rng)
    return Product(tuple(by), samples, prototypes)
