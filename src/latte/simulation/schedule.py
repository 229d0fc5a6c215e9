"""Who handles a sample in a round, and who syncs after it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ..core.validate import at_least, real, refuse

MOST_ROUNDS = 1_000_000  # before a client starts: rounds in which nobody is there are walked, too


@dataclass(frozen=True, slots=True)
class Schedule:
    """How a federation proceeds.

    ``period`` is the paper's T: with the barrier, everyone syncs after every T-th round; without it, each client
    syncs on its own after every T of its samples, and ``periods`` may give each client its own T.
    ``participation`` is the share of the clients that is there in a round: one cohort per round, which handles
    its samples and syncs (B11). ``starts`` gives the first round of each client; everyone starts in round 1
    without it.

    The barrier (all push, then all pull) is what the released code does (B12); client-initiated is what the paper
    says. There is no sync after the last round (B13).
    """

    period: int = 1
    participation: float = 1.0
    barrier: bool = True
    periods: tuple[int, ...] | None = None
    starts: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        at_least("period", self.period, 1)
        if not 0 < real("participation", self.participation) <= 1:
            raise refuse("participation", self.participation, "a share in (0, 1]")
        if self.periods is not None and self.barrier:
            raise refuse("periods", "one period per client with barrier=True", "barrier=False, or one period")
        for name in ("periods", "starts"):
            for value in getattr(self, name) or ():
                at_least(name, value, 1, MOST_ROUNDS)

    def check(self, clients: int) -> None:
        """Refuse a schedule that was made for another number of clients."""
        for name in ("periods", "starts"):
            given = getattr(self, name)
            if given is not None and len(given) != clients:
                raise refuse(name, f"{len(given)} entries", f"{clients}, one per client")

    def period_of(self, client: int) -> int:
        """Return T of one client."""
        return self.period if self.periods is None else self.periods[client]


@dataclass(frozen=True, slots=True)
class Round:
    """One round: its number (from 1), who is there, who of them handles a sample, and whether a barrier follows."""

    number: int
    cohort: tuple[int, ...]
    active: tuple[int, ...]
    barrier: bool


def rounds(lengths: Sequence[int], schedule: Schedule, rng: np.random.Generator) -> Iterator[Round]:
    """Yield the rounds that it takes until every client has handled its ``lengths[i]`` samples."""
    schedule.check(len(lengths))
    left = list(lengths)
    number = 0
    while any(left):
        number += 1
        cohort = _cohort(len(left), schedule, number, rng)
        active = tuple(i for i in cohort if left[i])
        for i in active:
            left[i] -= 1
        yield Round(number, cohort, active, schedule.barrier and number % schedule.period == 0 and any(left))


def _cohort(n: int, schedule: Schedule, number: int, rng: np.random.Generator) -> tuple[int, ...]:
    """Return who is there in round ``number``, in ascending order; finished clients still sync."""
    there = [i for i in range(n) if schedule.starts is None or schedule.starts[i] <= number]
    if schedule.participation == 1 or not there:
        return tuple(there)
    size = max(1, round(schedule.participation * len(there)))
    return tuple(sorted(rng.choice(there, size, replace=False).tolist()))
