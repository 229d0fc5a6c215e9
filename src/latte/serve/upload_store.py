"""Where the service keeps uploads: the store and the tokens at a place that is named on the command line.

What a store is, and what it stores, is in :mod:`latte.coordination.upload_records`; its names are here, too.
"""

from __future__ import annotations

from pathlib import Path

from ..coordination.upload_records import (
    CHECK,
    CHUNK,
    COLUMNS,
    DamagedRecordError,
    DamagedStoreError,
    Record,
    Removal,
    Row,
    Store,
    StoreFullError,
    StoreUnavailableError,
    in_chunks,
    name_bytes,
    name_text,
    new_secret,
    record_of,
    secret_of,
    secret_text,
    sound_records,
)
from ..core.validate import refuse
from .tokens import TokenStore

__all__ = [
    "CHECK",
    "CHUNK",
    "COLUMNS",
    "POSTGRES",
    "DamagedRecordError",
    "DamagedStoreError",
    "Record",
    "Removal",
    "Row",
    "Store",
    "StoreFullError",
    "StoreUnavailableError",
    "in_chunks",
    "name_bytes",
    "name_text",
    "new_secret",
    "open_store",
    "open_tokens",
    "record_of",
    "secret_of",
    "secret_text",
    "sound_records",
]
POSTGRES = ("postgresql://", "postgres://")


def open_store(place: str | Path) -> Store:
    """Return the store at ``place``: a folder, or the address of a PostgreSQL database."""
    if str(place).startswith(POSTGRES):
        from .postgres_store import PostgresStore

        return PostgresStore(str(place))
    if "://" in str(place):
        raise refuse("store", repr(str(place)), f"a folder, or {POSTGRES[0]}USER@HOST/DATABASE")
    from ..coordination.sqlite_store import SqliteStore

    return SqliteStore(Path(place))


def open_tokens(place: str | Path, folder: Path) -> TokenStore:
    """Return the tokens that belong to the store at ``place``; those of a file are in ``folder``."""
    if str(place).startswith(POSTGRES):
        from .postgres_tokens import PostgresTokens

        return PostgresTokens(str(place))
    from .token_file import TokenFile

    return TokenFile(folder)
