"""Which clients handle a sample in a round, and which sync after it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..core.sync import SYNC_TIMES, is_due
from ..core.validate import at_least, choice, real
from ..errors import refuse

MOST_ROUNDS = 1_000_000  # before a client starts: rounds without clients are walked, too
SYNCS = ("method", *SYNC_TIMES)


@dataclass(frozen=True, slots=True)
class Schedule:
    """How a federation proceeds.

    ``sync`` says when a client syncs:

    - ``every``: after every ``period``-th image, the paper's T. With the barrier, all sync after every T-th round;
      without it, each client syncs on its own after every T of its images, and ``periods`` may give each its own T.
    - ``doubling``: after its own 1st, 2nd, 4th, 8th and 16th image, then after every ``period`` (16, if that is 1).
      A sync is worth most to a client that has seen little.
    - ``powers``: after its own 1st, 2nd, 4th, 8th, ... image.
    - ``method``: as the method has it by default. (:meth:`for_method` puts that in place.)

    The last two are counted per client, without a common clock; all clients that are due after a round upload, then all
    download.
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
    sync: str = "method"

    def __post_init__(self) -> None:
        at_least("period", self.period, 1)
        choice("sync", self.sync, SYNCS)
        if self.sync in ("doubling", "powers") and not self.barrier:
            raise refuse("sync", f"{self.sync!r} with barrier=False", "'every', or barrier=True")
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
            values = getattr(self, name)
            if values is not None and len(values) != clients:
                raise refuse(name, f"{len(values)} entries", f"{clients}, one per client")

    def for_method(self, default: str) -> Schedule:
        """Return this schedule; if it leaves ``sync`` to the method, with ``default``, that of the method."""
        if self.sync != "method":
            return self
        return replace(self, sync="every" if not self.barrier else default)

    def is_due(self, images: int) -> bool:
        """Say whether a client syncs after its ``images``-th image, if syncs are counted per client."""
        return is_due(self.sync, images, self.period)

    def period_of(self, client: int) -> int:
        """Return T of one client."""
        return self.period if self.periods is None else self.periods[client]


@dataclass(frozen=True, slots=True)
class Round:
    """One round: its ``number`` (from 1) and three lists of clients.

    The ``cohort`` is there, the ``active`` clients handle a sample, and the ``members`` sync after it: all upload, then
    all download. ``members`` is empty if every client syncs on its own.
    """

    number: int
    cohort: tuple[int, ...]
    active: tuple[int, ...]
    members: tuple[int, ...]


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
        handled = {i: lengths[i] - left[i] for i in active}
        yield Round(number, cohort, active, _members(schedule, number, cohort, handled) if any(left) else ())


def count_syncs(lengths: Sequence[int], schedule: Schedule, rng: np.random.Generator) -> list[int]:
    """Return how often each client syncs until it has handled its ``lengths[i]`` samples.

    >>> count_syncs([60, 61, 4], Schedule(sync="doubling"), np.random.default_rng(0))
    [7, 7, 3]
    """
    syncs, handled = [0] * len(lengths), [0] * len(lengths)
    for turn in rounds(lengths, schedule, rng):
        for i in turn.active:
            handled[i] += 1
            syncs[i] += not schedule.barrier and handled[i] % schedule.period_of(i) == 0
        for i in turn.members:
            syncs[i] += 1
    return syncs


def _members(schedule: Schedule, number: int, cohort: tuple[int, ...], handled: Mapping[int, int]) -> tuple[int, ...]:
    """Return the clients that sync after round ``number``; ``handled`` counts the images of the active clients."""
    if schedule.sync in ("doubling", "powers"):
        return tuple(i for i, images in handled.items() if schedule.is_due(images))
    return cohort if schedule.barrier and number % schedule.period == 0 else ()


def _cohort(n: int, schedule: Schedule, number: int, rng: np.random.Generator) -> tuple[int, ...]:
    """Return the clients that are there in round ``number``, in ascending order; finished clients still sync."""
    there = [i for i in range(n) if schedule.starts is None or schedule.starts[i] <= number]
    if schedule.participation == 1 or not there:
        return tuple(there)
    size = max(1, round(schedule.participation * len(there)))
    return tuple(sorted(rng.choice(there, size, replace=False).tolist()))


def secret_of(rng: np.random.Generator | None) -> int:
    """Return 128 bits that follow from the seed of ``rng``, not from what was drawn of it: nothing is drawn here.

    >>> secret_of(np.random.default_rng(7)) == secret_of(np.random.default_rng(7)) != secret_of(None)
    True
    """
    seed = getattr((rng or np.random.default_rng(0)).bit_generator, "seed_seq", None)
    return 0 if seed is None else int.from_bytes(seed.generate_state(4).astype("<u4").tobytes(), "little")
