"""Copies of stores: a backup while servers run, and a store from a backup."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from ..coordination.sqlite_store import SqliteStore, set_aside
from ..coordination.upload_records import DamagedStoreError, Store, record_of, secret_of
from ..errors import refuse
from .audit import Audit
from .backup_file import Backup, BackupEnd, open_backup, write_backup
from .store_contents import open_contents
from .token_file import TOKEN_FILE
from .tokens import Token, TokenStore
from .upload_store import POSTGRES, open_tokens


@dataclass(frozen=True, slots=True)
class StorePlace:
    """Where a store is: a folder or the address of a database, and the ``folder`` of tokens and audit log."""

    store: str | Path
    folder: Path

    @property
    def is_postgres(self) -> bool:
        """Whether it is a database server."""
        return str(self.store).startswith(POSTGRES)

    def __str__(self) -> str:  # an address may have a password
        return "the database" if self.is_postgres else str(self.store)


@dataclass(frozen=True, slots=True)
class Restoration:
    """How to restore: ``overwrite`` a store that is not empty; ``keep_tokens`` leaves existing tokens as they are."""

    overwrite: bool = False
    keep_tokens: bool = False


def back_up(place: StorePlace, out: Path) -> BackupEnd:
    """Write a store, and the tokens that belong to it, to the file ``out``; servers may go on meanwhile."""
    with open_contents(place.store, place.folder) as contents:
        return write_backup(out, contents.task, contents.tokens, map(record_of, contents.rows), contents.secret)


def restore(source: Path, place: StorePlace, how: Restoration) -> Backup:
    """Fill a store from the backup ``source``; nothing changes unless all of the backup is sound.

    Tokens are restored first, so that the restored store is never without the tokens that protect it.
    """
    with open_backup(source) as backup:
        store = _open_alone(place, how)
        try:
            if not how.overwrite and not store.is_empty():
                raise refuse("store", f"{place}, which has clients", "an empty one, or --replace")
            if not how.keep_tokens:
                _restore_tokens(backup, place, how)
            _fill(store, backup)
        except DamagedStoreError:
            store.close()
            if not how.overwrite:
                raise
            store = SqliteStore(Path(place.store), anew=True)
            _fill(store, backup)
        finally:
            store.close()
        Audit(place.folder).note("store restored", "", f"{backup.clients} clients from {source}", always=True)
        return backup


def _fill(store: Store, backup: Backup) -> None:
    secret = backup.head.secret
    store.replace(backup.head.task, backup.records(), None if secret is None else secret_of(secret))


def _open_alone(place: StorePlace, how: Restoration) -> Store:
    """Open a store on which no server runs."""
    if place.is_postgres:
        from .postgres_store import PostgresStore

        return PostgresStore(str(place.store), alone=True)
    try:
        return SqliteStore(Path(place.store))
    except DamagedStoreError:
        if not how.overwrite:
            raise
        return SqliteStore(Path(place.store), anew=True)


def _restore_tokens(backup: Backup, place: StorePlace, how: Restoration) -> None:
    with closing(_sound_tokens(place, how)) as tokens:
        known = tokens.tokens()
        if known and not how.overwrite:
            raise refuse("store", f"{place}, which has tokens", "an empty one, --replace or --keep-tokens")
        tokens.replace(still_revoked(backup.tokens, known))


def _sound_tokens(place: StorePlace, how: Restoration) -> TokenStore:
    """Open the tokens; with ``overwrite``, a file that cannot be read is set aside."""
    try:
        tokens = open_tokens(place.store, place.folder)
        tokens.tokens()
        return tokens
    except DamagedStoreError:
        if not how.overwrite:
            raise
        set_aside(place.folder / TOKEN_FILE)
        return open_tokens(place.store, place.folder)


def still_revoked(tokens: Iterable[Token], known: Mapping[str, Token]) -> list[Token]:
    """Return ``tokens``; a token that was revoked since the backup stays revoked."""
    revoked = {token.id: token.revoked for token in known.values() if token.revoked is not None}
    return [replace(token, revoked=revoked[token.id]) if token.id in revoked else token for token in tokens]
