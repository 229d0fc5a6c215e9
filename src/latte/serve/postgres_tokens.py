"""Tokens in PostgreSQL, for several servers: read again at most once a second."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from threading import Lock
from typing import TYPE_CHECKING

from ..coordination.upload_records import StoreUnavailableError
from .postgres_link import Link
from .postgres_queries import TOKENS_CHANGE, insert_tokens, note_tokens, read_tokens
from .postgres_tables import get_about
from .tokens import Token, tokens_of

if TYPE_CHECKING:
    from .postgres_link import Database

FRESH = 1.0  # seconds for which tokens are believed


class PostgresTokens:
    """The table ``latte_tokens`` of the database at ``url``. Any number of threads may use it.

    What a server knows of tokens is at most a second old: a token that any process has revoked is refused after a
    second at most. While PostgreSQL does not answer, every request is refused.
    """

    def __init__(self, url: str) -> None:
        self._link, self._lock = Link(url), Lock()
        self._known: Mapping[str, Token] = {}
        self._change: str | None = None
        self._fresh_until = self._fails_until = 0.0

    def tokens(self, newest: bool = False) -> Mapping[str, Token]:
        """Return all tokens by id, as they were a second ago or later; with ``newest``, as they are now."""
        with self._lock:
            now = time.monotonic()
            if now < self._fails_until:  # threads that waited for the lock need not wait for the connection as well
                raise StoreUnavailableError(f"{self._link.name}: did not answer a moment ago")
            if newest or now >= self._fresh_until:
                try:
                    self._link.run(self._refresh, again=True)
                except StoreUnavailableError:
                    self._fails_until = time.monotonic() + FRESH
                    raise
                self._fresh_until = now + FRESH
            return self._known

    def at_hand(self, newest: bool = False) -> Mapping[str, Token] | None:
        """Return all tokens; None if that would take waiting."""
        return self._known if not newest and time.monotonic() < self._fresh_until else None

    def made(self) -> bool:
        """Return whether a token was ever made."""
        return self._fact(TOKENS_CHANGE) is not None

    def served(self) -> bool:
        """Return whether a server has used the store."""
        return self._fact("task") is not None

    def _fact(self, name: str) -> str | None:
        with self._lock:
            return self._link.run(lambda database: get_about(database, name), again=True)

    def add(self, *tokens: Token) -> None:
        """Store new tokens."""
        self._write(lambda database: insert_tokens(database, [token.row for token in tokens]))

    def revoke(self, ids: Iterable[str]) -> None:
        """Make tokens invalid."""
        query, values = "UPDATE latte_tokens SET revoked = %s WHERE id = ANY(%s)", (time.time(), list(ids))
        self._write(lambda database: database.execute(query, values))

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._link.close()

    def _refresh(self, database: Database) -> None:
        change = get_about(database, TOKENS_CHANGE)
        if change is None or change != self._change:
            self._known, self._change = tokens_of(read_tokens(database)), change

    def _write(self, work: Callable[[Database], object]) -> None:
        def change(database: Database) -> None:
            with database.transaction():
                note_tokens(database)  # first: writers wait for each other here
                work(database)

        with self._lock:
            self._link.run(change)
            self._fresh_until = 0.0
