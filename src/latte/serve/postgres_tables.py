"""The tables of a store in PostgreSQL, and how they become those of a later version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import refuse

if TYPE_CHECKING:
    from .postgres_link import Database

TABLES_VERSION = 1  # latte_about, "schema"
_TABLES_LOCK = 0x4C617475 << 32  # "Latu"; the lower half is the number of the schema
_CURRENT = "xid8 NOT NULL DEFAULT pg_current_xact_id()"  # the transaction that wrote the row
_MIGRATIONS = {
    1: (
        "CREATE TABLE latte_about (name text PRIMARY KEY, value text NOT NULL)",
        f"""CREATE TABLE latte_clients (
            id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            name bytea NOT NULL UNIQUE,
            version bigint NOT NULL,
            key bytea NOT NULL,
            body bytea NOT NULL,
            checksum bigint NOT NULL,
            updated double precision NOT NULL,
            xid {_CURRENT}
        )""",
        "ALTER TABLE latte_clients ALTER COLUMN body SET STORAGE EXTERNAL",  # vectors cannot be compressed
        "CREATE INDEX latte_clients_xid ON latte_clients (xid)",
        f"""CREATE TABLE latte_removals (
            name bytea PRIMARY KEY,
            removed timestamptz NOT NULL DEFAULT now(),
            xid {_CURRENT}
        )""",
        "CREATE INDEX latte_removals_xid ON latte_removals (xid)",
        f"""CREATE TABLE latte_cleaned (  -- one row: the latest removal that is not remembered any more
            id integer PRIMARY KEY DEFAULT 1 CHECK (id = 1),
            latest xid8 NOT NULL,
            xid {_CURRENT}
        )""",
        """CREATE TABLE latte_tokens (
            id text PRIMARY KEY,
            role text NOT NULL,
            client bytea NOT NULL,
            digest bytea NOT NULL,
            created double precision NOT NULL,
            revoked double precision
        )""",
    ),
}
_FUTURE = ">= pg_snapshot_xmax(pg_current_snapshot())"


def migrate(database: Database, schema: int, name: str) -> None:
    """Bring the tables to the version of this program, one process at a time; a later version is refused."""
    version = stored_version(database)
    if version > TABLES_VERSION:
        raise refuse(name, f"a store of version {version}", f"at most {TABLES_VERSION}: a newer latte wrote it")
    if version == TABLES_VERSION:
        return
    with database.transaction():
        database.execute("SET LOCAL lock_timeout = 0")
        database.execute("SELECT pg_advisory_xact_lock(%s)", [_TABLES_LOCK | schema])
        for step in range(stored_version(database) + 1, TABLES_VERSION + 1):
            for statement in _MIGRATIONS[step]:
                database.execute(statement)
            set_about(database, "schema", str(step))


def stored_version(database: Database) -> int:
    """Return the version of the tables; 0 if there are none.

    The catalogue itself is read, because ``to_regclass`` may not know yet of a table that another process has just
    made.
    """
    query = "SELECT FROM pg_class WHERE relname = 'latte_about' AND pg_table_is_visible(oid)"
    if database.execute(query).fetchone() is None:
        return 0
    return int(get_about(database, "schema") or 0)


def get_about(database: Database, name: str) -> str | None:
    """Return a fact about the store."""
    row = database.execute("SELECT value FROM latte_about WHERE name = %s", [name]).fetchone()
    return None if row is None else str(row[0])


def set_about(database: Database, name: str, value: str) -> None:
    """Set a fact about the store."""
    database.execute(
        "INSERT INTO latte_about VALUES (%s, %s) ON CONFLICT (name) DO UPDATE SET value = excluded.value", [name, value]
    )


def renew_xids(database: Database) -> None:
    """Replace transaction numbers that lie in the future of this server: a dump from another server brings them.

    Rows with such a number would be new at every look until this server reaches it.
    """
    for table in ("latte_clients", "latte_removals"):
        database.execute(f"UPDATE {table} SET xid = DEFAULT WHERE xid {_FUTURE}")
    database.execute(f"DELETE FROM latte_cleaned WHERE latest {_FUTURE} OR xid {_FUTURE}")
