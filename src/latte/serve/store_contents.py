"""Everything in a store as it was at one moment, read beside the servers that work on it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from ..coordination.sqlite_store import STORE_FILE, STORE_SCHEMA, explain_errors, stored_text
from ..coordination.upload_records import ROW_COLUMNS, StoredRow, in_chunks
from ..errors import refuse
from .token_file import TOKEN_FILE
from .token_file import read_tokens as tokens_of_file
from .tokens import Token
from .upload_store import POSTGRES

if TYPE_CHECKING:
    from .postgres_link import Database


@dataclass(frozen=True, slots=True)
class Contents:
    """A store at one moment. A new store has no ``task`` (a fingerprint) and no ``secret``.

    ``rows`` can be read once, in the order of joining; they are not compared with their checksums. ``faults`` are those
    of the file.
    """

    task: str | None
    tokens: Sequence[Token]
    rows: Iterator[StoredRow]
    faults: Sequence[str] = ()
    secret: str | None = None


@contextmanager
def open_contents(place: str | Path, folder: Path, examine: bool = False) -> Iterator[Contents]:
    """Yield what is in the store at ``place``, with the tokens that belong to it; servers may run meanwhile.

    With ``examine``, the structure of a database file is checked, too.
    """
    source = _postgres(str(place)) if str(place).startswith(POSTGRES) else _sqlite(Path(place), folder, examine)
    with source as contents:
        yield contents


# --- SQLite -------------------------------------------------------------------------------------------------


@contextmanager
def _sqlite(store: Path, folder: Path, examine: bool) -> Iterator[Contents]:
    path = store / STORE_FILE
    if not path.is_file():
        raise refuse("store", f"{store}, where there is no {STORE_FILE}", "the folder given to latte serve --data")
    with closing(_open(path)) as database, explain_errors(path):
        database.execute("BEGIN")  # and nothing that others write from here on is seen
        if database.execute("PRAGMA user_version").fetchone()[0] != STORE_SCHEMA:
            raise refuse(str(path), "a store of another version", "one that latte serve has opened once")
        facts = dict(database.execute("SELECT name, value FROM about"))
        faults = _faults(database) if examine else ()
        rows = database.execute(f"SELECT {ROW_COLUMNS} FROM clients ORDER BY id")
        yield Contents(facts.get("task"), _file_tokens(folder / TOKEN_FILE), rows, faults, facts.get("secret"))


def _open(path: Path) -> sqlite3.Connection:
    """Open a file only to read it: its owner may have it open, so its lock is not needed."""
    with explain_errors(path):
        database = sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, isolation_level=None)
    database.text_factory = stored_text
    return database


def _file_tokens(path: Path) -> list[Token]:
    if not path.is_file():
        return []
    with closing(_open(path)) as database, explain_errors(path):
        return list(tokens_of_file(database).values())


def _faults(database: sqlite3.Connection) -> list[str]:
    return [row[0] for row in database.execute("PRAGMA integrity_check") if row[0] != "ok"]


# --- PostgreSQL ---------------------------------------------------------------------------------------------


@contextmanager
def _postgres(url: str) -> Iterator[Contents]:
    from .postgres_link import Link
    from .postgres_tables import get_about
    from .postgres_tokens import read_tokens

    link = Link(url, create=False)
    try:
        with link.snapshot() as database:
            task, secret = get_about(database, "task"), get_about(database, "secret")
            yield Contents(task, list(read_tokens(database).values()), _rows(database), secret=secret)
    finally:
        link.close()


def _rows(database: Database) -> Iterator[StoredRow]:
    """Yield all rows, some at a time."""
    sizes = database.execute("SELECT id, octet_length(body) FROM latte_clients ORDER BY id").fetchall()
    query = f"SELECT {ROW_COLUMNS} FROM latte_clients WHERE id = ANY(%s) ORDER BY id"
    for chunk in in_chunks(sizes, lambda row: int(row[1])):
        yield from database.cursor(binary=True).execute(query, [[row[0] for row in chunk]])
