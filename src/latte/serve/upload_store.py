"""Opens the store and the tokens at a place that is named on the command line: a folder or a database.

:mod:`latte.coordination.upload_records` has the interface of a store.
"""

from __future__ import annotations

from pathlib import Path

from ..coordination.upload_records import DamagedStoreError as DamagedStoreError
from ..coordination.upload_records import Store
from ..errors import refuse
from .tokens import TokenStore

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


def has_store(place: str | Path) -> bool:
    """Return whether there may be a store at ``place``: a folder without one is left as it is."""
    from ..coordination.sqlite_store import OLD_TOKENS, STORE_FILE

    return str(place).startswith(POSTGRES) or any(Path(place, name).exists() for name in (STORE_FILE, OLD_TOKENS))


def open_tokens(place: str | Path) -> TokenStore:
    """Return the tokens that belong to the store at ``place``."""
    if str(place).startswith(POSTGRES):
        from .postgres_tokens import PostgresTokens

        return PostgresTokens(str(place))
    from .token_file import TokenFile

    return TokenFile(Path(place))
