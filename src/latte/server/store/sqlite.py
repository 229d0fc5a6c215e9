"""The embedded store: SQLite in a folder that one process owns.

Write-ahead log with ``synchronous=FULL``: a commit is on disk before it is acknowledged, so a power cut loses no
acknowledged upload. Every row carries a checksum, which is compared when it is read; the structure of the file is
checked at every start; and commits are counted, in the file and beside it (:class:`CommitMark`), so that a store of
which a part is missing is not taken for a sound one.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

from ...errors import refuse
from ...files.atomic import lock
from . import base

log = logging.getLogger("latte.server")
STORE_FILE = "clients.db"
STORE_SCHEMA = 2  # PRAGMA user_version
_TOKEN_COLUMNS = "id, role, client, digest, created, revoked"
APPLICATION = 0x4C617474  # "Latt", PRAGMA application_id
_SETTINGS = ("busy_timeout=5000", "journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "trusted_schema=OFF")
_TABLES = (
    """CREATE TABLE clients (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            name BLOB NOT NULL UNIQUE,
            version INTEGER NOT NULL,
            key BLOB NOT NULL,
            body BLOB NOT NULL,
            checksum INTEGER NOT NULL,
            updated REAL NOT NULL
        )""",
    "CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    """CREATE TABLE tokens (
            id TEXT PRIMARY KEY,
            role TEXT NOT NULL,
            client BLOB NOT NULL,
            digest BLOB NOT NULL,
            created REAL NOT NULL,
            revoked REAL,
            checksum INTEGER NOT NULL
        )""",
    "INSERT INTO about VALUES ('commits', '0')",
    f"PRAGMA application_id={APPLICATION}",
    f"PRAGMA user_version={STORE_SCHEMA}",
)
_WRITE = f"""INSERT INTO clients ({base.ROW_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (name) DO UPDATE SET version=excluded.version, key=excluded.key, body=excluded.body,
    checksum=excluded.checksum, updated=excluded.updated WHERE excluded.version > clients.version"""
# a damaged name may be text or a number; the comparison of all by the index would take any text for the number 0
_REMOVE = """DELETE FROM clients WHERE name IN (?1, CAST(?1 AS TEXT), CAST(CAST(?1 AS TEXT) AS NUMERIC))
    AND CAST(name AS BLOB) = ?1"""
_COMMITS = "SELECT CAST(value AS INTEGER) FROM about WHERE name = 'commits'"
_SYNC_EVERY = 16  # commits between two times that the mark waits for the disk: 6 % more waiting
_LEAST_FREE = 1 << 20  # bytes: with less, an error of writing is a full disk
_MOST_VARIABLES = 500  # of one statement; some builds of SQLite allow 999


class CommitMark:
    """The file ``clients.db.mark``: the number of the last commit that somebody was told of.

    It is written after a commit is on disk, so it is never ahead of a sound store, whenever a process or a machine
    stops; if the store is behind it, something that was acknowledged is missing.
    """

    def __init__(self, store: Path) -> None:
        self._path, self._handle = store.with_name(f"{store.name}.mark"), -1

    def read(self) -> int:
        """Return the number; 0 if there is none, or none that can be read."""
        try:
            content = self._path.read_bytes()[:64]
        except FileNotFoundError:
            return 0
        match = re.fullmatch(rb"(\d{20}) ([0-9a-f]{8})\n", content)
        if match and zlib.crc32(match[1]) == int(match[2], 16):
            return int(match[1])
        if content:
            log.warning("%s: is damaged, and made again", self._path)
        return 0

    def note(self, number: int) -> None:
        """Write a number; no room for it is no reason to refuse anything.

        Of two processes that commit at the same moment, the earlier may write last: the mark is then behind by one.
        """
        text = b"%020d" % number
        try:
            new = self._handle < 0
            if new:
                flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0)
                self._handle = os.open(self._path, flags, 0o600)
            os.lseek(self._handle, 0, os.SEEK_SET)
            os.write(self._handle, b"%s %08x\n" % (text, zlib.crc32(text)))
            if new:
                os.ftruncate(self._handle, os.lseek(self._handle, 0, os.SEEK_CUR))
            if new or number % _SYNC_EVERY == 0:
                os.fsync(self._handle)
        except OSError as error:
            log.error("%s: %s", self._path, error)

    def close(self) -> None:
        """Sync and close the file."""
        if self._handle >= 0:
            with suppress(OSError):
                os.fsync(self._handle)
            os.close(self._handle)
            self._handle = -1


class SqliteStore(base.Store):
    """Records in the file ``clients.db`` of ``folder``.

    A file that is damaged, or behind its mark, is refused. With ``anew`` an existing file is set aside first; with
    ``forgive`` a file that is behind its mark is taken as it is.
    """

    shared: ClassVar[bool] = False

    def __init__(self, folder: Path, anew: bool = False, forgive: bool = False) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._held = ExitStack()
        self._held.enter_context(lock(folder / f"{STORE_FILE}.lock", f"store {folder}", whole_folder=True))
        try:
            self._path = folder / STORE_FILE
            self._mark = CommitMark(self._path)
            marked = self._mark.read()
            if anew:
                self.aside = set_aside(self._path)
            else:
                check_present(self._path, marked)
            self._database = open_database(self._path)
            self._held.callback(self._mark.close)
            self._held.callback(self._database.close)
            with explain_errors(self._path):
                if faults := file_faults(self._database, 0 if anew or forgive else marked):
                    raise damaged(self._path, faults[0])
                number = self._database.execute(_COMMITS).fetchone()[0]
                if marked > number:
                    number = marked
                    self._database.execute("UPDATE about SET value = ? WHERE name = 'commits'", [str(number)])
                self._place = PlaceCheck(self._path)
            self._mark.note(number)
        except BaseException:
            self._held.close()
            raise
        self._loaded = False

    @contextmanager
    def _commit(self) -> Iterator[None]:
        """Run the block in a transaction; when it ends, its changes are on disk, and in the file that is in place."""
        with explain_errors(self._path), counted(self._database, self._mark):
            yield
        self._place.check()

    def _claim_fact(self, name: str, value: str) -> str:
        with explain_errors(self._path):
            row = self._database.execute("SELECT value FROM about WHERE name = ?", [name]).fetchone()
        if row is not None:
            return str(row[0])
        with self._commit():
            self._database.execute("INSERT INTO about VALUES (?, ?)", [name, value])
        return value

    def read(self, clients: Sequence[str]) -> dict[str, base.Record]:
        """Return the sound records of ``clients``, by client."""
        records = {}
        with explain_errors(self._path):
            for start in range(0, len(clients), _MOST_VARIABLES):
                names = [base.name_bytes(client) for client in clients[start : start + _MOST_VARIABLES]]
                marks = ",".join("?" * len(names))
                rows = self._database.execute(f"SELECT {base.ROW_COLUMNS} FROM clients WHERE name IN ({marks})", names)
                records.update({record.client: record for record in base.sound_records(rows)})
        return records

    def write(self, records: Sequence[base.Record]) -> frozenset[str]:
        """Store records, all or none; return when they are durable."""
        with self._commit():
            before = self._database.total_changes
            self._database.executemany(_WRITE, [record.row for record in records])
            if self._database.total_changes - before == len(records):
                return frozenset()
            self._database.execute("ROLLBACK")  # some are late: written one by one, each says whether it is
            self._database.execute("BEGIN IMMEDIATE")
            rows = ((record.client, self._database.execute(_WRITE, record.row).rowcount) for record in records)
            return frozenset(client for client, written in rows if not written)

    def remove(self, client: str) -> bool:
        """Remove the record of a client, durably; also if its name is damaged, and of another type."""
        with self._commit():
            return self._database.execute(_REMOVE, [base.name_bytes(client)]).rowcount > 0

    def changes(self) -> Iterator[base.Record | base.Removal]:
        """Yield every record, in the order of joining, at the first call; later nothing, as nobody else writes.

        A store whose files were removed is unavailable.
        """
        self._place.check()
        if not self._loaded:
            with explain_errors(self._path):
                yield from map(
                    base.record_of, self._database.execute(f"SELECT {base.ROW_COLUMNS} FROM clients ORDER BY id")
                )
            self._loaded = True

    def rows(self) -> list[base.StoredRow]:
        """Return every row as it is stored, damaged or not."""
        with explain_errors(self._path):
            return self._database.execute(f"SELECT {base.ROW_COLUMNS} FROM clients ORDER BY id").fetchall()

    def is_empty(self) -> bool:
        """Return whether there is no record."""
        with explain_errors(self._path):
            return self._database.execute("SELECT 1 FROM clients LIMIT 1").fetchone() is None

    def _replace(
        self, facts: base.Facts, records: Iterable[base.Record], tokens: base.TokenChoice | None, made: bool
    ) -> None:
        statement = f"INSERT INTO clients ({base.ROW_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)"
        with self._commit():
            self._database.execute("DELETE FROM clients")
            for name, value in facts.items():
                self._database.execute("DELETE FROM about WHERE name = ?", [name])
                if value is not None:
                    self._database.execute("INSERT INTO about VALUES (?, ?)", [name, value])
            if tokens is not None:
                rows = tokens(read_tokens(self._database, self._path))
                self._database.execute("DELETE FROM tokens")
                if rows or made:
                    put_tokens(self._database, rows)
            self._database.executemany(statement, (record.row for record in records))

    def close(self) -> None:
        """Close the file and let another process have it."""
        self._held.close()


def open_database(path: Path) -> sqlite3.Connection:
    """Open the file of a store, in the version of this program; it is made if it is not there."""
    make_private(path)
    with explain_errors(path):
        database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    database.text_factory = stored_text
    try:
        with explain_errors(path):
            for setting in _SETTINGS:
                database.execute(f"PRAGMA {setting}")
            if database.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                want = "a local disk: SQLite needs a write-ahead log"
                raise refuse(str(path), "a file system without shared memory", want)
            make_tables(database, path)
    except BaseException:
        database.close()
        raise
    return database


def check_present(path: Path, marked: int) -> None:
    """Refuse to make a new file where a store has been: it is lost, and the tokens with it."""
    if marked and not (path.is_file() and path.stat().st_size):
        raise damaged(path, f"nothing, where {marked} commits were")


def damaged(path: Path, fault: str) -> base.DamagedStoreError:
    """Return the error that refuses a damaged store."""
    return base.DamagedStoreError(
        f"{path}: got a damaged database ({fault}), want a backup: latte store restore --replace, or what is left of"
        " it: latte store check --forget-damaged"
    )


def file_faults(database: sqlite3.Connection, marked: int = 0) -> list[str]:
    """Return what is wrong with the structure of a file, and how many of the commits up to ``marked`` it lacks."""
    faults = [str(row[0]) for row in database.execute("PRAGMA integrity_check") if row[0] != "ok"]
    row = database.execute(_COMMITS).fetchone()
    there = 0 if row is None else int(row[0])
    if row is None:
        faults.append("no count of commits")
    elif there < marked:
        faults.append(f"the last {marked - there} of {marked} commits are missing")
    return faults


class PlaceCheck:
    """Whether the file of an open store, and its write-ahead log, are still where they were.

    SQLite goes on writing into files that somebody has removed, and would acknowledge what nobody can read again.
    """

    def __init__(self, path: Path) -> None:
        self._files: dict[str, os.stat_result | None] = dict.fromkeys(map(str, files_of(path)[:2]))
        self.check()

    def check(self) -> None:
        """Refuse to go on without the files, or with others in their place."""
        for file, known in self._files.items():
            try:
                found = os.stat(file)  # noqa: PTH116  a third of the time, at every request
            except OSError:
                if known is None:  # a log that is not there yet
                    continue
                found = None
            if known is None:
                self._files[file] = found
            elif found is None or found.st_ino != known.st_ino or found.st_dev != known.st_dev:
                raise base.StoreUnavailableError(f"{file}: was removed or replaced meanwhile; start the server again")


def files_of(path: Path) -> tuple[Path, Path, Path]:
    """Return a database file and what belongs to it while it is open."""
    return path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")


def make_private(path: Path) -> None:
    """Make a database file, or one that is there and ours, readable for its owner only: it holds uploads and secrets.

    SQLite gives the files that it makes beside it the same permissions.
    """
    if not path.exists():  # and not opened otherwise: closing it would release the locks of SQLite in this process
        path.touch(mode=0o600)
    for file in files_of(path):
        with suppress(OSError):  # not there, another owner's, or on a file system that cannot be written
            file.chmod(0o600)


def set_aside(path: Path) -> Path:
    """Rename a database file and the files beside it, so that nothing in them is lost; return its new name."""
    aside = path.with_name(f"{path.name}.aside-{datetime.now(UTC):%Y%m%dT%H%M%S%f}")
    for file, other in zip(files_of(path), files_of(aside), strict=True):
        if file.exists():
            file.rename(other)
    return aside


@contextmanager
def transaction(database: sqlite3.Connection) -> Iterator[None]:
    """Run the block in a transaction: all of its changes are made, or none."""
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


@contextmanager
def counted(database: sqlite3.Connection, mark: CommitMark) -> Iterator[None]:
    """Run the block in a transaction that is counted; when it is on disk, the mark says so."""
    with transaction(database):
        yield
        database.execute("UPDATE about SET value = value + 1 WHERE name = 'commits'")
        number = database.execute(_COMMITS).fetchone()[0]
    mark.note(number)


def read_tokens(database: sqlite3.Connection, path: Path, damaged_too: bool = True) -> list[base.TokenRow]:
    """Return all tokens of the file ``path``, in the order in which they were made.

    A token that does not match its checksum is an error; without ``damaged_too`` it is left out.
    """
    tokens = list[base.TokenRow]()
    for *row, checksum in database.execute(f"SELECT {_TOKEN_COLUMNS}, checksum FROM tokens ORDER BY created, id"):
        if checksum == _token_checksum(row):
            tokens.append((row[0], row[1], row[2], row[3], row[4], row[5]))
        elif damaged_too:
            raise damaged(path, f"the checksum of token {row[0]} does not match")
    return tokens


def put_tokens(database: sqlite3.Connection, rows: Iterable[base.TokenRow]) -> None:
    """Store tokens, new ones or with another state, and the fact that there were some: the number of this commit.

    The fact is never removed.
    """
    statement = f"INSERT OR REPLACE INTO tokens ({_TOKEN_COLUMNS}, checksum) VALUES (?, ?, ?, ?, ?, ?, ?)"
    database.executemany(statement, ((*row, _token_checksum(row)) for row in rows))
    database.execute("INSERT OR REPLACE INTO about SELECT 'tokens', value + 1 FROM about WHERE name = 'commits'")


def _token_checksum(row: Sequence[object]) -> int:
    return zlib.crc32(repr(tuple(row)).encode(errors="surrogateescape"))


def stored_text(content: bytes) -> str:
    """Return a text of a database; one that is damaged gives the same bytes again."""
    return content.decode(errors="surrogateescape")


def make_tables(database: sqlite3.Connection, path: Path) -> None:
    """Make the tables of a new file; a file of another program or version is refused."""

    def is_new() -> bool:
        return not database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]

    if is_new():
        with transaction(database):
            for statement in _TABLES if is_new() else ():  # another process may have been first
                database.execute(statement)
    owner, version = (database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version"))
    if owner != APPLICATION:
        raise refuse(str(path), "a database of another program", "a folder of its own for the store")
    if version != STORE_SCHEMA:
        raise refuse(str(path), f"a store of version {version}", f"version {STORE_SCHEMA}: another latte wrote it")


@contextmanager
def explain_errors(path: Path) -> Iterator[None]:
    """Turn the errors of SQLite on the file ``path`` into ours."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        name = getattr(error, "sqlite_errorname", "")
        if name == "SQLITE_FULL" or (
            name.startswith("SQLITE_IOERR") and shutil.disk_usage(path.parent).free < _LEAST_FREE
        ):
            raise base.StoreFullError(f"{path}: no room is left on its disk ({error})") from error
        if isinstance(error, sqlite3.OperationalError):
            there = os.access(path.parent, os.W_OK)
            reason = error if there else f"SQLite has to write in its folder, and cannot ({error})"
            raise base.StoreUnavailableError(f"{path}: {reason}") from error
        raise damaged(path, str(error)) from error
