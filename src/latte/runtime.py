"""Worker processes that do not outlive their parent and leave signals to it; steps that signals wait for."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import wait
from typing import Any


@contextmanager
def signals_wait() -> Iterator[None]:
    """Let the Python handlers of signals wait until the block is over: an exception would leave it half done.

    Python runs handlers in the main thread only, so in another thread there is nothing to do.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[int] = []
    handlers: dict[int, Any] = {number: signal.getsignal(number) for number in signal.valid_signals()}
    handlers = {number: handler for number, handler in handlers.items() if callable(handler)}
    try:
        for number in handlers:
            signal.signal(number, lambda number, frame: arrived.append(number))
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for number in arrived:
            signal.raise_signal(number)


@contextmanager
def processes(jobs: int) -> Iterator[Executor]:
    """Open a pool of ``jobs`` processes; work is submitted inside :func:`signals_held`.

    They are started afresh (spawn): the same everywhere, and safe beside threads. Whatever ends the block early, an
    exception, Ctrl-C or a generator that is closed, ends them at once: they hold nothing that is not to be lost.
    """
    before = set(multiprocessing.active_children())
    with ExitStack() as stack:
        with signals_wait():  # a pool that is half made or half closed leaves semaphores behind
            pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), initializer=_start)
            stack.push(lambda kind, error, trace: _close(pool, before, kind is not None))
        yield pool


def _close(pool: Executor, before: set[Any], early: bool) -> None:
    with signals_wait():
        for child in set(multiprocessing.active_children()) - before if early else ():
            child.kill()
        pool.shutdown(cancel_futures=True)  # waits for threads only where the processes are dead


@contextmanager
def signals_held() -> Iterator[None]:
    """Let SIGINT and SIGTERM wait until the block is over.

    A process that starts inside it cannot be lost between its start and its being known, and it begins with both
    blocked: Ctrl-C, which a terminal sends to everybody, cannot interrupt it before :func:`_start` is reached.
    """
    with signals_wait():  # another thread may get them
        if not hasattr(signal, "pthread_sigmask"):  # Windows
            yield
            return
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start() -> None:
    """Prepare a worker: Ctrl-C is the parent's to handle, and a worker ends when its parent does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        sys.stderr.flush()
        os._exit(1)
