"""What a schedule amounts to: windows of rounds, and in each the syncs in order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ...core.types import Integers
from ..schedule import Round, Schedule, rounds

WINDOW = 32  # rounds: a client handles at most this many samples in a window


@dataclass(frozen=True, slots=True, eq=False)
class Sync:
    """``members`` (M,) push, then pull, after having handled ``handled`` (M,) samples each."""

    members: Integers
    handled: Integers


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """Some rounds: how many samples each client has handled at the end (N,), and the syncs on the way."""

    handled: Integers
    syncs: list[Sync]


def windows(lengths: list[int], schedule: Schedule, rng: np.random.Generator, size: int = WINDOW) -> Iterator[Window]:
    """Yield the windows of a run; cohorts are drawn as the readable simulator draws them."""
    handled = np.zeros(len(lengths), np.int64)
    syncs: list[Sync] = []
    count = 0
    for turn in rounds(lengths, schedule, rng):
        syncs.extend(_syncs_of(turn, schedule, handled))
        count += 1
        if count % size == 0:
            yield Window(handled.copy(), syncs)
            syncs = []
    if count % size:
        yield Window(handled.copy(), syncs)


def _syncs_of(turn: Round, schedule: Schedule, handled: Integers) -> Iterator[Sync]:
    """Count the samples of one round and yield its syncs."""
    if schedule.barrier:
        handled[list(turn.active)] += 1
        if turn.barrier:
            members = np.array(turn.cohort, np.int64)
            yield Sync(members, handled[members])
        return
    for i in turn.active:
        handled[i] += 1
        if handled[i] % schedule.period_of(i) == 0:
            yield Sync(np.array([i]), handled[i : i + 1].copy())


def order_of(lengths: list[int], schedule: Schedule, rng: np.random.Generator) -> Integers:
    """Return all samples, numbered client after client, in the order in which they are handled."""
    offsets = np.cumsum([0, *lengths])
    handled = np.zeros(len(lengths), np.int64)
    parts = []
    for turn in rounds(lengths, schedule, rng):
        active = np.array(turn.active, np.int64)
        parts.append(offsets[active] + handled[active])
        handled[active] += 1
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)
