"""The file of a device, ``device.db`` (SQLite): its tables, and what any process may read from it or add to it.

The device itself writes it through :class:`latte.edge.device_record.DeviceRecord`. Meanwhile other processes may read
its status and its answers, and add labels.
"""

from __future__ import annotations

import base64
import json
import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import InputError, refuse
from ..files.documents import parse_json
from ..files.schema import structure
from .classify import Answer
from .evidence import MOST_STRETCHES, Labelled, Stretch
from .tally import RECENT_ANSWERS, SessionCounts

DEVICE_FILE = "device.db"
DEVICE_SCHEMA = 2
HISTORY = 100_000  # answers that stay: about 30 MB. Of older ones, eight bytes and the counts
_APPLICATION = 0x4C617465  # "Late", PRAGMA application_id
_PICTURES = """CREATE TABLE pictures (
        number INTEGER PRIMARY KEY, source BLOB NOT NULL, modified INTEGER NOT NULL, size INTEGER NOT NULL,
        label TEXT, probability REAL, certainty REAL, zero_shot TEXT, zero_shot_probability REAL,
        near_copy INTEGER NOT NULL, problem TEXT, time REAL NOT NULL
    )"""
_NEW_TABLES = (  # of version 2
    _PICTURES,
    "CREATE TABLE done (last INTEGER PRIMARY KEY, digests BLOB NOT NULL)",  # of pictures whose answers are gone
    "CREATE TABLE embeddings (number INTEGER PRIMARY KEY, row BLOB NOT NULL)",
    "CREATE TABLE snapshot (place INTEGER PRIMARY KEY, piece BLOB NOT NULL)",
)
_TABLES = (
    "CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE labels (source BLOB PRIMARY KEY, label TEXT NOT NULL)",
    *_NEW_TABLES,
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
_FIELDS = tuple(field.name for field in fields(Answer))
_STRETCH = "count(*), coalesce(sum(label != zero_shot), 0), coalesce(sum(1.0 - certainty), 0.0)"


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


class Source(NamedTuple):
    """The origin of a picture: a file as it was at one moment, or the number of a frame."""

    name: str
    modified: int = 0  # nanoseconds
    size: int = 0


def absolute_name(path: Path) -> str:
    """Return the absolute name of a file without ``..``, so that a file has one name whichever folder it is named from.

    Links stay as they are named, except where a link before a ``..`` leads elsewhere: there, the folder is resolved.
    """
    name = os.path.abspath(path)  # noqa: PTH100  it removes .. by the text alone
    if ".." not in path.parts or os.path.realpath(path.parent) == os.path.realpath(os.path.dirname(name)):  # noqa: PTH120
        return name
    return os.path.join(os.path.realpath(path.parent), path.name)  # noqa: PTH118


@dataclass(frozen=True, slots=True)
class NumberedAnswer:
    """An answer of a device: ``number`` counts its pictures from 1, ``time`` is in seconds since 1970."""

    number: int
    time: float
    answer: Answer

    def document(self) -> dict[str, Any]:
        """Return the answer as it is printed."""
        answer = self.answer  # not asdict, which copies: this is done for every picture
        return {"number": self.number, "time": self.time, **{name: getattr(answer, name) for name in _FIELDS}}

    def line(self) -> str:
        """Return the answer as a line of JSON."""
        return json_line(self.document())


def json_line(document: Mapping[str, Any]) -> str:
    r"""Return JSON that any program can read: bytes of a file's name that are no UTF-8 are written as \xNN.

    Such a line has the name itself as ``file_base64``, too.

    >>> json_line({"file": "caf\udce9.jpg"})
    '{"file": "caf\\\\xe9.jpg", "file_base64": "Y2Fm6S5qcGc="}'
    """
    text = json.dumps(document)
    if "\\ud" not in text:  # as nearly always
        return text
    safe = {name: printable(value) for name, value in document.items()}
    if safe.get("file") != document.get("file"):
        safe["file_base64"] = base64.b64encode(os.fsencode(document["file"])).decode()
    return json.dumps(safe)


def printable(value: Any) -> Any:
    """Return text without lone surrogates, which stand for bytes that are no UTF-8; anything else as it is."""
    if not isinstance(value, str):
        return value
    try:
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:  # half a character that stands for no byte
        return value.encode("utf-8", "backslashreplace").decode()


def open_record(folder: Path, create: bool = False) -> sqlite3.Connection:
    """Open the file of a device, to read it or to add labels; the device may have it open, too."""
    path = folder / DEVICE_FILE
    if not create and not path.is_file():
        raise refuse("device", f"{folder}, where no device has worked", "the --state folder of latte edge")
    database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        database.execute(f"PRAGMA page_size={_PAGE}")  # of a new file
        for setting in _SETTINGS:
            database.execute(f"PRAGMA {setting}")
        _migrate(database, path)
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
            with suppress(sqlite3.DatabaseError):
                database = sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True)
                if _is_record(database):
                    return database
                database.close()
        raise


def _is_record(database: sqlite3.Connection) -> bool:
    """Say whether a file can be read and is the record of a device, of a version that is known."""
    version = database.execute("PRAGMA user_version").fetchone()[0]
    owner = database.execute("PRAGMA application_id").fetchone()[0]
    database.execute("SELECT count(*) FROM pictures").fetchone()
    return bool(owner == _APPLICATION and 0 < version <= DEVICE_SCHEMA)


def _migrate(database: sqlite3.Connection, path: Path) -> None:
    """Make the tables of a new file; refuse a file of another program, or of a newer version of this one."""
    version = database.execute("PRAGMA user_version").fetchone()[0]
    owner = database.execute("PRAGMA application_id").fetchone()[0]
    if version and owner != _APPLICATION:
        raise refuse(str(path), "a database of another program", "a folder of its own for the device")
    if version > DEVICE_SCHEMA:
        raise refuse(str(path), f"a record of version {version}", f"at most {DEVICE_SCHEMA}: a newer latte wrote it")
    if version == DEVICE_SCHEMA:
        return
    database.execute("BEGIN IMMEDIATE")
    if database.execute("PRAGMA user_version").fetchone()[0] == version:  # and nobody else did it meanwhile
        for statement in _TABLES if not version else _upgrade(database):
            database.execute(statement)
        database.execute(f"PRAGMA application_id={_APPLICATION}")
        database.execute(f"PRAGMA user_version={DEVICE_SCHEMA}")
    database.execute("COMMIT")


def _upgrade(database: sqlite3.Connection) -> Iterator[str]:
    """Yield the statements that make version 2 of version 1, which had an index of the names and a whole snapshot."""
    state = database.execute("SELECT state FROM snapshot").fetchone()
    for table in ("pictures", "embeddings"):
        yield f"ALTER TABLE {table} RENAME TO old_{table}"
    yield "DROP TABLE snapshot"
    yield from _NEW_TABLES
    for table in ("pictures", "embeddings"):
        yield f"INSERT INTO {table} SELECT * FROM old_{table}"
        yield f"DROP TABLE old_{table}"
    for place, piece in enumerate(pieces_of(state[0]) if state else ()):
        database.execute("INSERT INTO snapshot VALUES (?, ?)", (place, piece))


def pieces_of(state: bytes) -> Iterator[bytes]:
    """Yield the pieces in which a snapshot is stored."""
    return (state[place : place + PIECE] for place in range(0, len(state), PIECE))


# --- what any process may read ---------------------------------------------------------------------------------


def read_status(database: sqlite3.Connection) -> DeviceStatus:
    """Return the latest status of the device."""
    row = database.execute("SELECT value FROM about WHERE name = 'status'").fetchone()
    return structure(parse_json(row[0], "status"), DeviceStatus, "status") if row else DeviceStatus()


def read_answers(database: sqlite3.Connection, after: int = 0) -> Iterator[NumberedAnswer]:
    """Yield the answers with numbers above ``after``, in order."""
    rows = database.execute(f"SELECT number, time, {_ANSWER} FROM pictures WHERE number > ? ORDER BY number", [after])
    for number, time, source, label, probability, certainty, plain, plain_probability, near_copy, problem in rows:
        adapted = (label, probability, certainty)
        answer = Answer(os.fsdecode(source), *adapted, plain, plain_probability, bool(near_copy), problem)
        yield NumberedAnswer(number, time, answer)


def read_sources(database: sqlite3.Connection, retried: int = 0) -> Iterator[Source]:
    """Yield the origins of the pictures, without unreadable ones up to the number ``retried``."""
    statement = "SELECT source, modified, size FROM pictures WHERE problem IS NULL OR number > ?"
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
    statement = """SELECT count(*), count(problem), coalesce(sum(label != zero_shot), 0), coalesce(sum(near_copy), 0)
        FROM pictures WHERE problem IS NULL OR number > ?"""
    kept = database.execute(statement, [read_retried(database)]).fetchone()
    gone = dict(database.execute("SELECT name, value FROM about WHERE name LIKE 'gone %'"))
    return SessionCounts(*(now + int(gone.get(f"gone {name}", 0)) for name, now in zip(COUNTS, kept, strict=True)))


COUNTS = ("pictures", "unreadable", "changed", "near_copies")
_GONE = "number <= ?1 AND source NOT IN (SELECT source FROM labels)"  # a few labels keep their pictures
_ADD_GONE = f"""INSERT INTO about SELECT 'gone ' || ?2, {{count}} FROM pictures WHERE {_GONE} AND (problem IS NULL
        OR number > coalesce((SELECT CAST(value AS INTEGER) FROM about WHERE name = 'retry'), 0))
    ON CONFLICT (name) DO UPDATE SET value = value + excluded.value"""
PRUNE = (  # statements that count answers up to a number and then remove them
    *(
        (_ADD_GONE.format(count=count), name)
        for name, count in zip(
            COUNTS,
            ("count(*)", "count(problem)", "coalesce(sum(label != zero_shot), 0)", "coalesce(sum(near_copy), 0)"),
            strict=True,
        )
    ),
    (f"DELETE FROM pictures WHERE {_GONE}", None),
)


def read_recent(database: sqlite3.Connection) -> list[Stretch]:
    """Return the latest answers, each as a stretch of its own."""
    statement = f"SELECT {_STRETCH} FROM pictures WHERE problem IS NULL GROUP BY number ORDER BY number DESC LIMIT ?"
    return [Stretch(*row) for row in reversed(database.execute(statement, [RECENT_ANSWERS]).fetchall())]


def read_course(database: sqlite3.Connection) -> list[Stretch]:
    """Return agreement and entropy over time, in a few stretches of equal length."""
    last = database.execute("SELECT coalesce(max(number), 0) FROM pictures").fetchone()[0]
    first = max(0, last - HISTORY)
    statement = f"""SELECT {_STRETCH} FROM pictures WHERE problem IS NULL AND number > ?1
        GROUP BY (number - ?1 - 1) * ?2 / ?3 ORDER BY number"""
    length = last - first
    return [Stretch(*row) for row in database.execute(statement, [first, min(MOST_STRETCHES, length), max(length, 1)])]


def compare_labels(database: sqlite3.Connection) -> Labelled:
    """Return how the answers compare with the stored labels; of a picture that came twice, the last answer counts."""
    if database.execute("SELECT 1 FROM labels LIMIT 1").fetchone() is None:  # as on most devices, at every sync
        return Labelled(0, 0, 0, 0, 0)
    statement = """SELECT count(*), coalesce(sum(right), 0), coalesce(sum(plain), 0),
        coalesce(sum(right AND NOT plain), 0), coalesce(sum(plain AND NOT right), 0)
        FROM (SELECT p.label = l.label AS right, p.zero_shot = l.label AS plain, max(p.number)
              FROM labels l JOIN pictures p ON p.source = l.source WHERE p.problem IS NULL GROUP BY l.source)"""
    return Labelled(*database.execute(statement).fetchone())


def add_labels(database: sqlite3.Connection, labels: Mapping[str, str]) -> int:
    """Store the true labels of pictures, by their names; return how many of these pictures have been classified."""
    rows = [(os.fsencode(name), label) for name, label in labels.items()]
    with writing(database):
        database.executemany("INSERT OR REPLACE INTO labels VALUES (?, ?)", rows)
        classified = {source for (source,) in database.execute("SELECT source FROM pictures")}
    return sum(source in classified for source, _ in rows)


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
        raise OSError(f"{DEVICE_FILE} cannot be written: {error}") from None
