"""What a schedule amounts to: windows of rounds, and in each the syncs in order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ...core.types import Integers, Mask
from ..schedule import Round, Schedule, rounds
from .array_types import Integers1

# Rounds that are replayed before they are read. The samples of a client in a window are compared with everything that
# it holds meanwhile: what stays is loaded once per window. Anything from 16 to 64 is as good.
WINDOW = 32


class Window(NamedTuple):
    """Some rounds: how many samples each client has handled at the end (N,), and the syncs on the way.

    In sync s, the members from ``starts[s]`` to ``starts[s + 1]`` push, then pull; each has handled ``at`` samples.
    """

    handled: Integers1  # (N,)
    members: Integers1  # (M,)
    at: Integers1  # (M,)
    starts: Integers1  # (syncs + 1,)


Sync = tuple[Integers, Integers]  # members, and what each has handled


def windows(lengths: list[int], schedule: Schedule, rng: np.random.Generator, size: int) -> Iterator[Window]:
    """Yield the windows of a run of ``size`` rounds; the generator gives the cohorts of the readable simulator."""
    schedule.check(len(lengths))
    if schedule.barrier and schedule.participation == 1:
        yield from _everyone(np.array(lengths, np.int64), schedule, size)
        return
    handled = np.zeros(len(lengths), np.int64)
    syncs: list[Sync] = []
    count = 0
    for handled, part in _each(lengths, schedule, rng):
        syncs.extend(part)
        count += 1
        if count % size == 0:
            yield _window(handled, syncs)
            syncs = []
    if count % size:
        yield _window(handled, syncs)


def _window(handled: Integers, syncs: list[Sync]) -> Window:
    none = np.zeros(0, np.int64)
    members = np.concatenate([none, *(members for members, _ in syncs)])
    at = np.concatenate([none, *(handled for _, handled in syncs)])
    return Window(handled.copy(), members, at, np.cumsum([0, *(len(members) for members, _ in syncs)]))


def _everyone(length: Integers, schedule: Schedule, size: int) -> Iterator[Window]:
    """Yield the windows where all clients that have started take part in every round, and no generator is needed."""
    start = np.ones(len(length), np.int64) if schedule.starts is None else np.array(schedule.starts)
    final = int((start + length - 1)[length > 0].max(initial=0))
    due = _due_images(schedule, int(length.max(initial=0)))
    for first in range(1, final + 1, size):
        number = np.arange(first, min(first + size, final + 1))[:, None]  # (rounds, 1)
        handled = np.clip(number + 1 - start, 0, length)  # (rounds, N)
        there = (start <= number) & (number < final)
        if due is None:
            there &= number % schedule.period == 0
        else:  # a client syncs after certain images of its own
            there &= due[handled] & (number < start + length)
        starts = np.cumsum([0, *there.sum(axis=1)[there.any(axis=1)]])
        members = np.ascontiguousarray(np.nonzero(there)[1])  # else the loops were compiled for strided arrays, too
        yield Window(handled[-1], members, handled[there], starts)


def _due_images(schedule: Schedule, most: int) -> Mask | None:
    """Return after which images (most + 1,) a client syncs; None where rounds are counted."""
    if schedule.sync not in ("doubling", "powers"):
        return None
    return np.array([schedule.is_due(images) for images in range(most + 1)])


def _each(lengths: list[int], schedule: Schedule, rng: np.random.Generator) -> Iterator[tuple[Integers, list[Sync]]]:
    """Yield what is handled after each round, and its syncs."""
    handled = np.zeros(len(lengths), np.int64)
    for turn in rounds(lengths, schedule, rng):
        syncs = list(_syncs_of(turn, schedule, handled))
        yield handled, syncs


def _syncs_of(turn: Round, schedule: Schedule, handled: Integers) -> Iterator[Sync]:
    """Count the samples of one round and yield its syncs."""
    if schedule.barrier:
        handled[list(turn.active)] += 1
        if turn.members:
            members = np.array(turn.members, np.int64)
            yield members, handled[members]
        return
    for i in turn.active:
        handled[i] += 1
        if handled[i] % schedule.period_of(i) == 0:
            yield np.array([i]), handled[i : i + 1].copy()


def order_of(lengths: list[int], schedule: Schedule, rng: np.random.Generator) -> Integers:
    """Return all samples, numbered client after client, in the order in which they are handled."""
    offsets = np.cumsum([0, *lengths])
    handled = np.zeros(len(lengths), np.int64)
    parts = [np.zeros(0, np.int64)]
    for turn in rounds(lengths, schedule, rng):
        active = np.array(turn.active, np.int64)
        parts.append(offsets[active] + handled[active])
        handled[active] += 1
    return np.concatenate(parts)
