"""Where the lines of ``latte edge`` go: a file or standard output. Neither a full disk nor a slow reader costs one."""

from __future__ import annotations

import errno
import select
import time
from typing import TYPE_CHECKING

from .output import patient_line, problem
from .stop import Stopped, pending_stop
from .systemd import notifier

if TYPE_CHECKING:
    from ..edge.answer_log import AnswerLog
    from ..edge.device_file import NumberedAnswer

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_RETRY = 2.0  # seconds between two attempts to write to a full disk
_COMPLAIN = 60.0  # seconds between two complaints about it
_TICK = 0.2  # seconds in which a signal is noticed


class RoomWait:
    """Says that the disk is full, once a minute at most, and waits a little; a signal ends the wait."""

    def __init__(self) -> None:
        self._next = 0.0

    def __call__(self, error: OSError) -> None:
        """Wait before the next attempt."""
        if time.monotonic() >= self._next:
            problem(f"{error}; waiting for room")
            self._next = time.monotonic() + _COMPLAIN
        end = time.monotonic() + _RETRY
        while time.monotonic() < end:
            if (stopped := pending_stop()) is not None:
                raise stopped
            notifier.beat()  # it waits because it has to: to be started again would not help
            time.sleep(_TICK)


class ProblemLines:
    """Says on stderr what is wrong, and when it is over: a change at once, the next one after a minute at the earliest.

    ``about`` begins every line.
    """

    def __init__(self, about: str = "") -> None:
        self._about, self._said, self._next = about, "", 0.0

    def say(self, text: str) -> None:
        """Say what is wrong now; nothing, where ``text`` is empty or has been said."""
        if text != self._said and time.monotonic() >= self._next:
            problem(f"{self._about}{text or f'over: {self._said}'}")
            self._said, self._next = text, time.monotonic() + _COMPLAIN


class AnswerLines:
    """Shows answers as lines of JSON, in ``log`` or on standard output.

    A signal ends the wait for a full disk or for somebody who reads standard output too slowly. After that, nothing
    more is written there: ``unread`` is the number of the first answer that was not.
    """

    def __init__(self, log: AnswerLog | None) -> None:
        self._log, self._wait_for_room = log, RoomWait()
        self.unread: int | None = None

    @property
    def logged(self) -> tuple[str, int] | None:
        """The file of the lines and the last answer in it; None where they go to standard output."""
        return None if self._log is None else (self._log.name, self._log.number)

    def show(self, answer: NumberedAnswer) -> None:
        """Write a line; wait for as long as that takes."""
        if self.unread is not None:
            return
        try:
            self._add(answer) if self._log is not None else self._print(answer)
        except (Stopped, OSError):
            self.unread = answer.number
            raise

    def _add(self, answer: NumberedAnswer) -> None:
        assert self._log is not None
        while True:
            try:
                return self._log.add(answer)
            except OSError as error:
                self._wait_after(error)

    def _print(self, answer: NumberedAnswer) -> None:
        patient_line(answer.line(), _wait_for_reader, self._wait_after)

    def _wait_after(self, error: OSError) -> None:
        if error.errno not in NO_ROOM:
            raise error
        self._wait_for_room(error)


def _wait_for_reader(descriptor: int) -> None:
    """Return when a pipe or a terminal has room; a signal ends the wait."""
    while not select.select([], [descriptor], [], _TICK)[1]:
        if (stopped := pending_stop()) is not None:
            raise stopped
        notifier.beat()
