"""A map in threads that keeps the order and never runs far ahead.

Threads are enough: Pillow decodes, resizes and transforms, numpy computes and ONNX Runtime runs without holding
the interpreter, nothing has to be copied between processes, and the caller's script needs no main guard.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

from ..core.validate import at_least

A = TypeVar("A")
B = TypeVar("B")


def map_in_order(
    function: Callable[[A], B], jobs: Iterable[A], workers: int = 1, ahead: int | None = None
) -> Generator[B, None, None]:
    """Yield ``function(job)`` for every job, in order, with at most ``ahead`` results waiting.

    >>> list(map_in_order(abs, [-1, 2, -3], workers=2))
    [1, 2, 3]
    """
    if at_least("workers", workers, 1) == 1 and ahead is None:
        return (function(job) for job in jobs)
    return _run_ahead(function, iter(jobs), workers, at_least("ahead", ahead or 2 * workers, 1))


def _run_ahead(function: Callable[[A], B], jobs: Iterator[A], workers: int, ahead: int) -> Generator[B, None, None]:
    pool = ThreadPoolExecutor(workers, thread_name_prefix="latte")
    try:
        waiting: deque[Future[B]] = deque(pool.submit(function, job) for job in islice(jobs, ahead))
        while waiting:
            result = waiting.popleft().result()
            waiting.extend(pool.submit(function, job) for job in islice(jobs, 1))
            yield result
    finally:  # also when the caller stops early or a job fails
        pool.shutdown(wait=True, cancel_futures=True)
