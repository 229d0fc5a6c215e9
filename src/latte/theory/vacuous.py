"""Where the bounds are vacuous: the least number of samples for which they say something, by dimension."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .angles import log_under_root, poisson_mean
from .bounds import BASE, SMALL_ANGLE, Setting, sharp_error
from .sphere import HALF_TURN, bisect, log_cap_share


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
    return SampleNeeds(
        d,
        _log10_samples(limit, k, d, delta),
        _log10_samples(min(limit, widest), k, d, delta),
        _log10_samples(min(limit, _separable_angle(d)), k, d, delta) if setting.separable else None,
        _log10_sharp(setting, 0.5, k, delta),
        _log10_sharp(setting, setting.error_initial, k, delta)
        if setting.error_asymptotic < setting.error_initial
        else None,
    )


def _separable_angle(d: int) -> float:
    """Return the θ at which the second rate's bound is 1/2."""
    log = (math.log(0.5) + 0.5 * math.log(math.pi * (2 * d + 2))) / (d + 1) - math.log(BASE)
    return HALF_TURN * math.exp(2 * log)


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
