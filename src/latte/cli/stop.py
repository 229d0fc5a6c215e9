"""Signals to end (SIGINT, SIGTERM, SIGHUP): a line on how to go on, exit code 128 + the signal, nobody left behind.

A command that would run for ever (``latte edge``) ends with exit code 0 instead: it was stopped as it should be.

The signal becomes a :class:`Stopped` in the main thread: files are closed, locks released and workers ended on its way
up. It is not raised in the middle of an import: extension modules turn it into another exception (numpy into an
ImportError) or are left half made. It waits for the end of a short import, and ends the program in a long one, at the
start, when nothing is open. Either way the program leaves by ``os._exit``: the interpreter is not taken down under
threads and compiled code that may still run.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from types import FrameType

TYPE_CHECKING = False  # typing itself takes as long to import as everything else here
if TYPE_CHECKING:
    from typing import Any, NoReturn

SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
AGAIN = 1.0  # seconds after which a second signal is meant: shells and wrappers often pass one on twice
_PATIENCE = 0.5  # seconds for an import to end
_WAIT = 5.0  # seconds for killed workers to be gone
_LOST = "nothing is kept: run the same command again to start over"
_RESUMES = "what is finished is kept: run the same command again to go on"
HINTS = {
    **dict.fromkeys(("run", "sweep", "tune", "paper table", "paper figure", "embed", "data fetch"), _RESUMES),
    "edge": "what is recorded is kept: run the same command again to go on",
    "classify": "without --memory nothing is kept: run the same command again to start over",
    "classify --memory": "what the memory file holds is kept: run the same command again to go on",
}
_active: Stopper | None = None


class Stopped(BaseException):
    """A signal to end the program; ``hint`` replaces the command's own sentence on how to go on."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number
        self.hint = ""


class Stopper:
    """The handler of the signals."""

    def __init__(self, hint: str, endless: bool = False) -> None:
        self.hint, self.endless = hint, endless
        self.over = False  # the command has ended: only the interpreter is left to take down
        self.postponed = 0  # how many blocks must be finished first
        self._first: tuple[int, float] | None = None  # the signal that came, and when
        self._before: dict[int, Any] = {}

    def install(self) -> None:
        """Handle the signals, except those that the parent process has set to be ignored."""
        global _active
        import threading

        if threading.current_thread() is not threading.main_thread():
            return  # only the main thread gets signals
        _active = self
        sys.unraisablehook, self._unraisable = self._swallowed, sys.unraisablehook
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self)

    def remove(self) -> None:
        """Restore the earlier handlers."""
        global _active
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if _active is self:
            _active, sys.unraisablehook = None, self._unraisable

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal: the first is raised, one that comes again later ends the program at once."""
        now = time.monotonic()
        if self.over or (self._first is not None and now - self._first[1] > AGAIN):
            self.leave(number)
        if self._first is None:
            self._first = number, now
            self.check(frame)

    def check(self, frame: FrameType | None = None) -> None:
        """Raise what has come, unless it is to wait: for the end of a block, or of an import."""
        if self._first is None or self.postponed:
            return
        number, when = self._first
        while frame is not None and not frame.f_code.co_filename.startswith("<frozen importlib"):
            frame = frame.f_back
        if frame is None:
            raise Stopped(number)
        if time.monotonic() - when > _PATIENCE or not hasattr(signal, "setitimer"):
            self.leave(number)
        signal.signal(signal.SIGALRM, lambda _, later: self.check(later))
        signal.setitimer(signal.ITIMER_REAL, _PATIENCE / 10)

    def end(self) -> None:
        """Take note that the command has ended; a signal that still waits ends the program now."""
        self.over = True
        if self._first is not None:
            self.leave(self._first[0])

    def leave(self, number: int, hint: str = "") -> NoReturn:
        """Say how to go on and end, without taking the interpreter down."""
        word = "interrupted" if number == signal.SIGINT else "terminated"
        with contextlib.suppress(Exception):
            _end_children()
            sys.stdout.flush()
            sys.stderr.flush()
        with contextlib.suppress(OSError):
            os.write(2, f"latte: {word}; {hint or self.hint}\n".encode())
        os._exit(0 if self.endless else 128 + number)

    def _swallowed(self, lost: Any) -> None:
        """End where an exception has nowhere to go: in a destructor, or in a callback from C."""
        if isinstance(lost.exc_value, Stopped):
            self.leave(lost.exc_value.number)
        self._unraisable(lost)


@contextlib.contextmanager
def postpone_stop() -> Iterator[None]:
    """Finish the block before a signal ends the program; it does so right after."""
    stopper = _active
    if stopper is None:
        yield
        return
    stopper.postponed += 1
    try:
        yield
    finally:
        stopper.postponed -= 1
    stopper.check()


def raise_pending() -> None:
    """Raise the signal that waits for the end of a ``postpone_stop`` block, if there is one."""
    if _active is not None and _active._first is not None:
        raise Stopped(_active._first[0])


def accept_stop() -> None:
    """Take note that the signal was the regular end of what waited for it: the command ends as if none had come."""
    if _active is not None:
        _active._first = None


def is_endless(arguments: list[str]) -> bool:
    """Return whether a signal is the regular end of the command that ``arguments`` name: the exit code is then 0."""
    return arguments[:1] == ["edge"] and not {"status", "label", "results", "retry"}.intersection(arguments[1:2])


def hint_for(arguments: list[str]) -> str:
    """Return how to go on after the command that ``arguments`` name."""
    words = [word for word in arguments if not word.startswith("-")]
    if words[:1] == ["classify"] and any(word.startswith("--memory") for word in arguments):
        return HINTS["classify --memory"]
    return HINTS.get(" ".join(words[:2])) or HINTS.get("".join(words[:1])) or _LOST


def _end_children() -> None:
    """Kill what is left of our worker processes, and wait until they are gone."""
    multiprocessing = sys.modules.get("multiprocessing")
    children = multiprocessing.active_children() if multiprocessing else []
    for child in children:
        child.kill()
    for child in children:
        child.join(_WAIT)
    if children_tools := sys.modules.get("multiprocessing.util"):
        # what the interpreter would do at its end: a pool that an exception still refers to holds named semaphores
        children_tools._run_finalizers(0)
