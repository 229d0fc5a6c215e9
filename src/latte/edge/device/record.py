"""The record of a device, in one SQLite file, ``device.db``: answers, memory, labels (see ``labels``).

The answer to a picture and its embedding are in one transaction; embeddings stay until the next snapshot of the memory.
After a crash the memory is the snapshot with the embeddings behind it, in order: to the last bit what it was. A picture
whose transaction is missing has not been classified, so none is classified twice or left out. Pictures of a backlog
share a transaction, which is on disk before their answers are shown.

The last :data:`HISTORY` answers stay. Of older ones there are the counts, and eight bytes each that say that a picture
has been classified. The device writes through :class:`DeviceRecord`; meanwhile other processes may read its status and
its answers, and add labels.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from ...core.privacy import PrivateClient, without_noise
from ...core.types import Method, Vectors
from ...errors import InputError, refuse
from ...files.atomic import lock
from ...files.documents import parse_json, structure
from ...files.tensors import parse_safetensors, safetensors_bytes
from ..classify.answers import answer_fields, json_line
from ..classify.classify import Answer
from ..classify.evidence import MOST_STRETCHES, RECENT_ANSWERS, SessionCounts, Stretch, Tally

DEVICE_FILE = "device.db"
DEVICE_SCHEMA = 2
HISTORY = 100_000  # answers that stay: about 30 MB. Of older ones, eight bytes and the counts
_APPLICATION = 0x4C617465  # "Late", PRAGMA application_id
_TABLES = (
    "CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE labels (source BLOB PRIMARY KEY, label TEXT NOT NULL)",
    """CREATE TABLE pictures (
        number INTEGER PRIMARY KEY, source BLOB NOT NULL, modified INTEGER NOT NULL, size INTEGER NOT NULL,
        label TEXT, probability REAL, certainty REAL, zero_shot TEXT, zero_shot_probability REAL,
        near_copy INTEGER NOT NULL, problem TEXT, time REAL NOT NULL
    )""",
    "CREATE TABLE done (last INTEGER PRIMARY KEY, digests BLOB NOT NULL)",  # of pictures whose answers are gone
    "CREATE TABLE embeddings (number INTEGER PRIMARY KEY, row BLOB NOT NULL)",
    "CREATE TABLE snapshot (place INTEGER PRIMARY KEY, piece BLOB NOT NULL)",
)
_LATER_TABLES = (  # that records of earlier versions lack; an earlier version leaves them alone
    """CREATE {}TABLE IF NOT EXISTS extras (
        number INTEGER PRIMARY KEY, adapted TEXT, mcm REAL, unlike INTEGER NOT NULL, margin REAL,
        soft_label BLOB
    )""",  # of answers that have any of these: see Answer
    """CREATE {}TABLE IF NOT EXISTS lessons (
        source BLOB PRIMARY KEY, number INTEGER, chosen INTEGER NOT NULL, taught TEXT, row BLOB
    )""",  # of labels: the answer that each judges, who chose the picture, and what the memory has learnt
)
_PAGE = 1024  # bytes: what is written for a picture that comes alone is a few pages, most of them hardly filled
PIECE = 960  # bytes of a snapshot in a row of its own, which fills a page: only pieces that changed are written
_SETTINGS = (
    "journal_mode=WAL",
    "synchronous=NORMAL",
    "wal_autocheckpoint=16000",  # pages: the log has 16 MB at most, and most of what is in it is replaced by then
    "secure_delete=FAST",  # many systems build SQLite so that it writes zeros over every page that is freed
    "busy_timeout=10000",
    "trusted_schema=OFF",
)
_ANSWER = "source, label, probability, certainty, zero_shot, zero_shot_probability, near_copy, problem"
_EXTRAS = "adapted, mcm, coalesce(unlike, 0), margin, soft_label"
COUNTS = ("pictures", "unreadable", "changed", "near_copies")
_OPINION = "coalesce((SELECT adapted FROM extras WHERE extras.number = pictures.number), label)"  # of the method
_COUNTS = f"count(*), count(problem), coalesce(sum({_OPINION} != zero_shot), 0), coalesce(sum(near_copy), 0)"
_COUNTING = "(problem IS NULL OR number > ?)"  # an unreadable picture that is tried again does not count
_NO_ROOM = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)  # a quota that is used up is an input/output error
_STRETCH = f"count(*), coalesce(sum({_OPINION} != zero_shot), 0), coalesce(sum(1.0 - certainty), 0.0)"
GROUP_PICTURES = 64  # of a backlog that share a transaction, unless it takes longer than this many seconds
GROUP_SECONDS = 10.0
DURABLE_EVERY = 1.0  # seconds of work that a power cut may cost where a commit need not wait for the disk
_ADD = "INSERT INTO pictures VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_PRUNE_EVERY = 1000  # pictures
_DIGEST = 8  # bytes: of 10 million pictures, two share a digest with a probability of 3 in a million


@dataclass(frozen=True, slots=True)
class DeviceStatus:
    """The status that a device writes when it changes; times are seconds since 1970, 0 for never.

    ``updated`` is when it was written. ``logged`` is the last answer in the file ``log`` of answers.
    """

    pid: int = 0
    started: float = 0.0
    updated: float = 0.0
    name: str = ""
    server: str = ""
    waiting: int = 0
    dropped: int = 0
    synced: float = 0.0
    sync_images: int = 0
    sync_problem: str = ""
    problem: str = ""
    log: str = ""
    logged: int = 0


@dataclass(frozen=True, slots=True)
class FleetKnowledge:
    """What a device knows of the whole fleet since its last sync: :class:`~.Pairs` of labels, and what to flag.

    ``fallback``: where adapting hurts, this device answers with zero-shot.
    """

    pairs: tuple[int, int, int] = (0, 0, 0)
    share: float = 0.0
    threshold: float = 0.0
    fallback: bool = True


class Source(NamedTuple):
    """The origin of a picture: a file as it was at one moment, or the number of a frame."""

    name: str
    modified: int = 0  # nanoseconds
    size: int = 0


@dataclass(frozen=True, slots=True)
class NumberedAnswer:
    """An answer of a device: ``number`` counts its pictures from 1, ``time`` is in seconds since 1970."""

    number: int
    time: float
    answer: Answer

    def line(self) -> str:
        """Return the answer as a line of JSON."""
        return json_line({"number": self.number, "time": self.time, **answer_fields(self.answer)})


def default_folder() -> Path:
    """Return the folder of a device's record unless another is named: one in the home folder of its user."""
    import platformdirs

    return Path(os.environ.get("LATTE_STATE") or platformdirs.user_state_path("latte") / "device")


class DiskFullError(OSError):
    """The record of a device cannot be written; nothing that was written before is lost."""


def open_record(folder: Path, create: bool = False) -> sqlite3.Connection:
    """Open the file of a device, to read it or to add labels; the device may have it open, too."""
    path = folder / DEVICE_FILE
    if not create and not path.is_file():
        raise InputError(f"{folder}: no device has worked here; give the folder that latte edge has as --state")
    database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        database.execute(f"PRAGMA page_size={_PAGE}")  # of a new file
        for setting in _SETTINGS:
            database.execute(f"PRAGMA {setting}")
        if not _version(database, path):
            database.execute("BEGIN IMMEDIATE")
            if not _version(database, path):  # and nobody else did it meanwhile
                for statement in _TABLES:
                    database.execute(statement)
                database.execute(f"PRAGMA application_id={_APPLICATION}")
                database.execute(f"PRAGMA user_version={DEVICE_SCHEMA}")
            database.execute("COMMIT")
        if not _has_later_tables(database):
            for statement in _LATER_TABLES:
                database.execute(statement.format(""))
    except sqlite3.DatabaseError as error:
        database.close()
        fault = f"a file that cannot be used ({error})"
        raise refuse(str(path), fault, "the file of a device, on a local disk with room") from None
    except BaseException:
        database.close()
        raise
    return database


def open_to_read(folder: Path) -> sqlite3.Connection:
    """Open the file of a device to read it, also on a disk that is full or cannot be written."""
    try:
        return open_record(folder)
    except InputError:
        path = folder / DEVICE_FILE
        for mode in ("mode=ro", "immutable=1"):  # the second where not even the files beside it can be made
            with suppress(sqlite3.DatabaseError), ExitStack() as held:
                database = held.enter_context(closing(sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True)))
                if _version(database, path):
                    database.execute("SELECT count(*) FROM pictures").fetchone()
                    for statement in () if _has_later_tables(database) else _LATER_TABLES:
                        database.execute(statement.format("TEMP "))  # in memory, and empty
                    held.pop_all()
                    return database
        raise


def _has_later_tables(database: sqlite3.Connection) -> bool:
    found = "SELECT count(*) FROM sqlite_master WHERE name IN ('extras', 'lessons')"
    return bool(database.execute(found).fetchone()[0] == len(_LATER_TABLES))


def _version(database: sqlite3.Connection, path: Path) -> int:
    """Return the version of the tables, 0 of a new file; refuse a file of another program, or of another version."""
    version = int(database.execute("PRAGMA user_version").fetchone()[0])
    if version and database.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION:
        raise refuse(str(path), "a database of another program", "a folder of its own for the device")
    if version not in (0, DEVICE_SCHEMA):
        raise refuse(str(path), f"a record of version {version}", f"{DEVICE_SCHEMA}: another latte wrote it")
    return version


def pieces_of(state: bytes) -> Iterator[bytes]:
    """Yield the pieces in which a snapshot is stored."""
    return (state[place : place + PIECE] for place in range(0, len(state), PIECE))


def read_status(database: sqlite3.Connection) -> DeviceStatus:
    """Return the latest status of the device."""
    row = database.execute("SELECT value FROM about WHERE name = 'status'").fetchone()
    return structure(parse_json(row[0], "status"), DeviceStatus, "status") if row else DeviceStatus()


def task_of_record(folder: Path) -> str:
    """Return the fingerprint of the task that the record in ``folder`` is of; "" if there is none."""
    if not (folder / DEVICE_FILE).is_file():
        return ""
    with closing(open_record(folder)) as database:
        row = database.execute("SELECT value FROM about WHERE name = 'task'").fetchone()
    return str(row[0]) if row else ""


def read_fleet(database: sqlite3.Connection) -> FleetKnowledge:
    """Return what the device knows of the whole fleet."""
    row = database.execute("SELECT value FROM about WHERE name = 'fleet'").fetchone()
    return structure(parse_json(row[0], "fleet"), FleetKnowledge, "fleet") if row else FleetKnowledge()


def read_answers(database: sqlite3.Connection, after: int = 0) -> Iterator[NumberedAnswer]:
    """Yield the answers with numbers above ``after``, in order."""
    statement = f"""SELECT number, time, {_ANSWER}, {_EXTRAS} FROM pictures LEFT JOIN extras USING (number)
        WHERE number > ? ORDER BY number"""
    for number, moment, source, *given, near_copy, problem, adapted, mcm, unlike, margin, soft in database.execute(
        statement, [after]
    ):
        extras = {"adapted": adapted, "mcm": mcm, "unlike": bool(unlike), "margin": margin, "soft_label": soft}
        yield NumberedAnswer(number, moment, Answer(*[os.fsdecode(source), *given, bool(near_copy), problem], **extras))


def read_sources(database: sqlite3.Connection, retried: int = 0) -> Iterator[Source]:
    """Yield the origins of the pictures, without unreadable ones up to the number ``retried``."""
    statement = f"SELECT source, modified, size FROM pictures WHERE {_COUNTING}"
    for name, modified, size in database.execute(statement, [retried]):
        yield Source(os.fsdecode(name), modified, size)


def read_retried(database: sqlite3.Connection) -> int:
    """Return the number up to which unreadable pictures are to be tried again."""
    row = database.execute("SELECT value FROM about WHERE name = 'retry'").fetchone()
    return int(row[0]) if row else 0


def retry_unreadable(database: sqlite3.Connection) -> int:
    """Let the device try unreadable pictures again, those that are still there; return how many there are."""
    with writing(database):
        before = read_retried(database)
        statement = "SELECT count(*), max(number) FROM pictures WHERE problem IS NOT NULL AND number > ?"
        count, last = database.execute(statement, [before]).fetchone()
        if count:
            database.execute("INSERT OR REPLACE INTO about VALUES ('retry', ?)", [str(last)])
    return int(count)


def read_counts(database: sqlite3.Connection) -> SessionCounts:
    """Return the counts of the whole life of a device; a picture that was tried again counts once."""
    statement = f"SELECT {_COUNTS} FROM pictures WHERE {_COUNTING}"
    kept = database.execute(statement, [read_retried(database)]).fetchone()
    gone = dict(database.execute("SELECT name, value FROM about WHERE name LIKE 'gone %'"))
    return SessionCounts(*(now + int(gone.get(f"gone {name}", 0)) for name, now in zip(COUNTS, kept, strict=True)))


def prune(database: sqlite3.Connection, last: int) -> list[Source]:
    """Remove answers up to a number; return their pictures. The counts stay, and the few pictures that have labels.

    It is a part of a transaction.
    """
    gone = "number <= ? AND source NOT IN (SELECT source FROM labels)"
    counted, values = f"FROM pictures WHERE {gone} AND {_COUNTING}", [last, read_retried(database)]
    rows = database.execute(f"SELECT source, modified, size {counted}", values).fetchall()
    if rows:
        counts = database.execute(f"SELECT {_COUNTS} {counted}", values).fetchone()
        add = "INSERT INTO about VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = value + excluded.value"
        database.executemany(add, [(f"gone {name}", count) for name, count in zip(COUNTS, counts, strict=True)])
        database.execute(f"DELETE FROM pictures WHERE {gone}", [last])
        database.execute("DELETE FROM extras WHERE number <= ? AND number NOT IN (SELECT number FROM pictures)", [last])
    return [Source(os.fsdecode(name), *rest) for name, *rest in rows]


def read_recent(database: sqlite3.Connection) -> list[Stretch]:
    """Return the latest answers, each as a stretch of its own."""
    statement = f"SELECT {_STRETCH} FROM pictures WHERE problem IS NULL GROUP BY number ORDER BY number DESC LIMIT ?"
    return [Stretch(*row) for row in reversed(database.execute(statement, [RECENT_ANSWERS]).fetchall())]


def read_zero_shot(database: sqlite3.Connection) -> list[str]:
    """Return the latest zero-shot predictions, without those of near copies."""
    statement = "SELECT zero_shot FROM pictures WHERE problem IS NULL AND NOT near_copy ORDER BY number DESC LIMIT ?"
    return [name for (name,) in database.execute(statement, [RECENT_ANSWERS])]


def read_course(database: sqlite3.Connection) -> list[Stretch]:
    """Return agreement and entropy over time, in a few stretches of equal length."""
    last = database.execute("SELECT coalesce(max(number), 0) FROM pictures").fetchone()[0]
    first = max(0, last - HISTORY)
    statement = f"""SELECT {_STRETCH} FROM pictures WHERE problem IS NULL AND number > ?1
        GROUP BY (number - ?1 - 1) * ?2 / ?3 ORDER BY number"""
    length = last - first
    return [Stretch(*row) for row in database.execute(statement, [first, min(MOST_STRETCHES, length), max(length, 1)])]


@contextmanager
def writing(database: sqlite3.Connection) -> Iterator[None]:
    """Make one transaction of a block; a file that cannot be written is an OSError."""
    try:
        database.execute("BEGIN IMMEDIATE")
        try:
            yield
            database.execute("COMMIT")
        finally:
            if database.in_transaction:
                database.execute("ROLLBACK")
    except sqlite3.OperationalError as error:
        kind = DiskFullError if error.sqlite_errorcode & 0xFF in _NO_ROOM else OSError
        path = database.execute("PRAGMA database_list").fetchone()[2]
        raise kind(f"{path} cannot be written: {error}") from None


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
        self._path = str(folder / DEVICE_FILE)
        self._held = ExitStack()
        self._held.enter_context(lock(folder / f"{DEVICE_FILE}.lock", f"device {folder}", whole_folder=True))
        try:
            self._database = self._held.enter_context(closing(open_record(folder, create=True)))
            self._identity = _identity(self._path)
            with writing(self._database):
                self._database.execute("INSERT OR IGNORE INTO about VALUES ('task', ?)", [task])
            if self._first("SELECT value FROM about WHERE name = 'task'") != task:
                got = "the memory of another task"
                raise refuse(f"device {folder}", got, "the same task, or another --state folder")
        except BaseException:
            self._held.close()
            raise
        self._retried = read_retried(self._database)
        self._done = {_digest(source) for source in read_sources(self._database, self._retried)}
        older = b"".join(row[0] for row in self._database.execute("SELECT digests FROM done"))
        self._older = np.sort(np.frombuffer(older, "<u8"))
        pieces = self._database.execute("SELECT piece FROM snapshot ORDER BY place")
        self._pieces = [hash(piece) for (piece,) in pieces]  # of the snapshot that is in the file
        self._full = False  # whether the connection waits for the disk
        self._written = self._durable = 0.0  # when anything was written, and when it was on disk, for the last time
        self._forget()

    def _first(self, statement: str) -> Any:
        return self._database.execute(statement).fetchone()[0]

    def _forget(self) -> None:
        """Drop what waits for the next transaction."""
        self.number = int(self._first("SELECT coalesce(max(number), 0) FROM pictures"))
        self._waiting: dict[Source, NumberedAnswer] = {}
        self._rows: list[bytes] = []  # embeddings of those that no snapshot covers
        self._snapshot: bytes | None = None
        self._lessons: list[tuple[bytes, int, str | None, bytes | None]] = []
        self._status = self._fleet = ""
        self._moved: tuple[str, tuple[str, ...]] | None = None

    # --- pictures -----------------------------------------------------------------------------------------

    def has(self, source: Source) -> bool:
        """Return whether a picture has been classified."""
        return source in self._waiting or self.is_done(source)

    def is_done(self, source: Source) -> bool:
        """Return whether a picture has been classified and recorded; any thread may ask."""
        digest = _digest(source)
        if digest in self._done:
            return True
        older = self._older
        place = bisect_left(older, digest)  # not searchsorted, which gives the other threads their turn every time
        return place < len(older) and int(older[place]) == digest

    def add(self, source: Source, answer: Answer, row: Vectors | None) -> NumberedAnswer:
        """Add the answer to the next picture and its embedding (D,), if it has one, to the next transaction."""
        self.number += 1
        numbered = self._waiting[source] = NumberedAnswer(self.number, time.time(), answer)
        if row is not None:
            self._rows.append(row.astype("<f4", copy=False).tobytes())
        return numbered

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

    def tally(self) -> Tally:
        """Return what was counted up to now."""
        return Tally(read_counts(self._database), read_recent(self._database))

    @property
    def database(self) -> sqlite3.Connection:
        """The file, to read what other processes wrote there."""
        return self._database

    # --- memory and status --------------------------------------------------------------------------------

    def save(self, method: Method) -> None:
        """Add the memory to the next transaction; the embeddings that it covers are no longer needed."""
        self._snapshot, self._rows = safetensors_bytes(method.state(), {}), []

    def learn(self, source: Source, number: int, taught: str | None, row: bytes | None) -> None:
        """Add to the next transaction, which has to have the memory, too, that a label was learnt (None: unlearnt)."""
        self._lessons.append((os.fsencode(source.name), number, taught, row))

    def move(self, task: str, classnames: tuple[str, ...], method: Method) -> None:
        """Add to the next transaction that the record is of another version of the task, and the memory in it."""
        self.save(method)
        self._moved = task, classnames

    def restore(self, method: Method, dim: int) -> int:
        """Give ``method`` the memory of what is recorded, and drop the rest; return how many pictures it saw again.

        ``dim`` is the length of an embedding.
        """
        self._forget()
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

    def last_status(self) -> DeviceStatus:
        """Return what the device said of itself last, in an earlier run."""
        return read_status(self._database)

    def report(self, status: DeviceStatus) -> None:
        """Add what the device says of itself to the next transaction; on a full disk, the last word stays."""
        self._status = json.dumps(asdict(status))

    def know(self, fleet: FleetKnowledge) -> None:
        """Add what is known of the whole fleet to the next transaction."""
        self._fleet = json.dumps(asdict(fleet))

    def close(self) -> None:
        """Close the file and let another process have it; what was not committed is dropped."""
        self._held.close()

    # --- transactions -------------------------------------------------------------------------------------

    def commit(self) -> list[NumberedAnswer]:
        """Write what waits, if it is much or the last time was long ago; return the answers that are now on disk."""
        due = len(self._waiting) >= GROUP_PICTURES or time.monotonic() - self._written >= GROUP_SECONDS
        return self.flush() if due else []

    def flush(self, durable: bool = True) -> list[NumberedAnswer]:
        """Write everything now; the rest is as with :meth:`commit`.

        Unless ``durable``, a power cut may cost the last second.
        """
        while self._waiting or self._snapshot is not None or self._status or self._fleet:
            try:
                return self._write(durable)
            except OSError as error:
                self.check()
                if not isinstance(error, DiskFullError):
                    raise
                self._status = self._fleet = ""
                if self._waiting or self._snapshot is not None:
                    recorded = self._first("SELECT coalesce(max(number), 0) FROM pictures")
                    self._on_full(DiskFullError(f"{error}; {recorded} images are recorded"))
        return []

    def _write(self, durable: bool) -> list[NumberedAnswer]:
        database, snapshot, now = self._database, self._snapshot, time.monotonic()
        full = bool(self._waiting or snapshot) and (durable or now - self._durable > DURABLE_EVERY)
        if full != self._full:
            database.execute(f"PRAGMA synchronous={'FULL' if full else 'NORMAL'}")
            self._full = full
        pieces = [] if snapshot is None else list(pieces_of(snapshot))
        hashes = self._pieces if snapshot is None else list(map(hash, pieces))
        old = self.number - self.number % _PRUNE_EVERY - self._history
        gone: list[Source] = []
        with writing(database):
            if snapshot is not None:  # what has changed of it; the embeddings in the file are not needed any more
                known = [*self._pieces, *[None] * len(pieces)]
                changed = [(place, piece) for place, piece in enumerate(pieces) if hashes[place] != known[place]]
                database.executemany("INSERT OR REPLACE INTO snapshot VALUES (?, ?)", changed)
                database.execute("DELETE FROM snapshot WHERE place >= ?", [len(pieces)])
                database.execute("DELETE FROM embeddings")
            database.executemany(_ADD, [_values(source, answer) for source, answer in self._waiting.items()])
            extras = [_extras(answer) for answer in self._waiting.values()]
            database.executemany("INSERT INTO extras VALUES (?, ?, ?, ?, ?, ?)", filter(None, extras))
            for lesson in self._lessons:
                _write_lesson(database, *lesson)
            if self._moved:
                _move(database, *self._moved)
            if self._rows:  # one row: a row each would fill a page each, however small it is
                database.execute("INSERT INTO embeddings VALUES (?, ?)", (self.number, b"".join(self._rows)))
            if self._status:
                database.execute("INSERT OR REPLACE INTO about VALUES ('status', ?)", [self._status])
            if self._fleet:
                database.execute("INSERT OR REPLACE INTO about VALUES ('fleet', ?)", [self._fleet])
            if self.number - len(self._waiting) < old + self._history:  # the first group behind a thousand
                gone = prune(database, old)
                digests = np.array([_digest(source) for source in gone], "<u8")
                if gone:
                    database.execute("INSERT OR REPLACE INTO done VALUES (?, ?)", (old, digests.tobytes()))
        done, self._waiting, self._rows, self._snapshot, self._status = self._waiting, {}, [], None, ""
        self._lessons, self._fleet, self._moved = [], "", None
        self._pieces, self._written = hashes, now
        self._durable = now if full else self._durable
        if done and full:
            self.check()  # before anybody is told of them
        self._done.update(map(_digest, done))
        if gone:
            self._older = np.union1d(self._older, digests)
            self._done.difference_update(digests.tolist())
        return list(done.values())

    def check(self) -> None:
        """Raise an OSError if the file has been removed or replaced: what is written would be seen by nobody."""
        try:
            same = _identity(self._path) == self._identity
        except (FileNotFoundError, NotADirectoryError):
            same = False
        if not same:
            raise OSError(f"{self._path} has been removed or replaced while the device worked: start it again")


def _values(source: Source, numbered: NumberedAnswer) -> tuple[Any, ...]:
    """Return the columns of an answer, in the order of the table."""
    one = numbered.answer
    place = (numbered.number, os.fsencode(source.name), source.modified, source.size)
    adapted = (one.label, one.probability, one.certainty)
    return (*place, *adapted, one.zero_shot, one.zero_shot_probability, one.near_copy, one.problem, numbered.time)


def _extras(numbered: NumberedAnswer) -> tuple[Any, ...] | None:
    one = numbered.answer
    extras = (one.adapted, one.mcm, one.unlike, one.margin, one.soft_label)
    return (numbered.number, *extras) if extras != (None, None, False, None, None) else None


def _write_lesson(
    database: sqlite3.Connection, source: bytes, number: int, taught: str | None, row: bytes | None
) -> None:
    if taught is None:  # of a label that was given again meanwhile, the row stays
        database.execute("UPDATE lessons SET taught = NULL, row = NULL WHERE source = ?", [source])
        database.execute("DELETE FROM lessons WHERE source = ? AND source NOT IN (SELECT source FROM labels)", [source])
    else:
        values = (number, taught, row, source)
        database.execute("UPDATE lessons SET number = ?, taught = ?, row = ? WHERE source = ?", values)


def _move(database: sqlite3.Connection, task: str, classnames: tuple[str, ...]) -> None:
    """Make a record one of another version of its task; labels of classes that have gone wait until they come back."""
    database.execute("UPDATE about SET value = ? WHERE name = 'task'", [task])
    database.execute("UPDATE extras SET soft_label = NULL")  # of other classes
    names = json.dumps(["", *classnames])
    gone = "UPDATE lessons SET taught = NULL, row = NULL WHERE taught NOT IN (SELECT value FROM json_each(?))"
    database.execute(gone, [names])


def _digest(source: Source) -> int:
    """Return a number that stands for one version of one file."""
    whole = b"%b\0%d %d" % (os.fsencode(source.name), source.modified, source.size)
    return int.from_bytes(hashlib.blake2b(whole, digest_size=_DIGEST).digest(), "little")


def _identity(path: str) -> tuple[int, int]:
    about = os.stat(path)  # noqa: PTH116  for every frame: half the time of Path.stat
    return about.st_dev, about.st_ino
