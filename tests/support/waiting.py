"""Waiting for what must happen, never for seconds.

A test waits for a condition (:func:`wait_until`) or for the end of a process (:func:`run`, :func:`running`). The one
deadline turns a hang into a failure that shows what the processes printed; it is far above what anything takes on a
busy machine, so that no test passes or fails by how fast it is run. No process outlives its test.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO, TypeVar
from unittest import mock

import pytest

SUPPORT = Path(__file__).parent
ROOT = SUPPORT.parents[1]
DEADLINE = 600.0  # seconds: compiling the engine takes one minute, and five at a load of 10 on two cores
PAUSE = 0.02
T = TypeVar("T")


class Running:
    """A process whose output goes to files: it never waits for a reader, and a failed wait can show it."""

    def __init__(self, command: list[str], folder: Path, cwd: Path | None, environment: dict[str, str]) -> None:
        self.command, self._files = command, (folder / "stdout", folder / "stderr")
        variables = {**os.environ, "PYTHONPATH": str(ROOT / "src"), **environment}
        with self._files[0].open("wb") as output, self._files[1].open("wb") as errors:
            self.process = subprocess.Popen(
                command, cwd=cwd, env=variables, stdin=subprocess.DEVNULL, stdout=output, stderr=errors
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def alive(self) -> bool:
        return self.process.poll() is None

    def so_far(self) -> subprocess.CompletedProcess[str]:
        """Return what it printed until now; the return code is None while it is alive."""
        code = self.process.poll()
        output, errors = (file.read_text(encoding="utf-8", errors="replace") for file in self._files)
        return subprocess.CompletedProcess(self.command, code, output, errors)

    def finish(self) -> subprocess.CompletedProcess[str]:
        """Return when it has ended by itself."""
        wait_until(lambda: not self.alive(), "the end of the process", self)
        return self.so_far()

    def kill(self) -> None:
        """End it at once, as a crash or a power cut does."""
        self.process.kill()
        self.process.wait()

    def __str__(self) -> str:
        state = self.so_far()
        ended = "still running" if state.returncode is None else f"exit code {state.returncode}"
        return f"{' '.join(self.command)}: {ended}\nstdout: {state.stdout[-2000:]}\nstderr: {state.stderr[-4000:]}"


@contextmanager
def running(*command: object, cwd: Path | None = None, **environment: str) -> Iterator[Running]:
    """Start a process and yield it; whatever happens, it has ended afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        process = Running([str(word) for word in command], Path(folder), cwd, environment)
        try:
            yield process
        finally:
            process.kill()


def run(
    *command: object, cwd: Path | None = None, check: bool = False, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a process to its end; with ``check``, it must succeed."""
    with running(*command, cwd=cwd, **environment) as process:
        done = process.finish()
        assert done.returncode == 0 or not check, str(process)
        return done


def latte(
    *arguments: object, cwd: Path | None = None, check: bool = False, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a command of the command line to its end, in this process: a process of its own takes a second longer.

    What a command leaves in a process (a plugin's methods, the threads of a device) or reads once when Python starts
    is a process's own, and signals are the main thread's.
    """
    words = [str(word) for word in arguments]
    device = words[:1] == ["edge"] and words[1] not in ("label", "results", "retry", "status")
    own = "--plugin" in words or any(name.startswith(("PYTHON", "NUMBA", "TMPDIR")) for name in environment)
    if device or own or threading.current_thread() is not threading.main_thread():
        return latte_process(*words, cwd=cwd, check=check, **environment)
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        files = [stack.enter_context((Path(name) / stream).open("w+b")) for stream in ("stdout", "stderr")]
        argv, variables = mock.patch.object(sys, "argv", ["latte", *words]), mock.patch.dict(os.environ, environment)
        with argv, variables, one_process(), _standing_in(files, cwd):
            code = _exit_code(words)
        output, errors = ((file.seek(0), file.read().decode(errors="replace"))[1] for file in files)
    done = subprocess.CompletedProcess(words, code, output, errors)
    assert code == 0 or not check, done
    return done


def latte_process(
    *arguments: object, cwd: Path | None = None, check: bool = False, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a command of the command line to its end in a process of its own."""
    return run(sys.executable, "-m", "latte", *arguments, cwd=cwd, check=check, **environment)


def _exit_code(words: list[str]) -> int:
    from latte.cli import main

    try:
        main(words)
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else int(left.code is not None)
    return 0


class _HereAndNow(Executor):
    """A pool that does the work where and when it is handed in."""

    def submit(self, function: Callable[..., T], /, *arguments: Any, **named: Any) -> Future[T]:
        future: Future[T] = Future()
        future.set_result(function(*arguments, **named))
        return future


@contextmanager
def one_process() -> Iterator[None]:
    """Let runs do their work in this process; what their pools of processes do with it is a test of its own."""
    from latte.experiment import workers

    with mock.patch.object(workers, "processes", lambda jobs: nullcontext(_HereAndNow())):
        yield


@contextmanager
def _standing_in(files: list[BinaryIO], cwd: Path | None) -> Iterator[None]:
    """Let a command in this process have its own output, for its worker processes too, no input, and its own folder."""
    before, folder, streams = [os.dup(1), os.dup(2)], Path.cwd(), (sys.stdin, sys.stdout, sys.stderr)
    loggers = [logging.root, logging.getLogger("latte"), logging.getLogger("latte.server")]
    handlers = [logger.handlers[:] for logger in loggers]
    for stream in streams[1:]:
        stream.flush()
    try:
        for number, file in enumerate(files, 1):
            os.dup2(file.fileno(), number)
        sys.stdout, sys.stderr = (os.fdopen(number, "w", encoding="utf-8", closefd=False) for number in (1, 2))
        sys.stdin = Path(os.devnull).open(encoding="utf-8")  # noqa: SIM115
        os.chdir(cwd or folder)
        with warnings.catch_warnings():
            warnings.resetwarnings()
            yield
    finally:
        os.chdir(folder)
        for logger, known in zip(loggers, handlers, strict=True):
            logger.handlers[:] = known
        for stream in (sys.stdin, sys.stdout, sys.stderr):
            stream.close()
        sys.stdin, sys.stdout, sys.stderr = streams
        for number, saved in enumerate(before, 1):
            os.dup2(saved, number)
            os.close(saved)


def wait_until(condition: Callable[[], T], what: str, *processes: Running) -> T:
    """Return the first true answer of ``condition``.

    ``processes`` are those it depends on: the wait fails at once when one of them has ended without it.
    """
    end = time.monotonic() + DEADLINE
    while True:
        over = time.monotonic() > end or not all(process.alive() for process in processes)
        if answer := condition():
            return answer
        if over:
            pytest.fail("\n".join([f"waited in vain for {what}", *map(str, processes)]))
        time.sleep(PAUSE)


def output_of(process: subprocess.Popen[T]) -> tuple[T, T]:
    """Return what a process with pipes printed until it ended; one that does not end is killed, and shown."""
    try:
        return process.communicate(timeout=DEADLINE)
    except subprocess.TimeoutExpired:
        process.kill()
        output, errors = process.communicate()
        pytest.fail(f"waited in vain for the end of {process.args}\nstdout: {output!r}\nstderr: {errors!r}")
