"""Everything in a store as it was at one moment, read beside the servers that work on it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from ..coordination.sqlite_store import (
    STORE_FILE,
    STORE_SCHEMA,
    CommitMark,
    check_present,
    explain_errors,
    file_faults,
    read_tokens,
    stored_text,
)
from ..coordination.upload_records import ROW_COLUMNS, StoredRow, in_chunks
from ..errors import refuse
from .tokens import Token, tokens_of
from .upload_store import POSTGRES

if TYPE_CHECKING:
    from .postgres_link import Database


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
    rows: Iterator[StoredRow]
    faults: Sequence[str] = ()
    database: sqlite3.Connection | None = None


@contextmanager
def open_contents(place: str | Path, examine: bool = False) -> Iterator[Contents]:
    """Yield what is in the store at ``place``, a folder or the address of a database; servers may run meanwhile.

    With ``examine``, the structure of a database file is checked, too.
    """
    with _postgres(str(place)) if str(place).startswith(POSTGRES) else _sqlite(Path(place), examine) as contents:
        yield contents


@contextmanager
def _sqlite(store: Path, examine: bool) -> Iterator[Contents]:
    path = store / STORE_FILE
    marked = CommitMark(path).read()  # before the file: what is written meanwhile is not missing
    check_present(path, marked)
    if not path.is_file():
        raise refuse("store", f"{store}, where there is no {STORE_FILE}", "the folder given to latte serve --data")
    with closing(open_to_read(path)) as database, explain_errors(path):
        database.execute("BEGIN")  # and nothing that others write from here on is seen
        if database.execute("PRAGMA user_version").fetchone()[0] != STORE_SCHEMA:
            raise refuse(str(path), "a store of another version", "one that latte serve has opened once")
        yield _contents(database, path, file_faults(database, marked) if examine else ())


def open_to_read(path: Path, options: str = "") -> sqlite3.Connection:
    """Open a file only to read it: its owner may have it open, so its lock is not needed."""
    with explain_errors(path):
        database = sqlite3.connect(f"file:{quote(str(path))}?mode=ro{options}", uri=True, isolation_level=None)
    database.text_factory = stored_text
    return database


def _contents(database: sqlite3.Connection, path: Path, faults: Sequence[str]) -> Contents:
    facts = dict(database.execute("SELECT name, value FROM about"))
    tokens = tokens_of(read_tokens(database, path))
    rows = database.execute(f"SELECT {ROW_COLUMNS} FROM clients ORDER BY id")
    made = "tokens" in facts
    return Contents(facts.get("task"), facts.get("secret"), list(tokens.values()), made, rows, faults, database)


@contextmanager
def _postgres(url: str) -> Iterator[Contents]:
    from .postgres_link import Link
    from .postgres_queries import TOKENS_CHANGE
    from .postgres_queries import read_tokens as stored_tokens
    from .postgres_tables import get_about

    link = Link(url, create=False)
    try:
        with link.snapshot() as database:
            task, secret, made = (get_about(database, name) for name in ("task", "secret", TOKENS_CHANGE))
            tokens = list(tokens_of(stored_tokens(database)).values())
            yield Contents(task, secret, tokens, made is not None, _rows(database))
    finally:
        link.close()


def _rows(database: Database) -> Iterator[StoredRow]:
    """Yield all rows, some at a time."""
    sizes = database.execute("SELECT id, octet_length(body) FROM latte_clients ORDER BY id").fetchall()
    query = f"SELECT {ROW_COLUMNS} FROM latte_clients WHERE id = ANY(%s) ORDER BY id"
    for chunk in in_chunks(sizes, lambda row: int(row[1])):
        yield from database.cursor(binary=True).execute(query, [[row[0] for row in chunk]])
