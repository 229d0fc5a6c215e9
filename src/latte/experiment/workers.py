"""The workers of a run: processes of this machine that do not outlive their parent, or a Dask cluster.

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
from typing import TypeAlias

from ..core.extras import need
from ..data.processes import processes, signals_held
from ..errors import refuse
from .failures import describe_failure

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


Answers: TypeAlias = queue.SimpleQueue[tuple[int, str | BaseException]]  # by position


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
    else:
        with _cluster(check_executor(name)) as executor:
            yield executor


def check_executor(name: str) -> str:
    """Return the address of the cluster that ``name``, "dask:ADDRESS", names."""
    kind, _, address = name.partition(":")
    if kind != "dask" or not address:
        raise refuse("executor", repr(name), "dask:ADDRESS, such as dask:tcp://10.0.0.1:8786")
    return address


@contextmanager
def _cluster(address: str) -> Iterator[Executor]:
    connect = need("distributed", "cluster").Client
    try:
        client = connect(address, set_as_default=False)  # for how long it tries is Dask's setting
    except (OSError, TimeoutError, ValueError) as error:
        raise refuse("executor", f"dask:{address}, which does not answer ({error})", "a running scheduler") from None
    try:
        executor: Executor = client.get_executor()
        yield executor
        executor.shutdown()
    except BaseException:
        with _no_logs():  # what is being fetched breaks off now, and each would be logged with a traceback
            client.close()
        raise
    client.close()


@contextmanager
def _no_logs() -> Iterator[None]:
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def _answers(
    pool: Executor, call: Callable[[str], str], messages: Mapping[int, str]
) -> Iterator[tuple[int, str | BaseException]]:
    """Yield (position, answer or loss) as they come.

    A signal that raises an exception while this thread holds the lock of a future would leave it locked, and a pool
    that is closed waits for it for ever (``as_completed`` holds the locks of all). So this thread waits at a queue.
    """
    answers: Answers = queue.SimpleQueue()
    with signals_held():
        for position, message in messages.items():
            _submit(pool, call, message).add_done_callback(partial(_deliver, answers, position))
    for _ in messages:
        yield answers.get()


def _deliver(answers: Answers, position: int, future: Future[str | BaseException]) -> None:
    """Put the answer of a future that is done into the queue; a thread of the pool calls this."""
    answers.put((position, _answer(future)))


def _submit(pool: Executor, call: Callable[[str], str], message: str) -> Future[str | BaseException]:
    try:
        return pool.submit(_attempt, call, message)
    except BrokenExecutor as error:  # a worker went while work was still handed out
        future: Future[str | BaseException] = Future()
        future.set_exception(error)
        return future


def _attempt(call: Callable[[str], str], message: str) -> str | BaseException:
    """Work, in a worker: an exception of the work is an answer, so that what a future raises is always a loss."""
    try:
        return call(message)
    except BaseException as error:
        return WorkError(describe_failure(error))


def _answer(future: Future[str | BaseException]) -> str | BaseException:
    try:
        return future.result()
    except Exception as error:
        return LostWorkerError(f"{type(error).__name__}: {error}")


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
