"""How far from its limit the memory can be: the cap angle θ(N, k, d, δ), as printed and without rounding."""

from __future__ import annotations

import math

from ..core.validate import at_least
from ..errors import refuse
from .sphere import HALF_TURN, angle_of_share, bisect


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
    share = 2 * _rarest(samples, k, delta / 2)
    return HALF_TURN if share > 0.5 else angle_of_share(d, share)


def _rarest(samples: int, k: int, risk: float) -> float:
    """Return the p at which P(Binomial(N, p) < k) = risk, by bisection; 1 where N < k."""
    if samples < k:
        return 1.0
    return bisect(lambda p: _fewer_than(samples, k, p) > risk, 0.0, 1.0, steps=100)[1]


def _fewer_than(samples: int, k: int, p: float) -> float:
    """Return P(Binomial(N, p) < k)."""
    j = range(k)
    terms = [_log_choose(samples, i) + i * math.log(p) + (samples - i) * math.log1p(-p) for i in j]
    return math.fsum(math.exp(term) for term in terms)


def _log_choose(n: int, k: int) -> float:
    return math.fsum(math.log(n - i) - math.log(i + 1) for i in range(k))  # lgamma would cancel for large n


def poisson_mean(k: int, risk: float) -> float:
    """Return the mean at which a Poisson number is below k with probability ``risk``: N p for large N."""

    def below(mean: float) -> float:
        return math.fsum(math.exp(j * math.log(mean) - mean - math.lgamma(j + 1)) for j in range(k))

    most = 2.0 * (math.log(1 / risk) + k)  # enough, by Chernoff
    return bisect(lambda mean: below(mean) > risk, 0.0, most, steps=100)[1]
