"""The scratch space that the reading of a window needs."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from operator import ge
from typing import NamedTuple

import numpy as np

from ...core.types import Integers
from .loop_arrays import Arrivals, ClientItems, HeldItems, WindowSpan
from .loops_merge import Events, merge_room
from .loops_number import ROUGHLY, ColumnRoom
from .loops_read import ReadRoom
from .loops_readout import readout_room


class RoomSize(NamedTuple):
    """The largest client of a window: its samples and its events."""

    samples: int
    events: int


class ReadRooms:
    """Scratch space for several threads, used again and again: to get fresh memory for every window takes time."""

    def __init__(self, held: HeldItems) -> None:
        self.held, self.size = held, RoomSize(0, 0)
        self._free: deque[tuple[RoomSize, ReadRoom]] = deque()

    def take(self, at: int, end: int, span: WindowSpan, arrivals: Arrivals) -> tuple[RoomSize, ReadRoom]:
        """Return room for the largest of the clients ``at`` to ``end``."""
        samples = span.last - span.first
        events = samples + np.diff(arrivals.bounds)
        least = RoomSize(int(samples[at:end].max(initial=0)), int(events[at:end].max(initial=0)))
        self.size = RoomSize(*map(max, self.size, least))
        with suppress(IndexError):
            size, room = self._free.pop()
            if all(map(ge, size, least)):
                return size, room
        return self.size, make_read_room(self.held, self.size)

    def put_back(self, size: RoomSize, room: ReadRoom) -> None:
        """Let another thread use a room."""
        self._free.append((size, room))


def make_read_room(held: HeldItems, size: RoomSize) -> ReadRoom:
    """Return scratch space of a size."""
    classes, slots = held.merged.shape[1:]
    wide = (classes + size.events) * slots
    return ReadRoom(
        before=ClientItems(*(np.empty_like(array[0]) for array in held)),
        merge=merge_room(held.local.shape[2], held.external.shape[2]),
        events=Events(_integers(size.events), _integers(size.events), _integers(size.events, slots)),
        columns=ColumnRoom(
            item=_integers(wide),
            born=_integers(wide),
            dead=_integers(wide),
            order=_integers(wide),
            scale=np.empty(wide, np.float32),
            entropy=np.empty(wide),
            client=_integers(wide),
            sync=_integers(wide),
            start=_integers(classes, slots),
            now=_integers(classes, slots),
            ends=_integers(size.samples // ROUGHLY + 3),
        ),
        readout=readout_room(classes, slots),
        missing=_integers(slots),
        near=np.empty(size.samples * wide, np.float32),
    )


def _integers(*shape: int) -> Integers:
    return np.empty(shape, np.int64)
