"""What a device has done, in one SQLite file: answers, memory, labels.

The answer to a picture and its embedding are in one transaction; embeddings stay until the next snapshot of the memory.
After a crash the memory is the snapshot with the embeddings behind it, in order: to the last bit what it was. A picture
whose transaction is missing has not been classified, so none is classified twice or left out. Pictures that follow each
other closely share a transaction, which is on disk before their answers are shown (see ``group_commits``).
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from ..core.contracts import Method
from ..core.private_client import PrivateClient, without_noise
from ..core.types import Vectors
from ..errors import refuse
from ..files.locks import lock
from ..files.tensors import parse_safetensors, safetensors_bytes
from .classify import Answer
from .device_file import (
    DEVICE_FILE,
    DeviceStatus,
    NumberedAnswer,
    Source,
    compare_labels,
    open_record,
    read_counts,
    read_recent,
    read_sources,
    read_status,
)
from .evidence import Labelled, Stretch
from .group_commits import Entry, GroupCommits, RecordedPicture, Statement
from .marks import Marks
from .tally import SessionCounts

_NO_ROOM = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)  # a quota that is used up is an input/output error
_ADD = "INSERT INTO pictures VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_ADD_ROW = "INSERT INTO embeddings VALUES (?, ?)"


class DiskFullError(OSError):
    """The record of a device cannot be written; nothing that was written before is lost."""


def raise_full(error: DiskFullError) -> NoReturn:
    """Give up where the disk is full."""
    raise error


class DeviceRecord:
    """The record of one device in ``folder``. One process writes it; others may read it and add labels.

    Where the disk is full, ``on_full`` is called with the error: it raises, or waits and returns to try again.
    """

    def __init__(self, folder: Path, task: str, on_full: Callable[[DiskFullError], None] = raise_full) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self._on_full = folder, on_full
        self._held = ExitStack()
        self._held.enter_context(lock(folder / f"{DEVICE_FILE}.lock", f"device {folder}"))
        try:
            self._database = self._held.enter_context(closing(open_record(folder, create=True)))
            self._claim(task)
            self._writer = self._held.enter_context(closing(open_record(folder)))  # so that no reader waits for a disk
        except BaseException:
            self._held.close()
            raise
        self._commits = GroupCommits(self._writer)
        self._held.callback(self._commits.close)
        self._pending: set[Source] = set()  # classified, and not recorded yet
        self._marks = Marks()
        for source in read_sources(self._database):
            self._marks.add(source)
        self.number = self._last_number()

    def _claim(self, task: str) -> None:
        self._database.execute("INSERT OR IGNORE INTO about VALUES ('task', ?)", [task])
        if self._first("SELECT value FROM about WHERE name = 'task'") != task:
            got = "the memory of another task"
            raise refuse(f"device {self.folder}", got, "the same task, or another --state folder")

    def _first(self, statement: str, *values: Any) -> Any:
        row = self._database.execute(statement, values).fetchone()
        return None if row is None else row[0]

    def _last_number(self) -> int:
        return int(self._first("SELECT coalesce(max(number), 0) FROM pictures"))

    # --- pictures -----------------------------------------------------------------------------------------

    def has(self, source: Source) -> bool:
        """Return whether a picture has been classified."""
        return self._marks.may_have(source) and (source in self._pending or _has(self._database, source))

    def finder(self) -> Callable[[Source], bool]:
        """Return a function for another thread that says the same; it sees what has been committed."""
        database, marks = self._held.enter_context(closing(open_record(self.folder))), self._marks
        return lambda source: marks.may_have(source) and _has(database, source)

    def add(self, source: Source, answer: Answer, row: Vectors | None) -> NumberedAnswer:
        """Add the answer to the next picture and its embedding (D,), if it has one, to the next transaction."""
        self.number += 1
        now = time.time()
        place = (self.number, os.fsencode(source.name), source.modified, source.size)
        added: Statement = (_ADD, (*place, *_values(answer), now))
        passing = () if row is None else ((_ADD_ROW, (self.number, row.astype("<f4", copy=False).tobytes())),)
        numbered = NumberedAnswer(self.number, now, answer)
        self._commits.add(Entry((added,), RecordedPicture(source, numbered), passing=passing))
        self._pending.add(source)
        self._marks.add(source)
        return numbered

    def counts(self) -> SessionCounts:
        """Return what was counted up to now."""
        return read_counts(self._database)

    def recent(self) -> list[Stretch]:
        """Return the latest answers."""
        return read_recent(self._database)

    def labelled(self) -> Labelled:
        """Return how the answers compare with the labels that were given."""
        return compare_labels(self._database)

    # --- memory -------------------------------------------------------------------------------------------

    def save(self, method: Method) -> None:
        """Add the memory to the next transaction; the embeddings that it covers are no longer needed."""
        state = safetensors_bytes(method.state(), {})
        snapshot = "INSERT OR REPLACE INTO snapshot VALUES (1, ?, ?)"
        self._commits.add(Entry([(snapshot, (self.number, state)), ("DELETE FROM embeddings", ())], snapshot=True))

    def restore(self, method: Method) -> int:
        """Give ``method`` the memory of what is recorded, and drop the rest; return how many pictures it saw again."""
        self._commits.forget()
        self._pending.clear()
        self.number = self._last_number()
        method.reset()
        state = self._first("SELECT state FROM snapshot")
        if state is not None:
            arrays = parse_safetensors(state, "snapshot").arrays
            method.load(arrays if isinstance(method, PrivateClient) else without_noise(arrays))
        rows = self._database.execute("SELECT row FROM embeddings ORDER BY number").fetchall()
        for (row,) in rows:
            method.predict(_vector(row)[None])
        return len(rows)

    # --- status -------------------------------------------------------------------------------------------

    def last_status(self) -> DeviceStatus:
        """Return what the device said of itself last, in an earlier run."""
        return read_status(self._database)

    def report(self, status: DeviceStatus) -> None:
        """Add what the device says of itself to the next transaction; on a full disk, the last word stays."""
        statement = "INSERT OR REPLACE INTO about VALUES ('status', ?)"
        self._commits.add(Entry([(statement, [json.dumps(asdict(status))])], optional=True))

    def close(self) -> None:
        """Close the file and let another process have it; what was not committed is dropped."""
        self._held.close()

    # --- transactions -------------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether anything is not on disk yet."""
        return self._commits.busy

    def commit(self) -> list[NumberedAnswer]:
        """Let a thread write what is due; return the answers that are on disk since the last call."""
        return self._commit(self._commits.advance)

    def flush(self, durable: bool = True) -> list[NumberedAnswer]:
        """Write everything now; the rest is as with :meth:`commit`.

        Unless ``durable``, a power cut may cost the last second.
        """
        return self._commit(lambda: self._commits.flush(durable))

    def _commit(self, write: Callable[[], None]) -> list[NumberedAnswer]:
        """Write; where there is no room, as often as ``on_full`` returns."""
        while True:
            try:
                write()
            except sqlite3.OperationalError as error:
                if not _is_full(error):
                    raise
                if self._commits.busy:  # more than a status
                    self._complain(error)
                continue
            done = self._commits.take()
            self._pending.difference_update(picture.source for picture in done)
            return [picture.answer for picture in done]

    def _complain(self, error: Exception) -> None:
        reason = f"{self.folder / DEVICE_FILE} cannot be written ({error}); {self._last_number()} pictures are recorded"
        self._on_full(DiskFullError(reason))


def _values(answer: Answer) -> tuple[Any, ...]:
    """Return the columns of an answer, in the order of the table."""
    adapted = (answer.label, answer.probability, answer.certainty)
    return (*adapted, answer.zero_shot, answer.zero_shot_probability, answer.near_copy, answer.problem)


def _has(database: sqlite3.Connection, source: Source) -> bool:
    statement = "SELECT 1 FROM pictures WHERE source = ? AND modified = ? AND size = ?"
    values = (os.fsencode(source.name), source.modified, source.size)
    return database.execute(statement, values).fetchone() is not None


def _is_full(error: sqlite3.OperationalError) -> bool:
    return error.sqlite_errorcode & 0xFF in _NO_ROOM


def _vector(row: bytes) -> NDArray[np.float32]:
    return np.frombuffer(row, "<f4").astype(np.float32)
