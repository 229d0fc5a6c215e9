"""Work on a pool: what a lost worker did is done again, and what the work itself raises is its answer."""

from __future__ import annotations

import os
import signal
import sys
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from contextlib import nullcontext
from pathlib import Path

import pytest

from latte.experiment import workers as pool
from waiting import run


def die_once(message: str) -> str:
    """Kill the own process where the file ``message`` is not there yet."""
    mark = Path(message)
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return f"done {mark.name}"


def count_and_fail(message: str) -> str:
    with Path(message).open("a") as file:
        file.write("called\n")
    raise ArithmeticError("the work's own")


class Unlucky(Executor):
    """An executor that does nothing but raise ``errors``, one per submission, and then works."""

    def __init__(self, *errors: BaseException) -> None:
        self.errors, self.submitted = list(errors), 0

    def submit(self, function, /, *arguments):
        self.submitted += 1
        future = Future()
        if not self.errors:
            future.set_result(function(*arguments))
        elif isinstance(self.errors[0], CancelledError):
            future.cancel()
            future.set_running_or_notify_cancel()
            self.errors.pop(0)
        elif isinstance(self.errors[0], BrokenExecutor):
            raise self.errors.pop(0)
        else:
            future.set_exception(self.errors.pop(0))
        return future


class KilledWorker(Exception):  # noqa: N818
    """What Dask raises for work that several workers died of."""


GATHER = ValueError("too many values to unpack (expected 3)")  # Dask, of a result whose worker dies as it is fetched


def on(executor, monkeypatch, call, *messages):
    monkeypatch.setattr(pool, "executor_for", lambda name, jobs: nullcontext(executor))
    return dict(pool.unordered(call, messages, 1, "unlucky"))


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_what_a_killed_process_did_is_done_again(tmp_path):
    messages = [str(tmp_path / name) for name in "abc"]
    (tmp_path / "a").touch()
    (tmp_path / "c").touch()
    assert dict(pool.unordered(die_once, messages, 2)) == {0: "done a", 1: "done b", 2: "done c"}


@pytest.mark.parametrize(
    "error", [KilledWorker(), CancelledError(), BrokenExecutor(), OSError("closed"), GATHER], ids=repr
)
def test_whatever_a_future_raises_is_a_lost_worker(monkeypatch, error):
    executor = Unlucky(error)
    assert on(executor, monkeypatch, str.upper, "a", "b") == {0: "A", 1: "B"}
    assert executor.submitted == 3


def test_a_worker_that_is_always_lost_is_told(monkeypatch):
    executor = Unlucky(*[KilledWorker("gone") for _ in range(pool.WORKER_TRIES)])
    (answer,) = on(executor, monkeypatch, str.upper, "a").values()
    assert isinstance(answer, pool.LostWorkerError) and str(answer) == "KilledWorker: gone"
    assert executor.submitted == pool.WORKER_TRIES


@pytest.mark.parametrize("where", ["processes", "elsewhere"])
def test_the_work_s_own_exception_is_its_answer_at_once(tmp_path, monkeypatch, where):
    message = str(tmp_path / "calls")
    if where == "processes":
        answers = dict(pool.unordered(count_and_fail, [message], 1))
    else:
        answers = on(Unlucky(), monkeypatch, count_and_fail, message)
    assert isinstance(answers[0], pool.WorkError) and "ArithmeticError: the work's own (" in str(answers[0])
    assert Path(message).read_text() == "called\n"


INTERRUPTED = """
import random, signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from latte.runtime import signals_wait
from latte.experiment import workers

class Interrupt(Exception):
    pass

def interrupt(*_):
    raise Interrupt

@contextmanager
def threads(name, jobs):
    pool = ThreadPoolExecutor(1)
    try:
        yield pool
    finally:
        with signals_wait():
            pool.shutdown(cancel_futures=True)  # waits for ever for a future that is locked

@contextmanager
def held_then_interrupted():
    with hold():
        yield
    signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, 0.01))

hold, workers.signals_held, workers.executor_for = workers.signals_held, held_then_interrupted, threads
signal.signal(signal.SIGALRM, interrupt)
interrupted = 0
for _ in range(40):
    try:
        for _ in workers.unordered(lambda message: str(sum(range(30_000))), ["work"] * 1000, 1):
            pass
    except Interrupt:
        interrupted += 1
assert interrupted == 40
"""


def test_a_signal_at_any_moment_leaves_no_future_locked():
    run(sys.executable, "-c", INTERRUPTED, check=True)
