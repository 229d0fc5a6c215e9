"""The workers of a run: this process, processes of this machine that do not outlive their parent, or a Dask cluster.

The results do not depend on it.
"""

from __future__ import annotations

import logging
import os
import queue
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import contextmanager
from functools import partial

from ..errors import need, refuse
from ..methods.plugins import describe_failure
from ..runtime import processes, signals_held

WORKER_TRIES = 3
_THREADS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)


SERIAL = "serial"  # in this process, one after the other: for a debugger, a profiler and tests


class WorkError(RuntimeError):
    """An exception of the work. It crosses processes as text: its own class may not exist on the other side."""


class LostWorkerError(RuntimeError):
    """A worker was lost, not its work: it was killed or cut off, or its result was lost before it was fetched."""


def unordered(
    call: Callable[[str], str], messages: Sequence[str], jobs: int, executor: str = ""
) -> Iterator[tuple[int, str | BaseException]]:
    """Yield (position, answer or exception) as ``call`` finishes, on ``executor`` (see :func:`executor_for`).

    What a lost worker was doing is done again by another, at most ``WORKER_TRIES`` times. Stopping early (an exception,
    Ctrl-C, a generator that is closed) ends the processes of this machine at once.
    """
    if executor == SERIAL:
        for position, message in enumerate(messages):
            try:
                yield position, call(message)
            except Exception as error:
                yield position, WorkError(describe_failure(error))
        return
    left = dict(enumerate(messages))
    for attempt in range(1, WORKER_TRIES + 1):
        lost: dict[int, str] = {}
        with executor_for(executor, min(jobs, len(left))) as pool:
            for position, answer in _answers(pool, call, left):
                if isinstance(answer, LostWorkerError) and attempt < WORKER_TRIES:
                    lost[position] = left[position]
                else:
                    yield position, answer
        if not lost:
            return
        left = lost


@contextmanager
def executor_for(name: str, jobs: int) -> Iterator[Executor]:
    """Open an executor: ``jobs`` processes of this machine, or with "dask:ADDRESS" a Dask cluster.

    The workers of a cluster need the package, the extras of the methods, and the embedding files under the same paths.
    """
    if not name:
        with _one_thread_each(), processes(jobs) as pool:
            yield pool
        return
    check_executor(name)
    connect, address = need("distributed", "cluster").Client, name.partition(":")[2]
    try:
        client = connect(address, set_as_default=False)  # for how long it tries is Dask's setting
    except (OSError, TimeoutError, ValueError) as error:
        raise refuse("executor", f"{name}, which does not answer ({error})", "a running scheduler") from None
    try:
        executor: Executor = client.get_executor()
        yield executor
        executor.shutdown()
    except BaseException:
        before = logging.root.manager.disable
        logging.disable(logging.CRITICAL)  # what is being fetched breaks off now: each would be logged with a traceback
        try:
            client.close()
        finally:
            logging.disable(before)
        raise
    client.close()


def check_executor(name: str) -> None:
    """Refuse what names neither this process nor a cluster."""
    kind, _, address = name.partition(":")
    if name != SERIAL and (kind != "dask" or not address):
        raise refuse("executor", repr(name), "serial, or dask:ADDRESS, such as dask:tcp://10.0.0.1:8786")


def _answers(
    pool: Executor, call: Callable[[str], str], messages: Mapping[int, str]
) -> Iterator[tuple[int, str | BaseException]]:
    """Yield (position, answer or loss) as they come.

    A signal that raises an exception while this thread holds the lock of a future would leave it locked, and a pool
    that is closed waits for it for ever (``as_completed`` holds the locks of all). So this thread waits at a queue.
    """
    answers: queue.SimpleQueue[tuple[int, str | BaseException]] = queue.SimpleQueue()

    def deliver(position: int, future: Future[str | BaseException]) -> None:  # in a thread of the pool
        try:
            answers.put((position, future.result()))
        except Exception as error:
            answers.put((position, LostWorkerError(f"{type(error).__name__}: {error}")))

    with signals_held():
        for position, message in messages.items():
            try:
                future = pool.submit(_attempt, call, message)
            except BrokenExecutor as error:  # a worker went while work was still handed out
                future = Future()
                future.set_exception(error)
            future.add_done_callback(partial(deliver, position))
    for _ in messages:
        yield answers.get()


def _attempt(call: Callable[[str], str], message: str) -> str | BaseException:
    """Work, in a worker: an exception of the work is an answer, so that what a future raises is always a loss."""
    try:
        return call(message)
    except BaseException as error:
        return WorkError(describe_failure(error))


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
