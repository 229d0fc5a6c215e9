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
from dataclasses import dataclass

import numpy as np

from ..core.validate import at_least, choice, real
from ..errors import refuse
from .angles import cap_angle, cap_angle_sharp
from .sphere import HALF_TURN, share_beyond

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
    error_initial: float

    @property
    def holds(self) -> bool:
        """Whether the side conditions hold; ``sharp`` does not need θ < π/12."""
        return self.balls_apart and self.signs_right and (self.small_angle or self.form == "sharp")

    @property
    def vacuous(self) -> bool:
        """Whether the bound says nothing: its conditions fail, or guessing (1/2) is as good."""
        return not self.holds or self.value >= 0.5

    @property
    def improves(self) -> bool:
        """Whether the bound proves that adaptation beats the initial classifier."""
        return self.holds and self.value < self.error_initial


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
    choice("form", form, BOUND_FORMS)
    if form == "sharp":
        return _sharp(setting, samples, k, delta)
    theta = cap_angle(samples, k, setting.d, delta)
    return _rounded(setting, theta, theta, form)


def multi_client(
    setting: Setting, samples: int, n_id: int, k: int, delta: float, form: str = "corrected"
) -> ErrorBound:
    """Return the bound of the multi-client theorem: n_ID clients of one domain with ``samples`` samples each.

    ``printed`` keeps the θ of one client in the side conditions. No form depends on the number of other
    clients; see :func:`ood_out_of_sight` for what they must satisfy for that to be true.
    """
    choice("form", form, BOUND_FORMS)
    total = at_least("samples", samples, 1) * at_least("n_id", n_id, 1)
    if form != "printed":
        return single_client(setting, total, k, delta, form)
    d = setting.d
    return _rounded(setting, cap_angle(total, k, d, delta), cap_angle(samples, k, d, delta), form)


def ood_out_of_sight(setting: Setting, theta: float, heights: tuple[float, ...]) -> bool:
    """Return whether samples of other domains are all less certain than the cap, whatever their number.

    ``heights`` are |μ'·w_pre| of the other domains' centres. The multi-client proof takes for granted that
    samples of one's own domain stay in the merged memory; max |μ'·w| + 1 <= μ·w + cos θ is enough for that.
    """
    return max(heights, default=-math.inf) + 1 <= setting.alignment + math.cos(theta)


def _rounded(setting: Setting, theta: float, theta_of_conditions: float, form: str) -> ErrorBound:
    general = 3 * theta * math.sqrt((setting.d + 1) / (2 * math.pi))
    separable = separable_excess(setting.d, theta) if setting.separable else None
    excess = general if separable is None else min(general, separable)
    remaining = 0.0 if form == "printed" else setting.error_asymptotic
    return _bound(setting, form, (theta, theta_of_conditions), (general, separable), remaining + excess)


def separable_excess(d: int, theta: float) -> float:
    """Return C^(d+1) (θ / (π/2))^((d+1)/2) / √(π(2d+2)), the second rate; infinite where floats end."""
    root = math.log(BASE) + 0.5 * math.log(theta / HALF_TURN)
    log = (d + 1) * root - 0.5 * math.log(math.pi * (2 * d + 2))
    return math.exp(log) if log < 700 else math.inf


def _sharp(setting: Setting, samples: int, k: int, delta: float) -> ErrorBound:
    theta = cap_angle_sharp(samples, k, setting.d, delta)
    value = sharp_error(setting, theta)
    excess = value - setting.error_asymptotic
    return _bound(setting, "sharp", (theta, theta), (excess, excess if setting.separable else None), value)


def sharp_error(setting: Setting, theta: float) -> float:
    """Return the bound on the error of a memory inside caps of angle θ, without rounding; 1 where it says nothing."""
    radius = 2 * math.sin(theta / 2)  # of the cap, seen from its apex
    if radius >= setting.apex:
        return 1.0
    width = slab_width(radius, setting.apex, setting.reach, "sharp")
    return float(share_beyond(setting.d, setting.asymptotic_alignment - width))


def _bound(
    setting: Setting,
    form: str,
    thetas: tuple[float, float],
    excess: tuple[float, float | None],
    value: float,
) -> ErrorBound:
    theta, in_conditions = thetas
    return ErrorBound(
        form,
        theta,
        *excess,
        value,
        small_angle=in_conditions < SMALL_ANGLE,
        balls_apart=in_conditions < setting.angle_apart,
        signs_right=in_conditions < setting.angle_signed,
        error_initial=setting.error_initial,
    )
