"""Transactions in groups: a thread puts them on disk while the next pictures are encoded.

A commit waits for the disk, costs about as much processor time as a prediction, and writes whole pages, whatever is new
in them: on flash memory, which wears out, that counts. So pictures of a backlog share a transaction. A picture that
comes alone gets one of its own, at once.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from .device_file import NumberedAnswer, Source, pieces_of

GROUP_PICTURES = 64  # of a backlog that share a transaction, unless it takes longer than this many seconds
GROUP_SECONDS = 10.0
MOST_WAITING = 256  # entries that wait while a slow disk writes a group; then the device waits, too
DURABLE_EVERY = 1.0  # seconds of work that a power cut may cost where a commit need not wait for the disk
Statement = tuple[str, Sequence[Any]]


class RecordedPicture(NamedTuple):
    """A picture, and its answer, which may be shown when it is on disk."""

    source: Source
    answer: NumberedAnswer


@dataclass(frozen=True, slots=True)
class Entry:
    """Statements that belong to one transaction, and the ``picture`` that they record, if any, with its ``row``.

    A ``snapshot`` is the memory as it is with all pictures up to ``number``; their rows are then not needed any more.
    An ``optional`` entry is dropped where it cannot be written.
    """

    statements: Sequence[Statement] = ()
    picture: RecordedPicture | None = None
    optional: bool = False
    row: bytes = b""
    number: int = 0
    snapshot: bytes | None = None


class GroupCommits:
    """Writes entries to ``database``, in order and in groups. One thread calls; only one transaction runs at a time.

    Entries of a group that failed come first in the next one.
    """

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self._pool = ThreadPoolExecutor(1, "latte-record")
        self._waiting: list[Entry] = []
        self._since = 0.0  # when the first of them came
        self._group: list[Entry] = []  # being written
        self._running: Future[None] | None = None
        self._done: list[RecordedPicture] = []
        self._durable = 0.0  # when everything was on disk for the last time
        self._full_sync = False  # the setting of the connection
        self._pieces: dict[int, int] = {}  # hashes of the pieces of the snapshot that is in the file
        for place, piece in database.execute("SELECT place, piece FROM snapshot"):
            self._pieces[place] = hash(piece)

    @property
    def busy(self) -> bool:
        """Whether anything is not written yet."""
        return bool(self._waiting) or self._running is not None

    def add(self, entry: Entry) -> None:
        """Write this with the next group."""
        if not self._waiting:
            self._since = time.monotonic()
        self._waiting.append(entry)

    def advance(self) -> None:
        """Begin to write a group that is large or old enough when the one before is written.

        An error of that one is raised here.
        """
        if self._running is not None and (self._running.done() or len(self._waiting) >= MOST_WAITING):
            self._finish()
        due = len(self._waiting) >= GROUP_PICTURES or time.monotonic() - self._since >= GROUP_SECONDS
        if self._running is None and self._waiting and due:
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
        snapshot = next((entry.snapshot for entry in reversed(group) if entry.snapshot is not None), None)
        pieces = None if snapshot is None else list(pieces_of(snapshot))
        hashes = None if pieces is None else dict(enumerate(map(hash, pieces)))
        self._database.execute("BEGIN IMMEDIATE")
        try:
            if pieces is not None and hashes is not None:
                self._write_snapshot(pieces, hashes)
            for statement, rows in _statements(group).items():
                self._database.executemany(statement, rows)
            self._database.execute("COMMIT")
        finally:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
        self._pieces = self._pieces if hashes is None else hashes
        if full:
            self._durable = time.monotonic()

    def _write_snapshot(self, pieces: list[bytes], hashes: dict[int, int]) -> None:
        """Write what has changed in the memory; the embeddings that are in the file are not needed any more."""
        changed = [(place, pieces[place]) for place in hashes if hashes[place] != self._pieces.get(place)]
        self._database.executemany("INSERT OR REPLACE INTO snapshot VALUES (?, ?)", changed)
        self._database.execute("DELETE FROM snapshot WHERE place >= ?", [len(pieces)])
        self._database.execute("DELETE FROM embeddings")


def _statements(group: Sequence[Entry]) -> dict[str, list[Sequence[Any]]]:
    """Return the statements of a group and the rows of each.

    All embeddings behind the last snapshot are one row: a row each would fill a page each, however small it is.
    """
    needed: dict[str, list[Sequence[Any]]] = {}
    rows: list[bytes] = []
    number = 0
    for entry in group:
        for statement, values in entry.statements:
            needed.setdefault(statement, []).append(values)
        if entry.snapshot is not None:
            rows = []
        elif entry.row:
            rows.append(entry.row)
            number = entry.number
    if rows:
        needed["INSERT INTO embeddings VALUES (?, ?)"] = [(number, b"".join(rows))]
    return needed
