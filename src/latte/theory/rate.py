"""How fast the memory converges to ±(μ + w_pre), and how often it lies inside the caps of the theorem."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..core.types import Integers, Reals
from .angles import cap_angle, cap_angle_sharp
from .bounds import SMALL_ANGLE
from .model import SphereClient, World

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
    farthest = np.stack([_farthest(world, k, samples, rng) for _ in range(repetitions)])
    printed = np.array([cap_angle(int(n), k, d, delta) for n in samples])
    sharp = np.array([cap_angle_sharp(int(n), k, d, delta) for n in samples])
    return Rate(d, k, delta, np.asarray(samples), farthest, printed, sharp)


def _farthest(world: World, k: int, samples: Integers, rng: np.random.Generator) -> Reals:
    client = SphereClient(world.domain, world.classifier, k)
    steps = np.diff(samples, prepend=0)
    distances = np.zeros(len(samples))
    for i, step in enumerate(steps):
        client.observe(int(step), rng)
        gaps = np.linalg.norm(client.memory.vectors - world.apexes[:, None], axis=-1)
        distances[i] = gaps[client.memory.valid].max(initial=0.0)
    return distances


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
    angles = (cap_angle(samples, k, d, delta), cap_angle_sharp(samples, k, d, delta))
    widest = [_widest_angle(world, k, samples, rng) for _ in range(repetitions)]
    return Containment(
        d,
        samples,
        k,
        delta,
        repetitions,
        theta=angles[0],
        theta_sharp=angles[1],
        inside=_share_below(widest, angles[0]),
        inside_sharp=_share_below(widest, angles[1]),
        conditions=angles[0] < min(setting.angle_apart, setting.angle_signed),
        small_angle=angles[0] < SMALL_ANGLE,
    )


def _share_below(angles: list[float], theta: float) -> float:
    return sum(angle <= theta for angle in angles) / len(angles)


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
