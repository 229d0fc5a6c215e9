"""A queue with little room between two threads, one that puts and one that gets, which a signal cannot stop.

``queue.SimpleQueue.get`` with a timeout may wait for ever if a signal arrives as the time ends (seen with Python 3.11),
and the locks of ``queue.Queue`` cost a tenth of a millisecond per picture.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class NothingYetError(Exception):
    """Nothing came in time."""


class Handover(Generic[T]):
    """Passes items on in their order; ``room`` of them wait at most.

    >>> handover = Handover[str](room=1)
    >>> handover.put("a", seconds=0), handover.put("b", seconds=0)
    (True, False)
    >>> handover.get(seconds=0), len(handover)
    ('a', 0)
    """

    def __init__(self, room: int) -> None:
        self._items: deque[T] = deque()
        self._room = room
        self._arrival, self._departure = Bell(), Bell()

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: T, seconds: float) -> bool:
        """Add an item; return False if there was no room for it for so long."""
        if not self._departure.wait_for(self._has_room, seconds):
            return False
        self._items.append(item)
        self._arrival.ring()
        return True

    def get(self, seconds: float) -> T:
        """Return the next item; a NothingYetError says that none came for so long."""
        if not self._arrival.wait_for(self._has_items, seconds):
            raise NothingYetError
        item = self._items.popleft()
        self._departure.ring()
        return item

    def _has_room(self) -> bool:
        return len(self._items) < self._room

    def _has_items(self) -> bool:
        return bool(self._items)


class Bell:
    """One thread rings it, another waits for it."""

    def __init__(self) -> None:
        self._silence = threading.Lock()  # locked: it has not rung since the last wait
        self._silence.acquire()

    def ring(self) -> None:
        """Wake the thread that waits."""
        if self._silence.locked():
            self._silence.release()

    def wait_for(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait until somebody rings because ``condition`` has come true, at most so long; return whether it has."""
        if condition():
            return True
        self._silence.acquire(blocking=False)  # it may have rung for something that was there without waiting
        if condition():
            return True
        self._silence.acquire(timeout=seconds)
        return condition()
