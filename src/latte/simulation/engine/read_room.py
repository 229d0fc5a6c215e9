"""The scratch space that the reading of a window needs."""

from __future__ import annotations

import numpy as np

from ...core.types import Integers
from .arrays import Arrivals, HeldItems, WindowSpan
from .loops_merge import Events, merge_room
from .loops_number import ROUGHLY, ColumnRoom, OlderRoom
from .loops_read import ReadRoom
from .loops_readout import readout_room


def make_read_room(at: int, end: int, span: WindowSpan, arrivals: Arrivals, memory: HeldItems, new: int) -> ReadRoom:
    """Return room for the largest of the clients ``at`` to ``end``, and for ``new`` items of every class."""
    classes, slots = memory.merged.shape[1:]
    rows = int((span.last - span.first)[at:end].max(initial=0))
    events = int((span.last - span.first + np.diff(arrivals.bounds))[at:end].max(initial=0))
    wide = classes * slots + events * slots
    held = HeldItems(*(np.empty_like(array[0]) for array in memory[:3]), gram=np.empty((0, 0, 0), np.float32))
    return ReadRoom(
        before=held,
        merge=merge_room(memory.local.shape[2], memory.external.shape[2]),
        events=Events(_integers(events), _integers(events), _integers(events, slots)),
        columns=_column_room(classes, slots, wide, events, rows),
        older=_older_room(classes, slots, wide, new),
        readout=readout_room(classes, slots),
        near=np.empty(rows * wide, np.float32),
        uncertainty=np.empty(wide),
    )


def _integers(*shape: int) -> Integers:
    return np.empty(shape, np.int64)


def _column_room(classes: int, slots: int, wide: int, events: int, rows: int) -> ColumnRoom:
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
        later=_integers(events, slots),
        ends=_integers(rows // ROUGHLY + 3),
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
