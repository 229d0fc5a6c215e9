"""How many syncs a server answers, and how long each waits: the last five minutes, in steps of two seconds."""

from __future__ import annotations

import random
import time
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

STEP = 2.0  # seconds
STEPS = 150
MINUTE = 30  # steps
MOST_TIMES = 512  # of one step that are remembered, chosen at random: the p99 of 256 syncs per second and more


class LoadSummary(msgspec.Struct, frozen=True):
    """Syncs per second and latencies in seconds: of the last minute, and per step (oldest first; None: no syncs)."""

    step: float
    rate: float
    p50: float | None
    p99: float | None
    rates: list[float]
    p50s: list[float | None]
    p99s: list[float | None]


@dataclass(slots=True)
class LoadStep:
    """The syncs of one step."""

    number: int
    count: int = 0
    times: array[float] = field(default_factory=lambda: array("f"))


class SyncLoad:
    """The latest steps. One thread adds to it; any thread may read."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._steps: deque[LoadStep] = deque(maxlen=STEPS + 1)
        self._first = int(clock() / STEP)

    def add(self, seconds: float) -> None:
        """Count a sync that took ``seconds``."""
        number = int(self._clock() / STEP)
        if not self._steps or self._steps[-1].number != number:
            self._steps.append(LoadStep(number))
        step = self._steps[-1]
        step.count += 1
        if len(step.times) < MOST_TIMES:
            step.times.append(seconds)
        elif (place := random.randrange(step.count)) < MOST_TIMES:
            step.times[place] = seconds

    def summary(self) -> LoadSummary:
        """Return the last five minutes; the step that is under way is left out."""
        last = int(self._clock() / STEP)
        known = {step.number: step for step in list(self._steps)}
        steps = [known.get(number) for number in range(max(self._first, last - STEPS), last)]
        minute = steps[-MINUTE:]
        p50, p99 = _percentiles([time for step in minute if step for time in step.times])
        pairs = [_percentiles(step.times if step else ()) for step in steps]
        return LoadSummary(
            step=STEP,
            rate=_rate(sum(step.count for step in minute if step), len(minute)),
            p50=p50,
            p99=p99,
            rates=[_rate(step.count if step else 0, 1) for step in steps],
            p50s=[pair[0] for pair in pairs],
            p99s=[pair[1] for pair in pairs],
        )


def _rate(count: int, steps: int) -> float:
    return round(count / (STEP * steps), 3) if steps else 0.0


def _percentiles(times: Sequence[float]) -> tuple[float | None, float | None]:
    if not len(times):
        return None, None
    p50, p99 = np.percentile(times, (50, 99))
    return round(float(p50), 6), round(float(p99), 6)
