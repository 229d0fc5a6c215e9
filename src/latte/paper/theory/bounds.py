"""The paper's guarantees as functions: the cap angle θ, and the error bounds for one and for several clients.

Each bound comes in three forms:

- ``printed``: the appendix to the letter. It leaves out the error that remains for N → ∞.
- ``corrected``: the main text, ε_asym + excess, with the same constants, and for several clients the angle of
  n_ID · N samples.
- ``sharp``: the same argument without its rounding: the exact volume of the cap, the exact binomial tail, the
  actual distances A and B, the exact volume of the slab.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ...core.types import Reals
from ...core.validate import at_least, choice, real
from ...errors import refuse

# --- volumes of caps of the unit ball in d dimensions: exact, between the paper's two bounds, and inverted --------

HALF_TURN = math.pi / 2
NODES, WEIGHTS = np.polynomial.legendre.leggauss(200)  # relative error < 1e-12 for d <= 64, < 1e-11 for d = 4096


def _checked_angles(theta: ArrayLike) -> Reals:
    """Return ``theta`` as float64, all in [0, π/2], where the bounds of the paper are stated."""
    angles = np.asarray(theta, np.float64)
    if not bool(np.all((angles >= 0) & (angles <= HALF_TURN + 1e-12))):
        raise refuse("theta", theta, "angles in [0, π/2]")
    return np.minimum(angles, HALF_TURN)


def _log(values: Reals) -> Reals:
    with np.errstate(divide="ignore"):
        result: Reals = np.log(values)
    return result


def log_cap_share(d: int, theta: ArrayLike) -> Reals:
    """Return the log of the cap's share of the unit ball: log of (Γ ratio / √π) · ∫₀^θ sinᵈ φ dφ."""
    at_least("d", d, 1)
    angles = _checked_angles(theta)
    nodes, weights = (NODES + 1) / 2, WEIGHTS / 2  # on [0, 1]
    exponents = d * _log(np.sin(angles[..., None] * nodes)) + np.log(weights)
    top = np.maximum(exponents.max(axis=-1), np.finfo(np.float64).min)
    integral: Reals = top + _log(np.exp(exponents - top[..., None]).sum(axis=-1)) + _log(angles)
    return math.lgamma(d / 2 + 1) - math.lgamma((d + 1) / 2) - 0.5 * math.log(math.pi) + integral


def cap_share(d: int, theta: ArrayLike) -> Reals:
    """Return V_cap(d, θ) / V_ball(d) for θ in [0, π/2].

    >>> round(float(cap_share(3, np.pi / 2)), 12)    # half the ball
    0.5
    >>> round(float(cap_share(2, np.pi / 3)), 6)     # a circle's segment: (θ - sin θ cos θ) / π
    0.195501
    """
    return np.exp(log_cap_share(d, theta))


def log_lower(d: int, theta: ArrayLike) -> Reals:
    """Return the log of the paper's lower bound, (2/π)ᵈ θ^(d+1) / √(π(2d+4))."""
    power = (d + 1) * _log(_checked_angles(theta))
    return power + d * math.log(2 / math.pi) - 0.5 * math.log(math.pi * (2 * d + 4))


def log_upper(d: int, theta: ArrayLike) -> Reals:
    """Return the log of the paper's upper bound, θ^(d+1) / √(π(2d+2))."""
    return (d + 1) * _log(_checked_angles(theta)) - 0.5 * math.log(math.pi * (2 * d + 2))


def share_beyond(d: int, height: ArrayLike) -> Reals:
    """Return the share of the unit ball beyond a plane at signed distance ``height`` from its centre.

    >>> [round(float(share_beyond(2, h)), 3) for h in (-2.0, 0.0, 0.5, 1.0)]
    [1.0, 0.5, 0.196, 0.0]
    """
    heights = np.clip(np.asarray(height, np.float64), -1.0, 1.0)
    small = cap_share(d, np.arccos(np.abs(heights)))
    return np.where(heights >= 0, small, 1 - small)


def angle_of_share(d: int, share: float) -> float:
    """Return the polar angle of the cap that is ``share`` of the ball, 0 < share <= 1/2, by bisection.

    >>> round(angle_of_share(3, float(cap_share(3, 0.3))), 12)
    0.3
    """
    if not 0 < share <= 0.5:
        raise refuse("share", share, "a number in (0, 1/2]: a cap no larger than half the ball")
    goal = math.log(share)
    low, high = bisect(lambda theta: float(log_cap_share(d, theta)) < goal, 0.0, HALF_TURN)
    return (low + high) / 2


def bisect(is_low: Callable[[float], bool], low: float, high: float, steps: int = 60) -> tuple[float, float]:
    """Return the interval (low, high) halved ``steps`` times around the point where ``is_low`` becomes false.

    Sixty steps halve π/2 down to the spacing of floats.
    """
    for _ in range(steps):
        middle = (low + high) / 2
        low, high = (middle, high) if is_low(middle) else (low, middle)
    return low, high


# --- how far from its limit the memory can be: the cap angle θ(N, k, d, δ), as printed and without rounding -------


def log_under_root(samples: float, k: int, d: int, delta: float) -> float:
    """Return log of (8/√π) √(2d+4) (log(2/δ) + k) / N, the quantity under the root of θ."""
    at_least("k", k, 1)
    if not 0 < delta < 1:
        raise refuse("delta", delta, "a probability in (0, 1)")
    if not samples > 0:
        raise refuse("samples", samples, "a number > 0")
    constant = math.log(8 / math.sqrt(math.pi)) + 0.5 * math.log(2 * d + 4)
    return constant + math.log(math.log(2 / delta) + k) - math.log(samples)


def cap_angle(samples: float, k: int, d: int, delta: float) -> float:
    """Return the paper's θ(N, k, d, δ); above π/2 it has no meaning.

    >>> round(cap_angle(20_000, 4, 2, 0.1), 4)
    0.2587
    """
    return HALF_TURN * math.exp(log_under_root(samples, k, d, delta) / (d + 1))


def cap_angle_sharp(samples: int, k: int, d: int, delta: float) -> float:
    """Return the smallest θ with P(fewer than k of N samples in a cap) <= δ/2; π/2 if there is none.

    The cap has half its ball's share, because a sample comes from either ball.
    """
    log_under_root(samples, k, d, delta)  # refuses invalid arguments
    if samples < k:
        return HALF_TURN
    # log of N choose j; lgamma would cancel for large N
    ways = [math.fsum(math.log(samples - i) - math.log(i + 1) for i in range(j)) for j in range(k)]

    def fewer(p: float) -> float:
        """Return P(Binomial(N, p) < k)."""
        logs = [ways[j] + j * math.log(p) + (samples - j) * math.log1p(-p) for j in range(k)]
        return math.fsum(math.exp(log) for log in logs)

    share = 2 * bisect(lambda p: fewer(p) > delta / 2, 0.0, 1.0, steps=100)[1]
    return HALF_TURN if share > 0.5 else angle_of_share(d, share)


def poisson_mean(k: int, risk: float) -> float:
    """Return the mean at which a Poisson number is below k with probability ``risk``: N p for large N."""

    def below(mean: float) -> float:
        return math.fsum(math.exp(j * math.log(mean) - mean - math.lgamma(j + 1)) for j in range(k))

    most = 2.0 * (math.log(1 / risk) + k)  # enough, by Chernoff
    return bisect(lambda mean: below(mean) > risk, 0.0, most, steps=100)[1]


# --- the error bounds ---------------------------------------------------------------------------------------------

BOUND_FORMS = ("printed", "corrected", "sharp")
SMALL_ANGLE = math.pi / 12
BASE = HALF_TURN * math.sqrt(3 * HALF_TURN)  # the paper's C


@dataclass(frozen=True, slots=True)
class Setting:
    """What the bounds need to know of the model: d, |μ|, μ·w_pre (with |w_pre| = 1) and b_pre.

    >>> setting = Setting(d=3, norm=0.8, alignment=0.4, bias=0.3)
    >>> bool(setting.error_asymptotic < setting.error_initial < 0.5)
    True
    """

    d: int
    norm: float
    alignment: float
    bias: float = 0.0

    def __post_init__(self) -> None:
        at_least("d", self.d, 1)
        if not 0 < real("alignment", self.alignment) <= real("norm", self.norm) + 1e-9:
            raise refuse("alignment", self.alignment, f"μ·w_pre in (0, |μ|] = (0, {self.norm:g}]")
        if not abs(self.bias) < self.alignment + 1:
            raise refuse("bias", self.bias, f"|b_pre| < μ·w_pre + 1 = {self.alignment + 1:g}")

    @property
    def apex(self) -> float:
        """A = |μ + w_pre|, the distance from the origin to where the memory converges."""
        return math.sqrt(self.norm**2 + 2 * self.alignment + 1)

    @property
    def asymptotic_alignment(self) -> float:
        """μ·w_asym, where w_asym is the direction of μ + w_pre."""
        return (self.norm**2 + self.alignment) / self.apex

    @property
    def reach(self) -> float:
        """B, how far a point of a ball can be from the line through both apexes."""
        return 1 + math.sqrt(max(self.norm**2 - self.asymptotic_alignment**2, 0.0))

    @property
    def error_initial(self) -> float:
        """ε_pre, exact."""
        sides = share_beyond(self.d, np.array([self.alignment - self.bias, self.alignment + self.bias]))
        return float(sides.mean())

    @property
    def error_unbiased(self) -> float:
        """The error of the initial plane moved to the origin, exact: between ε_asym and ε_pre."""
        return float(share_beyond(self.d, self.alignment))

    @property
    def error_asymptotic(self) -> float:
        """ε_asym, exact: that of the plane half way between the two apexes."""
        return float(share_beyond(self.d, self.asymptotic_alignment))

    @property
    def separable(self) -> bool:
        """Whether ε_asym = 0, the case of the faster rate."""
        return self.asymptotic_alignment >= 1

    @property
    def angle_apart(self) -> float:
        """Below this angle no sample of the other ball is as certain as the cap."""
        return math.acos(min(max(0.0, 1 - 2 * self.alignment), 1.0))

    @property
    def angle_signed(self) -> float:
        """Below this angle the initial classifier labels the whole cap correctly."""
        return math.acos(min(max(0.0, abs(self.bias) - self.alignment), 1.0))


@dataclass(frozen=True, slots=True)
class ErrorBound:
    """An upper bound of the error rate that holds with probability 1 - δ, and whether it says anything.

    ``general`` is the excess of the first rate, N^(-1/(d+1)); ``separable`` that of the second, N^(-1/2),
    None where ε_asym > 0. ``value`` is the bound: the smaller excess, plus ε_asym except in the printed form.
    """

    form: str
    theta: float
    general: float
    separable: float | None
    value: float
    small_angle: bool  # θ < π/12
    balls_apart: bool  # θ < arccos max(0, 1 - 2 μ·w)
    signs_right: bool  # θ < arccos max(0, |b| - μ·w)

    @property
    def holds(self) -> bool:
        """Whether the side conditions hold; ``sharp`` does not need θ < π/12."""
        return self.balls_apart and self.signs_right and (self.small_angle or self.form == "sharp")

    @property
    def vacuous(self) -> bool:
        """Whether the bound says nothing: its conditions fail, or guessing (1/2) is as good."""
        return not self.holds or self.value >= 0.5


def slab_width(theta: float, apex: float, reach: float, form: str = "corrected") -> float:
    """Return Δ: further than this from the middle plane, a memory within θ of its apexes does not err.

    Where √(B² + (A+Δ)²) - √(B² + (A-Δ)²) = 2θ. The solution is θ √(1 + B²/(A² - θ²)); the appendix prints
    θ √(1 + 4B²/(4A² - θ²)), which is a little too small. Both stay below the 3θ that the proof goes on with.
    """
    choice("form", form, BOUND_FORMS)
    if not 0 <= theta < apex:
        raise refuse("theta", theta, f"an angle below A = {apex:g}")
    rest = apex**2 - (theta**2 / 4 if form == "printed" else theta**2)
    return theta * math.sqrt(1 + reach**2 / rest)


def single_client(setting: Setting, samples: int, k: int, delta: float, form: str = "corrected") -> ErrorBound:
    """Return the bound of the single-client theorem after ``samples`` samples with k slots per class.

    >>> single_client(Setting(2, 0.8, 0.5), 10_000_000, 4, 0.1).vacuous
    False
    """
    return multi_client(setting, samples, 1, k, delta, form)


def multi_client(
    setting: Setting, samples: int, n_id: int, k: int, delta: float, form: str = "corrected"
) -> ErrorBound:
    """Return the bound of the multi-client theorem: n_ID clients of one domain with ``samples`` samples each.

    ``printed`` keeps the θ of one client in the side conditions. No form depends on the number of other
    clients. The proof takes for granted that samples of one's own domain stay in the merged memory; for centres μ' of
    the other domains, max |μ'·w| + 1 <= μ·w + cos θ is enough for that.
    """
    choice("form", form, BOUND_FORMS)
    d, total = setting.d, at_least("samples", samples, 1) * at_least("n_id", n_id, 1)
    if form == "sharp":
        theta = in_conditions = cap_angle_sharp(total, k, d, delta)
        value = sharp_error(setting, theta)
        general = value - setting.error_asymptotic
        separable = general if setting.separable else None
    else:
        theta = cap_angle(total, k, d, delta)
        in_conditions = cap_angle(samples, k, d, delta) if form == "printed" else theta
        general = 3 * theta * math.sqrt((d + 1) / (2 * math.pi))
        separable = separable_excess(d, theta) if setting.separable else None
        excess = general if separable is None else min(general, separable)
        value = excess if form == "printed" else setting.error_asymptotic + excess
    return ErrorBound(
        form,
        theta,
        general,
        separable,
        value,
        small_angle=in_conditions < SMALL_ANGLE,
        balls_apart=in_conditions < setting.angle_apart,
        signs_right=in_conditions < setting.angle_signed,
    )


def separable_excess(d: int, theta: float) -> float:
    """Return C^(d+1) (θ / (π/2))^((d+1)/2) / √(π(2d+2)), the second rate; infinite where floats end."""
    root = math.log(BASE) + 0.5 * math.log(theta / HALF_TURN)
    log = (d + 1) * root - 0.5 * math.log(math.pi * (2 * d + 2))
    return math.exp(log) if log < 700 else math.inf


def sharp_error(setting: Setting, theta: float) -> float:
    """Return the bound on the error of a memory inside caps of angle θ, without rounding; 1 where it says nothing."""
    radius = 2 * math.sin(theta / 2)  # of the cap, seen from its apex
    if radius >= setting.apex:
        return 1.0
    width = slab_width(radius, setting.apex, setting.reach, "sharp")
    return float(share_beyond(setting.d, setting.asymptotic_alignment - width))


# --- the least number of samples for which the bounds say something -----------------------------------------------


@dataclass(frozen=True, slots=True)
class SampleNeeds:
    """log10 of the least N for which each statement holds. ``separable`` is None where ε_asym > 0.

    ``conditions``: the theorem's side conditions hold. ``general``, ``separable``: they do, and the corrected
    bound of that rate is below 1/2. ``sharp``: the bound without rounding is below 1/2. ``improves``: it is
    below ε_pre, so that it proves an improvement; None where ε_asym is not below ε_pre.
    """

    d: int
    conditions: float
    general: float
    separable: float | None
    sharp: float
    improves: float | None


def samples_needed(setting: Setting, k: int, delta: float) -> SampleNeeds:
    """Return the numbers of samples from which the bounds say something in this setting.

    >>> needed = samples_needed(Setting(d=512, norm=0.8, alignment=0.4), k=8, delta=0.1)
    >>> needed.general > 390        # there are about 10^80 atoms in the universe
    True
    """
    d, room = setting.d, 0.5 - setting.error_asymptotic
    limit = min(SMALL_ANGLE, setting.angle_apart, setting.angle_signed)
    widest = room / 3 * math.sqrt(2 * math.pi / (d + 1))  # the θ at which ε_asym + excess = 1/2
    log = (math.log(0.5) + 0.5 * math.log(math.pi * (2 * d + 2))) / (d + 1) - math.log(BASE)
    second = HALF_TURN * math.exp(2 * log)  # the θ at which the second rate's bound is 1/2
    gains = setting.error_asymptotic < setting.error_initial
    return SampleNeeds(
        d,
        _log10_samples(limit, k, d, delta),
        _log10_samples(min(limit, widest), k, d, delta),
        _log10_samples(min(limit, second), k, d, delta) if setting.separable else None,
        _log10_sharp(setting, 0.5, k, delta),
        _log10_sharp(setting, setting.error_initial, k, delta) if gains else None,
    )


def _log10_samples(theta: float, k: int, d: int, delta: float) -> float:
    """Return log10 of the N whose printed cap angle is ``theta``."""
    return (log_under_root(1, k, d, delta) + (d + 1) * math.log(HALF_TURN / theta)) / math.log(10)


def _log10_sharp(setting: Setting, level: float, k: int, delta: float) -> float:
    """Return log10 of the N at which the sharp bound reaches ``level``: first the widest θ, then its N.

    For so many samples the binomial is a Poisson distribution: N p is the mean with P(fewer than k) = δ/2.
    """
    widest = min(setting.angle_apart, setting.angle_signed)
    low, _ = bisect(lambda theta: sharp_error(setting, theta) < level, 0.0, widest)
    log_p = float(log_cap_share(setting.d, low)) - math.log(2)
    return (math.log(poisson_mean(k, delta / 2)) - log_p) / math.log(10)
