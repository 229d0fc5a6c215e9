"""Queues of the most certain samples: which slot each sample takes. The replay that every memory method shares."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...core.types import Integers, Reals
from .array_types import Integers1, Integers2, Reals1, Reals2

# which of several equal entropies leaves a full queue: the last or the first slot, or the latest sample. ALWAYS is
# LAST, and a new sample is inserted even if its entropy is not lower (B7)
LAST, FIRST, LATEST, ALWAYS = 0, 1, 2, 3


class QueueShape(NamedTuple):
    """The number of queues, their slots, and the rule by which a sample leaves a full one."""

    classes: int
    slots: int
    rule: int


class QueueRoom(NamedTuple):
    """The entropies in all queues, since when they are there (C, S), and how many there are (C,)."""

    entropy: Reals2
    since: Integers2
    filled: Integers1


def queue_room(shape: QueueShape) -> QueueRoom:
    """Return empty queues."""
    size = (shape.classes, shape.slots)
    return QueueRoom(np.empty(size), np.zeros(size, np.int64), np.zeros(shape.classes, np.int64))


def fill_queues(
    sequence: Integers1,
    starts: Integers1,
    pseudo: Integers1,
    entropy: Reals1,
    shape: QueueShape,
    room: QueueRoom,
    slot: Integers1,
) -> None:
    """Write the ``slot`` (n,) of each sample that enters a queue; the others stay as they are.

    ``sequence`` orders the samples; a new set of queues starts at each of ``starts``. The sample of the highest entropy
    leaves a full queue.
    """
    held, since, count = room.entropy, room.since, room.filled
    for part in range(len(starts) - 1):
        for y in range(len(count)):
            count[y] = 0
        for place in range(starts[part], starts[part + 1]):
            k = sequence[place]
            y = pseudo[k]
            s = count[y]
            if s < shape.slots:
                count[y] += 1
            else:
                s = shape.slots - 1
                for t in range(shape.slots - 2, -1, -1):
                    tie = held[y, t] == held[y, s]
                    tie = tie and (shape.rule == FIRST or (shape.rule == LATEST and since[y, t] > since[y, s]))
                    s = t if held[y, t] > held[y, s] or tie else s
                if entropy[k] >= held[y, s] and shape.rule != ALWAYS:
                    continue
            held[y, s], since[y, s] = entropy[k], place
            slot[k] = s


def replay_queues(
    sequence: Integers, starts: Integers, pseudo: Integers, entropy: Reals, shape: QueueShape
) -> Integers:
    """Return the slot (n,) of each sample, -1 for none.

    >>> entropy = np.array([0.5, 0.9, 0.1])
    >>> replay_queues(np.arange(3), np.array([0, 3]), np.zeros(3, int), entropy, QueueShape(1, 1, LAST))
    array([ 0, -1,  0])
    """
    slot = np.full(len(pseudo), -1, np.int64)
    fill_queues(sequence, starts, pseudo, entropy, shape, queue_room(shape), slot)
    return slot
