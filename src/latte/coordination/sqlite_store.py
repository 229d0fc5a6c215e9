"""The embedded store: SQLite in a folder that one process owns.

Write-ahead log with ``synchronous=FULL``: a commit is on disk before it is acknowledged, so a power cut loses no
acknowledged upload. Every row carries a checksum, which is compared when it is read.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

from ..errors import refuse
from ..files.locks import lock
from .upload_records import (
    ROW_COLUMNS,
    DamagedStoreError,
    Record,
    Removal,
    StoredRow,
    StoreFullError,
    StoreUnavailableError,
    name_bytes,
    new_secret,
    record_of,
    secret_of,
    secret_text,
    sound_records,
)

STORE_FILE = "clients.db"
STORE_SCHEMA = 1  # PRAGMA user_version
_APPLICATION = 0x4C617474  # "Latt", PRAGMA application_id
_SETTINGS = ("journal_mode=WAL", "synchronous=FULL", "busy_timeout=5000", "foreign_keys=ON", "trusted_schema=OFF")
_MIGRATIONS = {
    1: (
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
    ),
}
_WRITE = f"""INSERT INTO clients ({ROW_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (name) DO UPDATE SET version=excluded.version, key=excluded.key, body=excluded.body,
    checksum=excluded.checksum, updated=excluded.updated WHERE excluded.version > clients.version"""
_REMOVE = "DELETE FROM clients WHERE name IN (?1, CAST(?1 AS TEXT), ?2)"
_LEAST_FREE = 1 << 20  # bytes: with less, an error of writing is a full disk
_MOST_VARIABLES = 500  # of one statement; some builds of SQLite allow 999


class SqliteStore:
    """Records in the file ``clients.db`` of ``folder``; with ``anew``, an existing file is set aside first."""

    shared: ClassVar[bool] = False

    def __init__(self, folder: Path, anew: bool = False) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._held = ExitStack()
        self._held.enter_context(lock(folder / f"{STORE_FILE}.lock", f"store {folder}"))
        try:
            self._path = folder / STORE_FILE
            if anew:
                set_aside(self._path)
            make_private(self._path)
            self._database = connect(self._path)
            self._held.callback(self._database.close)
            migrate(self._database, self._path)
        except BaseException:
            self._held.close()
            raise
        self._loaded = False

    def claim(self, task: str) -> str:
        """Return the fingerprint of the task that the store belongs to; a new store belongs to ``task``."""
        with explain_errors(self._path), transaction(self._database):
            self._database.execute("INSERT OR IGNORE INTO about VALUES ('task', ?)", [task])
            owner: str = self._database.execute("SELECT value FROM about WHERE name = 'task'").fetchone()[0]
        return owner

    def secret(self) -> int:
        """Return the secret of the store; it is drawn at the first call."""
        with explain_errors(self._path), transaction(self._database):
            self._database.execute("INSERT OR IGNORE INTO about VALUES ('secret', ?)", [new_secret()])
            return secret_of(self._database.execute("SELECT value FROM about WHERE name = 'secret'").fetchone()[0])

    def read(self, clients: Sequence[str]) -> dict[str, Record]:
        """Return the sound records of ``clients``, by client."""
        records = {}
        with explain_errors(self._path):
            for start in range(0, len(clients), _MOST_VARIABLES):
                names = [name_bytes(client) for client in clients[start : start + _MOST_VARIABLES]]
                marks = ",".join("?" * len(names))
                rows = self._database.execute(f"SELECT {ROW_COLUMNS} FROM clients WHERE name IN ({marks})", names)
                records.update({record.client: record for record in sound_records(rows)})
        return records

    def write(self, records: Sequence[Record]) -> frozenset[str]:
        """Store records, all or none; return when they are durable."""
        with explain_errors(self._path), transaction(self._database):
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
        with explain_errors(self._path), transaction(self._database):
            return self._database.execute(_REMOVE, [name_bytes(client), _number(client)]).rowcount > 0

    def changes(self) -> Iterator[Record | Removal]:
        """Yield every record, in the order of joining, at the first call; later nothing, as nobody else writes."""
        if not self._loaded:
            with explain_errors(self._path):
                yield from map(record_of, self._database.execute(f"SELECT {ROW_COLUMNS} FROM clients ORDER BY id"))
            self._loaded = True

    def rows(self) -> list[StoredRow]:
        """Return every row as it is stored, damaged or not."""
        with explain_errors(self._path):
            return self._database.execute(f"SELECT {ROW_COLUMNS} FROM clients ORDER BY id").fetchall()

    def is_empty(self) -> bool:
        """Return whether there is no record."""
        with explain_errors(self._path):
            return self._database.execute("SELECT 1 FROM clients LIMIT 1").fetchone() is None

    def replace(self, task: str | None, records: Iterable[Record], secret: int | None = None) -> None:
        """Put ``records`` of ``task`` in the place of everything, all or nothing."""
        statement = f"INSERT INTO clients ({ROW_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)"
        with explain_errors(self._path), transaction(self._database):
            self._database.execute("DELETE FROM clients")
            self._database.execute("DELETE FROM about")
            if task is not None:
                self._database.execute("INSERT INTO about VALUES ('task', ?)", [task])
            if secret is not None:
                self._database.execute("INSERT INTO about VALUES ('secret', ?)", [secret_text(secret)])
            self._database.executemany(statement, (record.row for record in records))

    def close(self) -> None:
        """Close the file and let another process have it."""
        self._held.close()


def files_of(path: Path) -> tuple[Path, Path, Path]:
    """Return a database file and what belongs to it while it is open."""
    return path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")


def make_private(path: Path) -> None:
    """Make a database file, or one that is there and ours, readable for its owner only: it holds uploads and secrets.

    SQLite gives the files that it makes beside it the same permissions.
    """
    path.touch(mode=0o600)
    for file in files_of(path):
        with suppress(FileNotFoundError, PermissionError):  # another owner's
            file.chmod(0o600)


def set_aside(path: Path) -> None:
    """Rename a database file and the files beside it, so that nothing in them is lost."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
    for file in files_of(path):
        if file.exists():
            file.rename(file.with_name(f"{file.name}.aside-{stamp}"))


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


def connect(path: Path) -> sqlite3.Connection:
    """Open a database file with the settings of a store."""
    with explain_errors(path):
        database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    database.text_factory = stored_text
    try:
        with explain_errors(path):
            _set_up(database, path)
    except BaseException:
        database.close()
        raise
    return database


def stored_text(content: bytes) -> str:
    """Return a text of a database; one that is damaged gives the same bytes again."""
    return content.decode(errors="surrogateescape")


def _number(client: str) -> float | bytes:
    """Return the number that the name of a client is; the name itself where it is none."""
    for kind in (int, float):
        with suppress(ValueError, OverflowError):
            number = kind(client)
            if -(2**63) <= number < 2**63:
                return number
    return name_bytes(client)


def _set_up(database: sqlite3.Connection, path: Path) -> None:
    for setting in _SETTINGS:
        database.execute(f"PRAGMA {setting}")
    if database.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        raise refuse(str(path), "a file system without shared memory", "a local disk: SQLite needs a write-ahead log")


def migrate(database: sqlite3.Connection, path: Path) -> None:
    """Bring the tables to the version of this program; a file of another program or a later version is refused."""
    with explain_errors(path):
        version = database.execute("PRAGMA user_version").fetchone()[0]
        owner = database.execute("PRAGMA application_id").fetchone()[0]
        tables = database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if tables and owner != _APPLICATION:
            raise refuse(str(path), "a database of another program", "a folder of its own for the store")
        if version > STORE_SCHEMA:
            raise refuse(str(path), f"a store of version {version}", f"at most {STORE_SCHEMA}: a newer latte wrote it")
        for step in range(version + 1, STORE_SCHEMA + 1):
            database.execute("BEGIN IMMEDIATE")
            for statement in _MIGRATIONS[step]:
                database.execute(statement)
            database.execute(f"PRAGMA application_id={_APPLICATION}")
            database.execute(f"PRAGMA user_version={step}")
            database.execute("COMMIT")


@contextmanager
def explain_errors(path: Path) -> Iterator[None]:
    """Turn the errors of SQLite on the file ``path`` into ours."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        name = getattr(error, "sqlite_errorname", "")
        if name == "SQLITE_FULL" or (name.startswith("SQLITE_IOERR") and _is_full(path)):
            raise StoreFullError(f"{path}: {error}") from error
        if isinstance(error, sqlite3.OperationalError):
            raise StoreUnavailableError(f"{path}: {error}") from error
        raise DamagedStoreError(
            f"{path}: got a damaged database ({error}), want a backup: latte store restore --replace"
        ) from error


def _is_full(path: Path) -> bool:
    return shutil.disk_usage(path.parent).free < _LEAST_FREE
