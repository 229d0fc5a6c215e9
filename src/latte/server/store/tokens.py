"""Bearer tokens: which requests are admitted, and as which client.

A token is ``latte_ID_SECRET``. Only the SHA-256 of the secret is stored (256 random bits need no slow hash), and it is
compared in constant time.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ...core.types import TeachingRights
from ...core.validate import client_name
from ...errors import refuse
from ...files.atomic import write_text
from . import sqlite
from .base import TokenRow, name_bytes, name_text

PREFIX = "latte"
ADMIN = "admin"
CLIENT = "client"
TEACHER = "teacher"  # a client whose labels count in full
MUTED = "muted"  # no token that anybody has: the labels of the client do not count
ROLES = ADMIN, CLIENT, TEACHER, MUTED
REQUIRED_FILE = "tokens.required"  # in the folder of a server: it asks for tokens, whatever becomes of the store
_REQUIRED = "Tokens were made for the server of this folder. It asks for them as long as this file is here.\n"
FRESH = 0.02  # seconds for which tokens are believed when a request arrives; before its upload is stored they are read
_LONGEST = 256  # characters of what is presented


@dataclass(frozen=True, slots=True)
class Token:
    """A token as it is stored. ``role`` is one of ``ROLES``; a token of an admin belongs to no client."""

    id: str
    role: str
    client: str
    digest: bytes
    created: float
    revoked: float | None = None

    @property
    def is_client(self) -> bool:
        """Whether a client identifies itself with it."""
        return self.role in (CLIENT, TEACHER)

    @property
    def row(self) -> TokenRow:
        """The columns of the token in a database."""
        return self.id, self.role, name_bytes(self.client), self.digest, self.created, self.revoked


def tokens_of(rows: Iterable[TokenRow]) -> dict[str, Token]:
    """Return the tokens in rows, by id."""
    return {row[0]: Token(row[0], row[1], name_text(row[2]), bytes(row[3]), row[4], row[5]) for row in rows}


class TokenStore(ABC):
    """Durable tokens."""

    @abstractmethod
    def tokens(self, newest: bool = False) -> Mapping[str, Token]:
        """Return all tokens by id, as they were a moment ago; with ``newest``, as they are now."""

    def at_hand(self, newest: bool = False) -> Mapping[str, Token] | None:
        """Return what :meth:`tokens` returns; None if that would take waiting, to be done in a thread."""
        return self.tokens(newest)

    def made(self) -> bool:
        """Return whether a token was ever made; it stays so, also if none is left."""
        return self._fact("tokens") is not None

    def served(self) -> bool:
        """Return whether a server has ever used the store that the tokens belong to."""
        return self._fact("task") is not None

    @abstractmethod
    def _fact(self, name: str) -> str | None:
        """Return a fact about the store; that named "tokens" is another one after every change of tokens."""

    @abstractmethod
    def add(self, *tokens: Token) -> None:
        """Store new tokens."""

    @abstractmethod
    def revoke(self, ids: Iterable[str]) -> None:
        """Make tokens invalid."""

    @abstractmethod
    def close(self) -> None:
        """Release what the store holds."""


def new_token(client: str | None, role: str = CLIENT) -> tuple[str, Token]:
    """Return a new token of a client (None: of an admin) in plain text, and as it is stored."""
    name = "" if client is None else client_name(client)
    identity, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
    token = Token(identity, ADMIN if client is None else role, name, _digest(secret), time.time())
    return f"{PREFIX}_{identity}_{secret}", token


def rights_of(tokens: Mapping[str, Token]) -> TeachingRights:
    """Return whose labels count in full, and whose not at all."""
    by_role: dict[str, set[str]] = {TEACHER: set(), MUTED: set()}
    for token in tokens.values():
        if token.role in by_role and token.revoked is None:
            by_role[token.role].add(token.client)
    return TeachingRights(frozenset(by_role[TEACHER]), frozenset(by_role[MUTED]))


def check_token(presented: str, tokens: Mapping[str, Token]) -> Token | None:
    """Return the valid token that ``presented`` is; None for any other text."""
    prefix, _, rest = presented[:_LONGEST].partition("_")
    identity, _, secret = rest.partition("_")
    token = tokens.get(identity)
    digest = token.digest if token else _digest("")
    same = hmac.compare_digest(_digest(secret), digest)  # also without such a token: the time reveals nothing
    valid = token and same and prefix == PREFIX and token.role != MUTED and token.revoked is None
    return token if valid else None


def valid_tokens(tokens: Mapping[str, Token], client: str | None) -> list[Token]:
    """Return the tokens of a client (None: of admins) that are not revoked; it is an error if there are none."""
    mine = [
        token
        for token in tokens.values()
        if (token.is_client and token.client == client if client else token.role == ADMIN) and token.revoked is None
    ]
    if not mine:
        raise refuse(
            "token", f"no valid token of {client!r}" if client else "no valid admin token", "one of `latte token list`"
        )
    return mine


def require_tokens(folder: Path) -> None:
    """Write down in the folder of a server that tokens were made, for the case that its store is lost or replaced."""
    with suppress(OSError):  # no room: the store has the fact, too
        if not (folder / REQUIRED_FILE).exists():
            write_text(folder / REQUIRED_FILE, _REQUIRED)


def are_required(folder: Path) -> bool:
    """Return whether a folder says that tokens were made for its server."""
    return (folder / REQUIRED_FILE).exists()


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode(errors="surrogateescape")).digest()


class TokenFile(TokenStore):
    """The tokens in the file ``clients.db`` of ``folder``, over a connection of their own."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / sqlite.STORE_FILE
        self._mark = sqlite.CommitMark(self._path)
        sqlite.check_present(self._path, self._mark.read())
        self._database = sqlite.open_database(self._path)
        try:
            self._place = sqlite.PlaceCheck(self._path)
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
        change = self._fact("tokens")
        if change is not None and change != self._change:
            with sqlite.explain_errors(self._path):
                self._tokens, self._change = tokens_of(sqlite.read_tokens(self._database, self._path)), change
        self._fresh_until = time.monotonic() + FRESH
        return self._tokens

    def _fact(self, name: str) -> str | None:
        with sqlite.explain_errors(self._path):
            row = self._database.execute("SELECT value FROM about WHERE name = ?", [name]).fetchone()
        return None if row is None else str(row[0])

    def add(self, *tokens: Token) -> None:
        """Store new tokens."""
        with sqlite.explain_errors(self._path), sqlite.counted(self._database, self._mark):
            sqlite.put_tokens(self._database, [token.row for token in tokens])
        self._fresh_until = 0.0

    def revoke(self, ids: Iterable[str]) -> None:
        """Make tokens invalid."""
        now, chosen = time.time(), set(ids)
        with sqlite.explain_errors(self._path), sqlite.counted(self._database, self._mark):
            known = sqlite.read_tokens(self._database, self._path)
            sqlite.put_tokens(self._database, [(*row[:5], now) for row in known if row[0] in chosen])
        self._fresh_until = 0.0

    def close(self) -> None:
        """Close the file."""
        self._mark.close()
        self._database.close()
