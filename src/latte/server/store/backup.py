"""Copies of stores: a backup while servers run, and a store from a backup.

A backup is a store of SQLite in one file, whatever the store was: SQLite's own copy of ``clients.db``, or a new file
with the rows of PostgreSQL. Two facts in its table ``about`` make it a backup: ``backup``, the time, and ``digest``,
the SHA-256 of everything else in it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from ...core.validate import client_name
from ...errors import InputError, refuse
from ...files.atomic import replacing
from . import base, sqlite
from .audit import Audit
from .tokens import ROLES, Token, require_tokens, tokens_of

_WANT = "one that latte store backup wrote"
_MADE = ("backup", "digest")  # facts that a backup has and a store does not


@dataclass(frozen=True, slots=True)
class Contents:
    """A store at one moment. A new store has no ``task`` (a fingerprint) and no ``secret``.

    ``rows`` can be read once, in the order of joining; they are not compared with their checksums. ``made``: tokens
    were made at some time. ``faults`` are those of the file, and ``database`` is the file, if it is one of SQLite.
    """

    task: str | None
    secret: str | None
    tokens: Sequence[Token]
    made: bool
    rows: Iterator[base.StoredRow]
    faults: Sequence[str] = ()
    database: sqlite3.Connection | None = None


@contextmanager
def open_contents(place: str | Path, examine: bool = False) -> Iterator[Contents]:
    """Yield what is in the store at ``place``, a folder or the address of a database; servers may run meanwhile.

    With ``examine``, the structure of a database file is checked, too.
    """
    with _postgres(str(place)) if base.is_postgres(place) else _sqlite(Path(place), examine) as contents:
        yield contents


@contextmanager
def _sqlite(store: Path, examine: bool) -> Iterator[Contents]:
    path = store / sqlite.STORE_FILE
    marked = sqlite.CommitMark(path).read()  # before the file: what is written meanwhile is not missing
    sqlite.check_present(path, marked)
    if not path.is_file():
        raise refuse("store", f"{store}, where there is no {path.name}", "the folder given to latte serve --folder")
    with closing(open_to_read(path)) as database, sqlite.explain_errors(path):
        database.execute("BEGIN")  # and nothing that others write from here on is seen
        if database.execute("PRAGMA user_version").fetchone()[0] != sqlite.STORE_SCHEMA:
            raise refuse(str(path), "a store of another version", "one that latte serve has opened once")
        faults = sqlite.file_faults(database, marked) if examine else ()
        facts = dict(database.execute("SELECT name, value FROM about"))
        tokens = list(tokens_of(sqlite.read_tokens(database, path)).values())
        rows = database.execute(f"SELECT {base.ROW_COLUMNS} FROM clients ORDER BY id")
        yield Contents(facts.get("task"), facts.get("secret"), tokens, "tokens" in facts, rows, faults, database)


def open_to_read(path: Path, options: str = "") -> sqlite3.Connection:
    """Open a file only to read it: its owner may have it open, so its lock is not needed."""
    with sqlite.explain_errors(path):
        database = sqlite3.connect(f"file:{quote(str(path))}?mode=ro{options}", uri=True, isolation_level=None)
    database.text_factory = sqlite.stored_text
    return database


@contextmanager
def _postgres(url: str) -> Iterator[Contents]:
    from .postgres import READ_ROWS, TOKENS_CHANGE, fetch
    from .postgres import read_tokens as stored_tokens
    from .postgres_link import Link, get_about

    link = Link(url, create=False)
    try:
        with link.snapshot() as database:
            task, secret, made = (get_about(database, name) for name in ("task", "secret", TOKENS_CHANGE))
            tokens = list(tokens_of(stored_tokens(database)).values())
            sizes = database.execute("SELECT id, octet_length(body) FROM latte_clients ORDER BY id").fetchall()
            chunks = ([row[0] for row in chunk] for chunk in base.in_chunks(sizes, lambda row: int(row[1])))
            rows = (row for ids in chunks for row in fetch(database, READ_ROWS, [ids]))
            yield Contents(task, secret, tokens, made is not None, rows)
    finally:
        link.close()


@dataclass(frozen=True, slots=True)
class StorePlace:
    """Where a store is: a folder or the address of a database, and the ``folder`` of the audit log."""

    store: str | Path
    folder: Path

    @property
    def is_postgres(self) -> bool:
        """Whether it is a database server."""
        return base.is_postgres(self.store)

    def __str__(self) -> str:  # an address may have a password
        return "the database" if self.is_postgres else str(self.store)


@dataclass(frozen=True, slots=True)
class Restoration:
    """How to restore: ``overwrite`` a store that is not empty; ``keep_tokens`` leaves existing tokens as they are."""

    overwrite: bool = False
    keep_tokens: bool = False


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup that was checked; ``clients`` is their number, and :meth:`records` yields their uploads.

    ``made``: tokens were made for the store. ``created`` is the time of the backup in seconds since 1970.
    """

    path: Path
    created: float
    task: str | None
    secret: int | None
    tokens: Sequence[Token]
    made: bool
    clients: int
    database: sqlite3.Connection

    def records(self) -> Iterator[base.Record]:
        """Yield the uploads; a file that has changed since it was checked is refused at its end."""
        with _explain(self.path):
            yield from map(base.record_of, self.database.execute(f"SELECT {base.ROW_COLUMNS} FROM clients ORDER BY id"))
            _check_digest(self.database, self.path)


# --- write --------------------------------------------------------------------------------------------------


def back_up(place: StorePlace, out: Path) -> tuple[int, int]:
    """Write a store to the file ``out``; servers may go on meanwhile. Return the numbers of clients and of tokens.

    A store that is damaged is refused: a backup that lacks something would replace one that does not.
    """
    if out.exists() and not out.is_file():
        raise refuse("backup", f"{out}, which is no regular file", "the name of a file")
    with open_contents(place.store, examine=True) as contents, replacing(out, private=True) as part:
        if contents.faults:
            raise sqlite.damaged(Path(place.store) / sqlite.STORE_FILE, contents.faults[0])
        sqlite.make_private(part)
        try:
            with closing(sqlite3.connect(part, isolation_level=None)) as copy, sqlite.explain_errors(out):
                copy.text_factory = sqlite.stored_text
                if contents.database is not None:
                    contents.database.backup(copy)
                    copy.execute("PRAGMA journal_mode=DELETE")  # one file
                else:
                    _copy(contents, copy, part)
                return _seal(copy)
        finally:
            for file in sqlite.files_of(part)[1:]:
                with suppress(OSError):
                    file.unlink()


def _copy(contents: Contents, copy: sqlite3.Connection, path: Path) -> None:
    """Write what PostgreSQL has to a new file."""
    sqlite.make_tables(copy, path)
    with sqlite.transaction(copy):
        facts = [("task", contents.task), ("secret", contents.secret)]
        copy.executemany("INSERT INTO about VALUES (?, ?)", [(name, value) for name, value in facts if value])
        if contents.made:
            sqlite.put_tokens(copy, [token.row for token in contents.tokens])
        copy.executemany(f"INSERT INTO clients ({base.ROW_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)", contents.rows)


def _seal(copy: sqlite3.Connection) -> tuple[int, int]:
    """Check every row of a copy, and make it a backup; what clients have removed is not in its free pages."""
    for row in copy.execute(f"SELECT {base.ROW_COLUMNS} FROM clients"):
        base.record_of(row)
    copy.execute("DELETE FROM about WHERE name = 'digest'")
    copy.execute("INSERT OR REPLACE INTO about VALUES ('backup', ?)", [repr(time.time())])
    copy.execute("INSERT INTO about VALUES ('digest', ?)", [_digest(copy)])
    copy.execute("VACUUM")
    clients, tokens = (copy.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in ("clients", "tokens"))
    return clients, tokens


def _digest(database: sqlite3.Connection) -> str:
    """Return the SHA-256 of all that a backup holds; an upload is in it with its checksum."""
    digest = hashlib.sha256()
    for query in (
        "SELECT name, value FROM about WHERE name <> 'digest' ORDER BY name",
        "SELECT * FROM tokens ORDER BY id",
        "SELECT id, name, version, checksum, updated FROM clients ORDER BY id",
    ):
        for row in database.execute(query):
            digest.update(repr(row).encode(errors="surrogateescape"))
        digest.update(b";")
    return digest.hexdigest()


# --- read ---------------------------------------------------------------------------------------------------


@contextmanager
def open_backup(path: Path) -> Iterator[Backup]:
    """Check the whole file, then yield the backup; a damaged file is refused."""
    log = sqlite.files_of(path)[1]
    if log.exists() and log.stat().st_size:
        raise refuse(str(path), "a store that is in use", _WANT)
    with ExitStack() as stack:
        with _explain(path):
            database = stack.enter_context(closing(open_to_read(path, "&immutable=1")))
            backup = _checked(database, path)
        yield backup


def _checked(database: sqlite3.Connection, path: Path) -> Backup:
    database.execute("PRAGMA trusted_schema=OFF")
    version, owner = (database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("user_version", "application_id"))
    if owner != sqlite.APPLICATION or version != sqlite.STORE_SCHEMA:
        raise refuse(str(path), "a database of another program or version", _WANT)
    if database.execute("SELECT 1 FROM sqlite_master WHERE type NOT IN ('table', 'index')").fetchone():
        raise refuse(str(path), "a database with views or triggers", _WANT)
    if faults := sqlite.file_faults(database):
        raise refuse(str(path), f"a damaged file ({faults[0]})", "the file as it was written")
    _check_digest(database, path)
    facts = dict(database.execute("SELECT name, value FROM about"))
    clients = 0
    for row in database.execute(f"SELECT {base.ROW_COLUMNS} FROM clients"):
        record = base.record_of(row)
        if record.version < 1 or client_name(record.client) != record.client:
            raise refuse(str(path), f"version {record.version} of client {record.client!r}", _WANT)
        clients += 1
    rows = sqlite.read_tokens(database, path)
    if not all(map(_is_token, rows)):
        raise refuse(str(path), "a token that cannot be one", _WANT)
    try:
        created, secret = float(facts["backup"]), None if "secret" not in facts else int(facts["secret"], 16)
    except ValueError:
        raise refuse(str(path), "facts that cannot be", _WANT) from None
    tokens = list(tokens_of(rows).values())
    return Backup(path, created, facts.get("task"), secret, tokens, "tokens" in facts, clients, database)


def _check_digest(database: sqlite3.Connection, path: Path) -> None:
    facts = dict(database.execute("SELECT name, value FROM about"))
    if not facts.keys() >= set(_MADE):
        raise refuse(str(path), "a store, but no backup", _WANT)
    if facts["digest"] != _digest(database):
        raise refuse(str(path), "a damaged file (its SHA-256 does not match)", "the file as it was written")


def _is_token(row: Sequence[object]) -> bool:
    """Return whether a row has the types of a token: SQLite stores any type in any column."""
    kinds = (str, str, bytes, bytes, float, float | None)
    return all(map(isinstance, row, kinds)) and row[1] in ROLES


@contextmanager
def _explain(path: Path) -> Iterator[None]:
    """Turn what SQLite and damaged rows raise into a refusal of the backup ``path``."""
    try:
        yield
    except (sqlite3.Error, base.DamagedRecordError, base.DamagedStoreError) as error:
        raise refuse(str(path), f"a damaged file, or no backup ({error})", _WANT) from None
    except OSError as error:  # SQLite could not open or read it
        raise refuse(str(path), f"a file that cannot be read ({error})", _WANT) from None


# --- restore ------------------------------------------------------------------------------------------------


def restore(source: Path, place: StorePlace, how: Restoration) -> tuple[Backup, bool]:
    """Fill a store from the backup ``source``; nothing changes unless all of the backup is sound.

    What is known to be revoked stays revoked, in the store and in the backup, and a server for which tokens were made
    asks for tokens. Return also whether revocations since the backup may be unknown here.
    """
    with open_backup(source) as backup:
        store, left, whole = _open_alone(place, how)
        known = list[base.TokenRow]()

        def choose(rows: list[base.TokenRow]) -> list[base.TokenRow]:
            known[:] = rows
            if rows and not how.overwrite and not how.keep_tokens:
                raise refuse("store", f"{place}, which has tokens", "an empty one, --replace or --keep-tokens")
            chosen = tokens_of(rows) if how.keep_tokens else {token.id: token for token in backup.tokens}
            for token in (*backup.tokens, *left, *tokens_of(rows).values()):
                if token.revoked is not None:  # a token that is revoked anywhere is revoked
                    chosen[token.id] = dataclasses.replace(chosen.get(token.id, token), revoked=token.revoked)
            return [token.row for token in chosen.values()]

        with closing(store):
            if not how.overwrite and not store.is_empty():
                raise refuse("store", f"{place}, which has clients", "an empty one, or --replace")
            if backup.made:
                require_tokens(place.folder)  # first: the restored store is never open
            store.replace(backup.task, backup.records(), backup.secret, choose, backup.made or bool(left))
        Audit(place.folder).note("store restored", "", f"{backup.clients} clients from {source}", always=True)
        return backup, bool(backup.tokens) and not (known and whole)


def _open_alone(place: StorePlace, how: Restoration) -> tuple[base.Store, list[Token], bool]:
    """Open a store on which no server runs; return also what can be read of the tokens of a damaged one.

    The last is whether the store was whole.
    """
    if place.is_postgres:
        from .postgres import PostgresStore

        return PostgresStore(str(place.store), alone=True), [], True
    folder = Path(place.store)
    try:
        return sqlite.SqliteStore(folder), [], True
    except base.DamagedStoreError:
        if not how.overwrite:
            raise
        left = readable_tokens(folder / sqlite.STORE_FILE)
        return sqlite.SqliteStore(folder, anew=True), left, False


def readable_tokens(path: Path) -> list[Token]:
    """Return the tokens that can be read from a damaged file."""
    rows = list[base.TokenRow]()
    with suppress(sqlite3.Error, InputError, OSError), closing(open_to_read(path)) as database:
        rows.extend(row for row in sqlite.read_tokens(database, path, damaged_too=False) if _is_token(row))
    return list(tokens_of(rows).values())
