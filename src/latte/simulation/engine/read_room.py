"""The scratch space that the reading of a window needs."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from operator import ge
from typing import NamedTuple

import numpy as np

from ...core.types import Integers
from .loop_arrays import Arrivals, HeldItems, WindowSpan
from .loops_merge import Events, merge_room
from .loops_number import ROUGHLY, ColumnRoom, OlderRoom
from .loops_read import ReadRoom
from .loops_readout import readout_room


class RoomSize(NamedTuple):
    """The largest client of a window: its samples, its events, and the new items of any of its classes."""

    samples: int
    events: int
    new: int


class ReadRooms:
    """Scratch space for several threads, used again and again: to get fresh memory for every window takes time."""

    def __init__(self, memory: HeldItems, new: int) -> None:
        self.memory, self.size = memory, RoomSize(0, 0, new)
        self._free: deque[tuple[RoomSize, ReadRoom]] = deque()

    def take(self, at: int, end: int, span: WindowSpan, arrivals: Arrivals) -> tuple[RoomSize, ReadRoom]:
        """Return room for the largest of the clients ``at`` to ``end``."""
        samples = span.last - span.first
        events = samples + np.diff(arrivals.bounds)
        least = RoomSize(int(samples[at:end].max(initial=0)), int(events[at:end].max(initial=0)), self.size.new)
        self.size = RoomSize(*map(max, self.size, least))
        with suppress(IndexError):
            size, room = self._free.pop()
            if all(map(ge, size, least)):
                return size, room
        return self.size, make_read_room(self.memory, self.size)

    def put_back(self, size: RoomSize, room: ReadRoom) -> None:
        """Let another thread use a room."""
        self._free.append((size, room))

    def widen(self, size: RoomSize) -> tuple[RoomSize, ReadRoom]:
        """Return a room for twice as many new items."""
        self.size = wider = RoomSize(*map(max, self.size, size._replace(new=2 * size.new)))
        return wider, make_read_room(self.memory, wider)


def make_read_room(memory: HeldItems, size: RoomSize) -> ReadRoom:
    """Return scratch space of a size."""
    classes, slots = memory.merged.shape[1:]
    wide = (classes + size.events) * slots
    local, external, merged = (np.empty_like(array[0]) for array in (memory.local, memory.external, memory.merged))
    return ReadRoom(
        before=HeldItems(local, external, merged, np.empty((0, 0, 0), np.float32)),
        merge=merge_room(memory.local.shape[2], memory.external.shape[2]),
        events=Events(_integers(size.events), _integers(size.events), _integers(size.events, slots)),
        columns=_column_room(classes, slots, wide, size),
        older=_older_room(classes, slots, wide, size.new),
        readout=readout_room(classes, slots),
        near=np.empty(size.samples * wide, np.float32),
        uncertainty=np.empty(wide),
    )


def _integers(*shape: int) -> Integers:
    return np.empty(shape, np.int64)


def _column_room(classes: int, slots: int, wide: int, size: RoomSize) -> ColumnRoom:
    return ColumnRoom(
        item=_integers(wide),
        born=_integers(wide),
        dead=_integers(wide),
        order=_integers(wide),
        scale=np.empty(wide, np.float32),
        fresh=_integers(wide),
        now=_integers(classes, slots),
        columns=_integers(classes, slots),
        start=_integers(classes, slots),
        later=_integers(size.events, slots),
        ends=_integers(size.samples // ROUGHLY + 3),
    )


def _older_room(classes: int, slots: int, wide: int, new: int) -> OlderRoom:
    return OlderRoom(
        place=_integers(wide),
        width=_integers(classes),
        members=_integers(wide),
        begin=_integers(classes + 1),
        rows=_integers(slots),
        samples=_integers(slots),
        block=np.empty((slots, new), np.float32),
        products=np.empty(classes * slots * new, np.float32),
    )
