"""Queues of the most certain samples: which slot each sample takes. All memory methods share this loop.

Latte compiles it, the others call it as it is.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .arrays import Integers1, Integers2, Reals1, Reals2

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
