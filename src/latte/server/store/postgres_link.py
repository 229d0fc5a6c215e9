"""A connection to PostgreSQL that comes back by itself: its settings, its locks, and its errors as ours."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from ...errors import need, refuse
from .base import StoreFullError, StoreUnavailableError

if TYPE_CHECKING:
    from psycopg import Connection

    Database: TypeAlias = Connection[tuple[Any, ...]]

T = TypeVar("T")
LockMode: TypeAlias = Literal["nothing", "shared", "alone"]

_SCHEME = "postgresql://"
_OLDEST = 130_000  # PostgreSQL 13, the first with xid8
_STORE_LOCK = 0x4C617474 << 32  # "Latt"; the lower half is the number of the schema
_DEFAULTS = {  # unless the address says otherwise
    "connect_timeout": "5",
    "application_name": "latte",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "15000",
}
_PATIENCE = "30s"  # for one statement
LOCK_PATIENCE = "500ms"  # for a row or table that somebody holds: all clients of a server wait meanwhile
_LOOKS, _MOMENT = 20, 0.1  # seconds: PostgreSQL may notice a little later that a server has ended
_FULL = "53100"
_READ_ONLY = "25006"  # the server has become a standby
_SESSION = {  # of every connection, whatever the address, the role or the server say
    "statement_timeout": f"'{_PATIENCE}'",
    "lock_timeout": f"'{LOCK_PATIENCE}'",
    "synchronous_commit": "CASE current_setting('synchronous_commit') WHEN 'remote_apply'"
    " THEN 'remote_apply' ELSE 'on' END",
    "tcp_keepalives_idle": "'30'",  # the lock of a machine that is gone is free after a minute
    "tcp_keepalives_interval": "'10'",
    "tcp_keepalives_count": "'3'",
}
_SETTINGS = f"""SELECT current_setting('fsync'), pg_is_in_recovery(),
    (SELECT oid::bigint FROM pg_namespace WHERE nspname = current_schema()),
    {", ".join(f"set_config('{name}', {value}, false)" for name, value in _SESSION.items())}"""
_HOLDERS = """SELECT DISTINCT a.application_name || ' from ' || coalesce(host(a.client_addr), 'this machine')
    || ' since ' || date_trunc('second', a.backend_start) FROM pg_locks l JOIN pg_stat_activity a USING (pid)
    WHERE l.locktype = 'advisory' AND l.granted AND l.database = (SELECT oid FROM pg_database
    WHERE datname = current_database()) AND (l.classid::bigint << 32 | l.objid::bigint) = %s AND l.objsubid = 1
    AND l.pid <> pg_backend_pid()"""

TABLES_VERSION = 1  # latte_about, "schema"
_TABLES_LOCK = 0x4C617475 << 32  # "Latu"; the lower half is the number of the schema
_CURRENT = "xid8 NOT NULL DEFAULT pg_current_xact_id()"  # the transaction that wrote the row
_TABLES = (
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
)
_FUTURE = ">= pg_snapshot_xmax(pg_current_snapshot())"


def make_tables(database: Database, schema: int, name: str) -> None:
    """Make the tables where there are none, one process at a time; those of another version are refused."""
    if not stored_version(database):
        with database.transaction():
            database.execute("SET LOCAL lock_timeout = 0")
            database.execute("SELECT pg_advisory_xact_lock(%s)", [_TABLES_LOCK | schema])
            if not stored_version(database):  # another process may have been first
                for statement in _TABLES:
                    database.execute(statement)
                set_about(database, "schema", str(TABLES_VERSION))
    if (version := stored_version(database)) != TABLES_VERSION:
        raise refuse(name, f"a store of version {version}", f"version {TABLES_VERSION}: another latte wrote it")


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


class Link:
    """A connection that is made again after it was lost; ``number`` counts the connections.

    Each connection holds a lock. Servers hold a "shared" lock; a restoration has to be "alone", and its lock excludes
    all servers. Without ``create``, a database without our tables is refused. ``check`` is called with every new
    connection, and may refuse it. One thread at a time may use a link.
    """

    def __init__(
        self,
        url: str,
        hold: LockMode = "nothing",
        create: bool = True,
        check: Callable[[Database], None] = lambda database: None,
    ) -> None:
        self._psycopg = need("psycopg", "postgres")
        self._hold, self._create, self._check = hold, create, check
        self._address, self.name = self._parse(url)
        self._database: Database | None = None
        self.number = 0
        self.run(lambda database: None)

    def run(self, work: Callable[[Database], T], again: bool = False) -> T:
        """Return ``work(connection)``; every statement is a transaction of its own.

        With ``again``, the work is repeated once on a new connection if the old connection was lost. Use it only for
        work that changes nothing, or that may be done twice.
        """
        number, connected = self.number, self._database is not None
        try:
            return self._run(work)
        except StoreUnavailableError:
            if again and connected and self.number == number and self._database is None:
                return self._run(work)
            raise

    @contextmanager
    def snapshot(self) -> Iterator[Database]:
        """Yield the connection in a transaction that only reads, and sees the database as it was at one moment."""
        self.run(lambda database: None, again=True)
        database = self._database
        assert database is not None
        with self._explain_errors():
            database.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            try:
                database.execute("SET LOCAL statement_timeout = 0")
                yield database
            finally:
                if not database.closed:
                    database.execute("ROLLBACK")

    def close(self) -> None:
        """Close the connection."""
        if self._database is not None:
            self._database.close()
            self._database = None

    def _run(self, work: Callable[[Database], T]) -> T:
        with self._explain_errors():
            if self._database is None:
                database: Database = self._psycopg.connect(self._address, autocommit=True)
                try:
                    self._prepare(database)
                except BaseException:
                    database.close()
                    raise
                self._database, self.number = database, self.number + 1
            return work(self._database)

    # --- connecting ---------------------------------------------------------------------------------------

    def _parse(self, url: str) -> tuple[str, str]:
        """Return the address with our defaults, and a name of the database that tells no password."""
        info = self._psycopg.conninfo
        try:
            parts = info.conninfo_to_dict(url)
        except self._psycopg.Error:  # its text may repeat the password
            raise refuse(
                "store", "an address that cannot be read", f"{_SCHEME}USER@HOST/DATABASE, see docs/deploy.md"
            ) from None
        shown = f"{_SCHEME}{parts.get('host', '')}/{parts.get('dbname', '')}"
        missing = {key: value for key, value in _DEFAULTS.items() if key not in parts}
        return info.make_conninfo(url, **missing), shown

    def _prepare(self, database: Database) -> None:
        """Check what durability needs, take the lock, and see to the tables."""
        if database.info.server_version < _OLDEST:
            raise refuse(self.name, f"PostgreSQL {database.info.server_version // 10_000}", "13 or later")
        fsync, standby, schema, *_ = database.execute(_SETTINGS).fetchone() or ()
        if fsync != "on":
            raise refuse(self.name, f"fsync={fsync}", "fsync=on: an upload is acknowledged only when it is on disk")
        if schema is None:
            raise refuse(self.name, "no schema to put tables into", "one that exists: CREATE SCHEMA, or search_path")
        if standby:
            raise StoreUnavailableError(f"{self.name}: a standby, which cannot be written")
        if not self._create and not stored_version(database):
            raise refuse(self.name, "a database without a store", "the one given to latte serve --store")
        self._take_lock(database, _STORE_LOCK | schema)
        try:
            make_tables(database, schema, self.name)
        except self._psycopg.errors.InsufficientPrivilege as error:
            raise refuse(self.name, str(error).partition("\n")[0], "a role that may create tables here") from None
        # Numbers of transactions that lie in the future of this server come with a dump from another server. Rows with
        # such a number would be new at every look until this server reaches it.
        for table in ("latte_clients", "latte_removals"):
            database.execute(f"UPDATE {table} SET xid = DEFAULT WHERE xid {_FUTURE}")
        database.execute(f"DELETE FROM latte_cleaned WHERE latest {_FUTURE} OR xid {_FUTURE}")
        self._check(database)

    def _take_lock(self, database: Database, key: int) -> None:
        if self._hold == "nothing":
            return
        function = "pg_try_advisory_lock" + ("_shared" if self._hold == "shared" else "")
        for look in range(1 if self._hold == "shared" else _LOOKS):
            time.sleep(_MOMENT if look else 0.0)
            if (database.execute(f"SELECT {function}(%s)", [key]).fetchone() or (False,))[0]:
                return
        holders = "; ".join(row[0] for row in database.execute(_HOLDERS, [key])) or "which, it does not say"
        if self._hold == "shared":
            raise StoreUnavailableError(f"{self.name}: is being restored ({holders})")
        raise refuse(self.name, f"a process at work on it: {holders}", "to wait until it has ended")

    # --- errors -------------------------------------------------------------------------------------------

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        """Turn the errors of PostgreSQL into ours; close a connection that was lost."""
        try:
            yield
        except self._psycopg.Error as error:
            code = getattr(error, "sqlstate", None)
            if self._database is not None and (self._database.closed or code == _READ_ONLY):
                self.close()
            text = f"{self.name}: {' '.join(str(error).split())}"
            if code == _FULL:
                raise StoreFullError(text) from error
            if code == _READ_ONLY or isinstance(error, (self._psycopg.OperationalError, self._psycopg.InterfaceError)):
                raise StoreUnavailableError(text) from error
            raise refuse(self.name, " ".join(str(error).split()), "a store that latte has made") from error
