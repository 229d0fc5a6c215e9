"""Tokens in the file of an embedded store: commands may change them while a server runs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from ..coordination.sqlite_store import (
    STORE_FILE,
    CommitMark,
    PlaceCheck,
    check_present,
    counted,
    explain_errors,
    open_database,
    put_tokens,
    read_tokens,
)
from .tokens import Token, tokens_of

FRESH = 0.02  # seconds for which tokens are believed when a request arrives; before its upload is stored they are read
_CHANGE = "SELECT value FROM about WHERE name = 'tokens'"  # another one after every change of tokens


class TokenFile:
    """The tokens in the file ``clients.db`` of ``folder``, over a connection of their own."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / STORE_FILE
        self._mark = CommitMark(self._path)
        check_present(self._path, self._mark.read())
        self._database = open_database(self._path)
        try:
            self._place = PlaceCheck(self._path)
        except BaseException:
            self._database.close()
            raise
        self._change, self._tokens = "", dict[str, Token]()
        self._fresh_until = 0.0

    def tokens(self, newest: bool = False) -> Mapping[str, Token]:
        """Return all tokens by id, as they were a moment ago; with ``newest``, as they are now."""
        if not newest and time.monotonic() < self._fresh_until:
            return self._tokens
        self._place.check()
        with explain_errors(self._path):
            change = self._database.execute(_CHANGE).fetchone()
            if change is not None and change[0] != self._change:
                self._tokens, self._change = tokens_of(read_tokens(self._database, self._path)), change[0]
        self._fresh_until = time.monotonic() + FRESH
        return self._tokens

    def at_hand(self, newest: bool = False) -> Mapping[str, Token] | None:
        """Return all tokens: reading a file takes no waiting."""
        return self.tokens(newest)

    def made(self) -> bool:
        """Return whether a token was ever made."""
        with explain_errors(self._path):
            return self._database.execute(_CHANGE).fetchone() is not None

    def served(self) -> bool:
        """Return whether a server has used the store."""
        with explain_errors(self._path):
            return self._database.execute("SELECT 1 FROM about WHERE name = 'task'").fetchone() is not None

    def add(self, *tokens: Token) -> None:
        """Store new tokens."""
        with explain_errors(self._path), counted(self._database, self._mark):
            put_tokens(self._database, [token.row for token in tokens])
        self._fresh_until = 0.0

    def revoke(self, ids: Iterable[str]) -> None:
        """Make tokens invalid."""
        now, chosen = time.time(), set(ids)
        with explain_errors(self._path), counted(self._database, self._mark):
            known = read_tokens(self._database, self._path)
            put_tokens(self._database, [(*row[:5], now) for row in known if row[0] in chosen])
        self._fresh_until = 0.0

    def close(self) -> None:
        """Close the file."""
        self._mark.close()
        self._database.close()
