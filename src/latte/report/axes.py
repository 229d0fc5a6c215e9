"""The axis of a chart: its range, and the places of its ticks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Axis:
    """A linear axis from ``low`` to ``high`` with round ``ticks``; with ``names``, those stand at 0, 1, ..."""

    low: float
    high: float
    ticks: tuple[float, ...]
    decimals: int
    names: tuple[str, ...] = ()

    def place(self, value: float) -> float:
        """Return the position of ``value`` on the axis, 0 to 100 per cent."""
        return round(100 * (value - self.low) / (self.high - self.low), 3)

    def text(self, value: float) -> str:
        """Return the label of a tick at ``value``."""
        if self.names:
            return self.names[round(value)]
        return f"{value:,.{self.decimals}f}".replace("-", "−").replace("−0", "0" if value == 0 else "−0")


def nice_axis(values: Iterable[float], count: int = 5, tight: bool = False) -> Axis:
    """Return an axis that holds ``values`` with about ``count`` round steps; ``tight`` ends at the data.

    >>> nice_axis([61.3, 78.9]).ticks
    (60.0, 65.0, 70.0, 75.0, 80.0)
    """
    finite = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
    low, high = min(finite), max(finite)
    if high == low:
        low, high = low - 0.5, high + 0.5
    step = _step((high - low) / count)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = [number * step for number in range(first, last + 1)]
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    if not tight:
        return Axis(first * step, last * step, tuple(ticks), decimals)
    inside = tuple(tick for tick in ticks if low - 1e-9 * step <= tick <= high + 1e-9 * step)
    return Axis(low, high, inside, decimals)


def named_axis(names: Sequence[str]) -> Axis:
    """Return an axis with ``names`` at even steps: values that span decades, and words.

    >>> axis = named_axis(["0.1", "1", "10"])
    >>> [axis.text(tick) for tick in axis.ticks]
    ['0.1', '1', '10']
    """
    last = len(names) - 1
    low, high = (0.0, float(last)) if last else (-0.5, 0.5)
    return Axis(low, high, tuple(map(float, range(len(names)))), 0, tuple(names))


def _step(rough: float) -> float:
    """Return 1, 2 or 5 times a power of ten, the next above ``rough``."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next(size * power for size in (1, 2, 5, 10) if size * power >= rough * (1 - 1e-9))
