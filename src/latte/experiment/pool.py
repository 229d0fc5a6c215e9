"""A pool of worker processes that does not outlive its parent and whose results do not depend on its size."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing.connection import wait

_THREADS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)


def unordered(
    call: Callable[[str], str], messages: Sequence[str], jobs: int
) -> Iterator[tuple[int, str | BaseException]]:
    """Yield (position, answer or exception) as ``call`` finishes, in ``jobs`` processes of one thread each.

    Stopping early (an exception, Ctrl-C, a generator that is closed) ends the processes at once.
    """
    before = set(multiprocessing.active_children())
    with _one_thread_each():
        context = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(min(jobs, len(messages)), context, initializer=_start)
        try:
            positions = {pool.submit(call, message): i for i, message in enumerate(messages)}
            for future in as_completed(positions):
                yield positions[future], _answer(future)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for child in set(multiprocessing.active_children()) - before:
                child.terminate()
            raise
        pool.shutdown()


def _answer(future: Future[str]) -> str | BaseException:
    error = future.exception()
    return future.result() if error is None else error


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Let processes that start inside the block use one thread for linear algebra: that is decided at their import.

    One thread makes two jobs twice as fast as one, and the sums the same whatever the number of cores.
    """
    saved = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    try:
        yield
    finally:
        for name, value in saved.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _start() -> None:
    """Prepare a worker: Ctrl-C is the parent's to handle, and a worker ends when its parent does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        sys.stderr.flush()
        os._exit(1)
