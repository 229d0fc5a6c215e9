"""Tokens in a file of their own beside the store: commands may change it while a server runs."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from ..coordination.sqlite_store import connect, explain_errors, make_private, transaction
from ..coordination.upload_records import name_bytes, name_text
from .tokens import Token

TOKEN_FILE = "tokens.db"
_TABLE = """CREATE TABLE IF NOT EXISTS tokens (
    id TEXT PRIMARY KEY,
    role TEXT NOT NULL,
    client BLOB NOT NULL,
    digest BLOB NOT NULL,
    created REAL NOT NULL,
    revoked REAL
)"""
_SETTLED = 1.0  # seconds: a file that was changed longer ago than this has another time after its next change
_NO_MARK: tuple[int, ...] = ()
_INSERT = "INSERT INTO tokens VALUES (?, ?, ?, ?, ?, ?)"


class TokenFile:
    """The file ``tokens.db`` of ``folder``; only its owner may read it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / TOKEN_FILE
        make_private(self._path)
        self._database = connect(self._path)
        try:
            with explain_errors(self._path):
                self._database.execute(_TABLE)
        except BaseException:
            self._database.close()
            raise
        self._version, self._tokens = -1, dict[str, Token]()
        self._log, self._mark = folder / f"{TOKEN_FILE}-wal", _NO_MARK

    def tokens(self, newest: bool = True) -> Mapping[str, Token]:
        """Return all tokens by id, as they are now; read again only if another connection has changed the file."""
        mark = _settled_mark(self._log)
        if self._version != -1 and mark != _NO_MARK and mark == self._mark:
            return self._tokens  # nobody has written since
        self._mark = mark
        with explain_errors(self._path):
            version = self._database.execute("PRAGMA data_version").fetchone()[0]
            if version != self._version:
                self._tokens, self._version = read_tokens(self._database), version
        return self._tokens

    def at_hand(self, newest: bool = True) -> Mapping[str, Token] | None:
        """Return all tokens: reading a file takes no waiting."""
        return self.tokens()

    def add(self, token: Token) -> None:
        """Store a new token."""
        with explain_errors(self._path):
            self._database.execute(_INSERT, _row(token))
        self._version = -1

    def revoke(self, ids: Iterable[str]) -> None:
        """Make tokens invalid."""
        now = time.time()
        with explain_errors(self._path):
            self._database.executemany(
                "UPDATE tokens SET revoked = ? WHERE id = ?", [(now, identity) for identity in ids]
            )
        self._version = -1

    def replace(self, tokens: Iterable[Token]) -> None:
        """Put ``tokens`` in the place of all that are there."""
        with explain_errors(self._path), transaction(self._database):
            self._database.execute("DELETE FROM tokens")
            self._database.executemany(_INSERT, map(_row, tokens))
        self._version = -1

    def close(self) -> None:
        """Close the file."""
        self._database.close()


def _settled_mark(log: Path) -> tuple[int, ...]:
    """Return a mark that changes with every commit: the inode, size and time of the write-ahead log.

    This takes a tenth of the time of a query to SQLite. A second commit within one tick of the file system's clock
    might not change the mark, so a log that was written just now has none.
    """
    try:
        about = log.stat()
    except OSError:  # nothing was written yet
        return _NO_MARK
    return (about.st_ino, about.st_size, about.st_mtime_ns) if time.time() - about.st_mtime > _SETTLED else _NO_MARK


def read_tokens(database: sqlite3.Connection) -> dict[str, Token]:
    """Return all tokens by id, in the order in which they were made."""
    rows = database.execute("SELECT id, role, client, digest, created, revoked FROM tokens ORDER BY created, id")
    return {row[0]: Token(row[0], row[1], name_text(row[2]), bytes(row[3]), row[4], row[5]) for row in rows}


def _row(token: Token) -> tuple[object, ...]:
    return token.id, token.role, name_bytes(token.client), token.digest, token.created, token.revoked
