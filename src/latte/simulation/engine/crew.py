"""Threads that share out the parts of a job. The compiled loops release Python's lock, so that several cores work."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Generic, TypeVar

Part = TypeVar("Part")


class SharedJob(Generic[Part]):
    """Some parts to do in any order; the thread that calls :meth:`finish` helps."""

    def __init__(self, work: Callable[[Part], None], parts: Iterable[Part]) -> None:
        self.work, self.parts = work, deque(parts)
        self.helpers: list[Future[None]] = []

    def drain(self) -> None:
        """Take parts until there are none left."""
        while True:
            try:
                part = self.parts.popleft()
            except IndexError:
                return
            self.work(part)

    def finish(self) -> None:
        """Return when all parts are done; raise what any of them raised."""
        self.drain()
        for helper in self.helpers:
            if not helper.cancel():  # a helper that is busy elsewhere has nothing to do here any more
                helper.result()


class Crew:
    """This thread and ``threads - 1`` helpers.

    >>> done = []
    >>> with Crew(2) as crew:
    ...     crew.share(done.append, range(5))
    >>> sorted(done)
    [0, 1, 2, 3, 4]
    """

    def __init__(self, threads: int = 1) -> None:
        self.threads = threads
        self._helpers = ThreadPoolExecutor(threads - 1) if threads > 1 else None

    def start(self, work: Callable[[Part], None], parts: Iterable[Part]) -> SharedJob[Part]:
        """Let the helpers begin; the caller does something else and finishes the job later."""
        job = SharedJob(work, parts)
        if self._helpers:
            job.helpers = [self._helpers.submit(job.drain) for _ in range(self.threads - 1)]
        return job

    def share(self, work: Callable[[Part], None], parts: Iterable[Part]) -> None:
        """Do all parts, together with helpers that have nothing else to do."""
        self.start(work, parts).finish()

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._helpers:
            self._helpers.shutdown(cancel_futures=True)
