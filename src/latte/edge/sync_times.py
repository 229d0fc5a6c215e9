"""When a device syncs."""

from __future__ import annotations

import time
from dataclasses import dataclass

from ..core.sync import is_due

SYNC_SECONDS = 60.0  # after which something new is shared even if the task's number of pictures has not come
SYNC_PAUSE = 1.0  # a folder of photos, a hundred per second, is no reason for six syncs per second


@dataclass(frozen=True, slots=True)
class SyncTimes:
    """When a device syncs: after so many pictures of its own (see ``latte.core.sync``), or after so many seconds.

    With ``seconds`` 0, only pictures count. A sync that is due less than ``pause`` seconds after the last one waits,
    and then sends all that was learnt up to that moment.
    """

    kind: str = "every"
    period: int = 16
    seconds: float = SYNC_SECONDS
    pause: float = SYNC_PAUSE


class SyncClock:
    """Counts the pictures of a device, and says when it is time to share what was learnt from them.

    ``unshared`` are pictures of an earlier run: whether their summary arrived, nobody knows.

    >>> clock = SyncClock(SyncTimes("every", period=2, pause=3600.0))
    >>> for images in (1, 2):
    ...     clock.count(images)
    >>> clock.is_time()
    True
    >>> clock.restart()
    >>> for images in (3, 4):
    ...     clock.count(images)
    >>> clock.is_time(), clock.unshared                        # it waits for the end of the pause
    (False, 2)
    """

    def __init__(self, times: SyncTimes, unshared: int = 0) -> None:
        self.times, self.unshared = times, unshared
        self._last = self._earliest = time.monotonic()  # the last sync (or the start), and when the next may come
        self._due = False

    def count(self, images: int) -> None:
        """Count a picture that was learnt from; with it, they are so many ``images``."""
        self.unshared += 1
        self._due = self._due or is_due(self.times.kind, images, self.times.period)

    def is_time(self) -> bool:
        """Return whether to sync now."""
        late = 0 < self.times.seconds <= time.monotonic() - self._last
        return self.unshared > 0 and (self._due or late) and not self._pauses()

    def is_time_after(self, images: int) -> bool:
        """Return whether a sync should follow the picture with which they are so many ``images``."""
        return is_due(self.times.kind, images, self.times.period) and not self._pauses()

    def restart(self) -> None:
        """Begin anew: everything has been shared."""
        self._last, self.unshared, self._due = time.monotonic(), 0, False
        self._earliest = self._last + self.times.pause

    def _pauses(self) -> bool:
        return time.monotonic() < self._earliest
