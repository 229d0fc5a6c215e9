"""What the processor time of a thread was spent on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Stopwatch:
    """Adds up processor seconds by the name of a phase. One thread uses it.

    >>> watch = Stopwatch()
    >>> with watch.phase("wire"):
    ...     total = sum(range(1000))
    >>> list(watch.take()), watch.take()
    (['wire'], {})
    """

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the time of a block for ``name``."""
        start = time.thread_time()
        try:
            yield
        finally:
            self._seconds[name] = self._seconds.get(name, 0.0) + time.thread_time() - start

    def take(self) -> dict[str, float]:
        """Return the seconds of all phases, and begin again with none."""
        seconds, self._seconds = self._seconds, {}
        return seconds
