"""Where work is done: processes of this machine that do not outlive their parent, or a Dask cluster.

The results do not depend on it.
"""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any

from ..core.validate import refuse
from ..data.processes import processes, signals_held

TRIES = 3
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
    call: Callable[[str], str], messages: Sequence[str], jobs: int, executor: str = ""
) -> Iterator[tuple[int, str | BaseException]]:
    """Yield (position, answer or exception) as ``call`` finishes, on ``executor`` (see :func:`executor_for`).

    What a lost worker was doing is done again by another, at most ``TRIES`` times. Stopping early (an exception,
    Ctrl-C, a generator that is closed) ends the processes of this machine at once.
    """
    left = dict(enumerate(messages))
    for attempt in range(1, TRIES + 1):
        lost: dict[int, str] = {}
        with executor_for(executor, min(jobs, len(left))) as pool:
            with signals_held():
                positions = {pool.submit(call, message): i for i, message in left.items()}
            for future in as_completed(positions):
                position, answer = positions[future], _answer(future)
                if _worker_lost(answer) and attempt < TRIES:
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
    kind, _, address = name.partition(":")
    if not name:
        with _one_thread_each(), processes(jobs) as pool:
            yield pool
    elif kind == "dask" and address:
        with _cluster(address) as executor:
            yield executor
    else:
        raise refuse("executor", repr(name), "dask:ADDRESS, such as dask:tcp://10.0.0.1:8786")


@contextmanager
def _cluster(address: str) -> Iterator[Executor]:
    try:
        connect: Any = importlib.import_module("distributed").Client
    except ModuleNotFoundError:
        raise ModuleNotFoundError('dask needs an extra: pip install "latte-tta[cluster]"') from None
    try:
        client = connect(address, timeout=10, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise refuse("executor", f"dask:{address}, which does not answer ({error})", "a running scheduler") from None
    try:
        executor: Executor = client.get_executor(retries=TRIES)
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


def _worker_lost(answer: str | BaseException) -> bool:
    """Did the process die, rather than the work fail?"""
    return isinstance(answer, BrokenProcessPool) or type(answer).__name__ == "KilledWorker"


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
