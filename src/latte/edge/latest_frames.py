"""Frames that do not wait, such as those of a camera: the oldest are dropped, and counted."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any


class LatestFrames:
    """Frames that do not wait, such as those of a camera: a thread takes them as they come and stores ``room`` at most.

    If frames come faster than they are used, the oldest make room for the newest, and are counted as ``dropped``.
    An error of ``frames`` is raised after the frames before it.

    >>> frames = LatestFrames(range(3))
    >>> list(frames), frames.dropped
    ([0, 1, 2], 0)
    """

    def __init__(self, frames: Iterable[Any], room: int = 8) -> None:
        self._frames, self._stored = frames, deque[Any]()
        self._room, self.dropped = room, 0
        self._change = threading.Condition()
        self._over = False
        self._failure: BaseException | None = None  # of the frames themselves

    @property
    def waiting(self) -> int:
        """Frames that are stored."""
        return len(self._stored)

    def __iter__(self) -> Iterator[Any]:
        threading.Thread(target=self._take, name="latte-frames", daemon=True).start()
        while True:
            with self._change:
                self._change.wait_for(lambda: self._stored or self._over)
                if not self._stored:
                    break
                frame = self._stored.popleft()
            yield frame
        if self._failure is not None:
            raise self._failure

    def _take(self) -> None:
        try:
            for frame in self._frames:
                with self._change:
                    if len(self._stored) >= self._room:
                        self._stored.popleft()
                        self.dropped += 1
                    self._stored.append(frame)
                    self._change.notify()
        except BaseException as error:  # such as that of a camera which was unplugged
            self._failure = error
        finally:
            with self._change:
                self._over = True
                self._change.notify()
