"""What a device has done, in one SQLite file: answers, memory, labels.

The answer to a picture and its embedding are in one transaction; embeddings stay until the next snapshot of the memory.
After a crash the memory is the snapshot with the embeddings behind it, in order: to the last bit what it was. A picture
whose transaction is missing has not been classified, so none is classified twice or left out. Pictures of a backlog
share a transaction, which is on disk before their answers are shown (see ``group_commits``).

The last :data:`~.device_file.HISTORY` answers stay. Of older ones there are the counts, and eight bytes each that say
that the picture has been classified.
"""

from __future__ import annotations

import hashlib
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

from ..core.contracts import Method
from ..core.private_client import PrivateClient, without_noise
from ..core.types import Vectors
from ..errors import refuse
from ..files.locks import lock
from ..files.tensors import parse_safetensors, safetensors_bytes
from .classify import Answer
from .device_file import (
    DEVICE_FILE,
    HISTORY,
    PRUNE,
    DeviceStatus,
    NumberedAnswer,
    Source,
    compare_labels,
    open_record,
    read_counts,
    read_recent,
    read_retried,
    read_sources,
    read_status,
    writing,
)
from .evidence import Labelled, Stretch
from .group_commits import Entry, GroupCommits, RecordedPicture, Statement
from .tally import SessionCounts

_NO_ROOM = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)  # a quota that is used up is an input/output error
_ADD = "INSERT INTO pictures VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_PRUNE_EVERY = 1000  # pictures
_DIGEST = 8  # bytes: of 10 million pictures, two share a digest with a probability of 3 in a million


class DiskFullError(OSError):
    """The record of a device cannot be written; nothing that was written before is lost."""


def raise_full(error: DiskFullError) -> NoReturn:
    """Give up where the disk is full."""
    raise error


class DeviceRecord:
    """The record of one device in ``folder``. One process writes it; others may read it and add labels.

    Where the disk is full, ``on_full`` is called with the error: it raises, or waits and returns to try again.
    """

    def __init__(
        self,
        folder: Path,
        task: str,
        on_full: Callable[[DiskFullError], None] = raise_full,
        history: int = HISTORY,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self._on_full, self._history = folder, on_full, history
        self._held = ExitStack()
        self._held.enter_context(lock(folder / f"{DEVICE_FILE}.lock", f"device {folder}"))
        try:
            self._database = self._held.enter_context(closing(open_record(folder, create=True)))
            self._identity = _identity(folder / DEVICE_FILE)
            self._claim(task)
            self._writer = self._held.enter_context(closing(open_record(folder)))  # so that no reader waits for a disk
            self._commits = GroupCommits(self._writer)
        except BaseException:
            self._held.close()
            raise
        self._held.callback(self._commits.close)
        self._pending: set[Source] = set()  # classified, and not recorded yet
        self._retried = read_retried(self._database)
        self._done = {_digest(source) for source in read_sources(self._database, self._retried)}
        older = b"".join(row[0] for row in self._database.execute("SELECT digests FROM done"))
        self._older = np.sort(np.frombuffer(older, "<u8"))
        self.number = self._last_number()

    def _claim(self, task: str) -> None:
        with writing(self._database):
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
        return source in self._pending or self.is_done(source)

    def is_done(self, source: Source) -> bool:
        """Return whether a picture has been classified and recorded; any thread may ask."""
        digest = _digest(source)
        if digest in self._done:
            return True
        older = self._older
        place = int(older.searchsorted(np.uint64(digest)))
        return place < len(older) and int(older[place]) == digest

    def add(self, source: Source, answer: Answer, row: Vectors | None) -> NumberedAnswer:
        """Add the answer to the next picture and its embedding (D,), if it has one, to the next transaction."""
        self.number += 1
        now = time.time()
        place = (self.number, os.fsencode(source.name), source.modified, source.size)
        added: Statement = (_ADD, (*place, *_values(answer), now))
        numbered = NumberedAnswer(self.number, now, answer)
        content = b"" if row is None else row.astype("<f4", copy=False).tobytes()
        self._commits.add(Entry((added,), RecordedPicture(source, numbered), row=content, number=self.number))
        self._pending.add(source)
        if self.number % _PRUNE_EVERY == 0:
            self._prune(self.number - self._history)
        return numbered

    def _prune(self, last: int) -> None:
        """Remove answers up to a number; counts and digests stay, and so do labelled pictures."""
        statement = """SELECT source, modified, size FROM pictures WHERE number <= ? AND (problem IS NULL OR number > ?)
            AND source NOT IN (SELECT source FROM labels)"""
        rows = self._database.execute(statement, [last, self._retried]).fetchall()
        if not rows:
            return
        digests = np.array([_digest(Source(os.fsdecode(name), *rest)) for name, *rest in rows], "<u8")
        gone = [(statement, (last,) if name is None else (last, name)) for statement, name in PRUNE]
        self._commits.add(Entry([("INSERT OR REPLACE INTO done VALUES (?, ?)", (last, digests.tobytes())), *gone]))
        self._older = np.union1d(self._older, digests)
        self._done.difference_update(digests.tolist())

    def retried(self) -> list[str]:
        """Return the names of pictures that somebody asked to try again since the last call."""
        number = read_retried(self._database)
        if number <= self._retried:
            return []
        statement = """SELECT source, modified, size FROM pictures
            WHERE problem IS NOT NULL AND number > ? AND number <= ?"""
        rows = self._database.execute(statement, [self._retried, number]).fetchall()
        sources = [Source(os.fsdecode(name), *rest) for name, *rest in rows]
        self._retried = number
        self._done.difference_update(map(_digest, sources))
        return [source.name for source in sources]

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
        self._commits.add(Entry(number=self.number, snapshot=safetensors_bytes(method.state(), {})))

    def restore(self, method: Method, dim: int) -> int:
        """Give ``method`` the memory of what is recorded, and drop the rest; return how many pictures it saw again.

        ``dim`` is the length of an embedding.
        """
        self._commits.forget()
        self._pending.clear()
        self.number = self._last_number()
        method.reset()
        state = b"".join(row[0] for row in self._database.execute("SELECT piece FROM snapshot ORDER BY place"))
        if state:
            arrays = parse_safetensors(state, "snapshot").arrays
            method.load(arrays if isinstance(method, PrivateClient) else without_noise(arrays))
        seen = 0
        for (rows,) in self._database.execute("SELECT row FROM embeddings ORDER BY number").fetchall():
            for row in np.frombuffer(rows, "<f4").astype(np.float32).reshape(-1, dim):
                method.predict(row[None])
                seen += 1
        return seen

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
            if self._commits.busy:
                self.check()
            try:
                write()
            except sqlite3.OperationalError as error:
                if not _is_full(error):
                    raise OSError(f"{self.folder / DEVICE_FILE} cannot be written: {error}") from None
                if self._commits.busy:  # more than a status
                    self._complain(error)
                continue
            done = self._commits.take()
            self._done.update(_digest(picture.source) for picture in done)
            self._pending.difference_update(picture.source for picture in done)
            return [picture.answer for picture in done]

    def check(self) -> None:
        """Raise an OSError if the file has been removed or replaced: what is written would be seen by nobody."""
        path = self.folder / DEVICE_FILE
        try:
            same = _identity(path) == self._identity
        except (FileNotFoundError, NotADirectoryError):
            same = False
        if not same:
            raise OSError(f"{path} has been removed or replaced while the device worked: start it again")

    def _complain(self, error: Exception) -> None:
        reason = f"{self.folder / DEVICE_FILE} cannot be written ({error}); {self._last_number()} pictures are recorded"
        self._on_full(DiskFullError(reason))


def _values(answer: Answer) -> tuple[Any, ...]:
    """Return the columns of an answer, in the order of the table."""
    adapted = (answer.label, answer.probability, answer.certainty)
    return (*adapted, answer.zero_shot, answer.zero_shot_probability, answer.near_copy, answer.problem)


def _digest(source: Source) -> int:
    """Return a number that stands for one version of one file."""
    whole = b"%b\0%d %d" % (os.fsencode(source.name), source.modified, source.size)
    return int.from_bytes(hashlib.blake2b(whole, digest_size=_DIGEST).digest(), "little")


def _identity(path: Path) -> tuple[int, int]:
    about = path.stat()
    return about.st_dev, about.st_ino


def _is_full(error: sqlite3.OperationalError) -> bool:
    return error.sqlite_errorcode & 0xFF in _NO_ROOM
