"""Transactions in groups: a thread puts them on disk while the next pictures are encoded.

A commit that waits for the disk takes milliseconds, and its bookkeeping costs about as much processor time as a
prediction. So what is there when the thread is free shares one transaction.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from .device_file import NumberedAnswer, Source

MOST_WAITING = 64  # entries that wait while a slow disk writes a group; then the device waits, too
DURABLE_EVERY = 1.0  # seconds of work that a power cut may cost where a commit need not wait for the disk
Statement = tuple[str, Sequence[Any]]


class RecordedPicture(NamedTuple):
    """A picture, and its answer, which may be shown when it is on disk."""

    source: Source
    answer: NumberedAnswer


@dataclass(frozen=True, slots=True)
class Entry:
    """Statements that belong to one transaction, and the ``picture`` that they record, if any.

    ``passing`` are those that a ``snapshot`` makes needless: they are left out where one follows in the same group, as
    all snapshots but the last are. An ``optional`` entry is dropped where it cannot be written.
    """

    statements: Sequence[Statement]
    picture: RecordedPicture | None = None
    optional: bool = False
    passing: Sequence[Statement] = ()
    snapshot: bool = False


class GroupCommits:
    """Writes entries to ``database``, in order and in groups. One thread calls; only one transaction runs at a time.

    Entries of a group that failed come first in the next one.
    """

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self._pool = ThreadPoolExecutor(1, "latte-record")
        self._waiting: list[Entry] = []
        self._group: list[Entry] = []  # being written
        self._running: Future[None] | None = None
        self._done: list[RecordedPicture] = []
        self._durable = 0.0  # when everything was on disk for the last time
        self._full_sync = False  # the setting of the connection

    @property
    def busy(self) -> bool:
        """Whether anything is not written yet."""
        return bool(self._waiting) or self._running is not None

    def add(self, entry: Entry) -> None:
        """Write this with the next group."""
        self._waiting.append(entry)

    def advance(self) -> None:
        """Begin to write what waits when the group before is written; an error of that one is raised here."""
        if self._running is not None and (self._running.done() or len(self._waiting) >= MOST_WAITING):
            self._finish()
        if self._running is None and self._waiting:
            self._group, self._waiting = self._waiting, []
            self._running = self._pool.submit(self._write, self._group, True)

    def flush(self, durable: bool = True) -> None:
        """Write everything now; unless ``durable``, it is on disk after a second at the latest of further work."""
        if self._running is not None:
            self._finish()
        if self._waiting:
            self._group, self._waiting = self._waiting, []
            late = time.monotonic() - self._durable > DURABLE_EVERY
            self._settle(lambda: self._write(self._group, durable or late))

    def _finish(self) -> None:
        assert self._running is not None
        running, self._running = self._running, None
        self._settle(running.result)

    def _settle(self, result: Callable[[], None]) -> None:
        """Take over what a group led to."""
        try:
            result()
        except BaseException:
            self._waiting = [entry for entry in self._group if not entry.optional] + self._waiting
            raise
        self._done += [entry.picture for entry in self._group if entry.picture is not None]

    def take(self) -> list[RecordedPicture]:
        """Return the pictures that are recorded and were not taken before."""
        done, self._done = self._done, []
        return done

    def forget(self) -> None:
        """Drop what has not been written and is not being written."""
        if self._running is not None:
            with suppress(sqlite3.Error):
                self._finish()
        self._waiting = []

    def close(self) -> None:
        """End the thread when its group is written; what waits is dropped."""
        self._pool.shutdown()

    # --- one transaction ----------------------------------------------------------------------------------

    def _write(self, group: Sequence[Entry], durable: bool) -> None:
        full = durable and not all(entry.optional for entry in group)
        if full != self._full_sync:
            self._database.execute(f"PRAGMA synchronous={'FULL' if full else 'NORMAL'}")
            self._full_sync = full
        self._database.execute("BEGIN IMMEDIATE")
        try:
            for statement, rows in _needed(group).items():
                self._database.executemany(statement, rows)
            self._database.execute("COMMIT")
        finally:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
        if full:
            self._durable = time.monotonic()


def _needed(group: Sequence[Entry]) -> dict[str, list[Sequence[Any]]]:
    """Return the statements of a group and the rows of each.

    The last snapshot comes first: what it makes needless is in the file, and what follows it is not touched.
    """
    last = max((place for place, entry in enumerate(group) if entry.snapshot), default=-1)
    statements = list(group[last].statements) if last >= 0 else []
    for place, entry in enumerate(group):
        statements += () if entry.snapshot else entry.statements
        statements += entry.passing if place > last else ()
    needed: dict[str, list[Sequence[Any]]] = {}
    for statement, values in statements:
        needed.setdefault(statement, []).append(values)
    return needed
