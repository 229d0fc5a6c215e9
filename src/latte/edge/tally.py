"""What happened in a session of a device: counters that need no label."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from .classify import Answer
from .evidence import Course, Stretch, stretch_of

RECENT_ANSWERS = 100  # answers over which the latest agreement and entropy are averaged


@dataclass(frozen=True, slots=True)
class SessionCounts:
    """Pictures that were answered or ``unreadable``, and the seconds that all of them took.

    ``changed`` are answers that differ from the zero-shot label, ``near_copies`` pictures that were answered but not
    learnt from, because the memory has almost the same already.
    """

    pictures: int = 0
    unreadable: int = 0
    changed: int = 0
    near_copies: int = 0
    seconds: float = 0.0

    @property
    def answered(self) -> int:
        """The pictures that have a label."""
        return self.pictures - self.unreadable

    @property
    def milliseconds(self) -> float:
        """The mean time that a picture took, reading and encoding included; 0 without pictures."""
        return 1e3 * self.seconds / self.pictures if self.pictures else 0.0


class Tally:
    """Counts answers as they come; the clock starts with it.

    ``before`` and ``recent`` are the counts and the latest answers of an earlier session that goes on.

    >>> tally = Tally()
    >>> tally.count(Answer("a.jpg", "cat", zero_shot="dog"))
    >>> tally.counts().changed
    1
    """

    def __init__(self, before: SessionCounts | None = None, recent: Iterable[Stretch] = ()) -> None:
        begin = before or SessionCounts()
        self._start = time.perf_counter() - begin.seconds
        self._pictures, self._unreadable = begin.pictures, begin.unreadable
        self._changed, self._near_copies = begin.changed, begin.near_copies
        self._recent = deque(recent, RECENT_ANSWERS)
        self.course = Course()

    def count(self, answer: Answer) -> None:
        """Count one answer."""
        self._pictures += 1
        self._near_copies += answer.near_copy
        if answer.problem is not None:
            self._unreadable += 1
            return
        stretch = stretch_of(answer)
        self._changed += stretch.differing
        self._recent.append(stretch)
        self.course.add(stretch)

    @property
    def answered(self) -> int:
        """The pictures that have a label, up to now."""
        return self._pictures - self._unreadable

    def recent(self) -> Stretch:
        """Return the latest answers."""
        recent = self._recent
        differing = sum(stretch.differing for stretch in recent)
        return Stretch(len(recent), differing, sum(stretch.entropies for stretch in recent))

    def counts(self) -> SessionCounts:
        """Return the counts up to now."""
        seconds = time.perf_counter() - self._start
        return SessionCounts(self._pictures, self._unreadable, self._changed, self._near_copies, seconds)
