"""The statements of the store in PostgreSQL, and what they return."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..coordination.upload_records import ROW_COLUMNS, Record, TokenRow, in_chunks, name_text
from .postgres_tables import get_about, set_about

if TYPE_CHECKING:
    from .postgres_link import Database

log = logging.getLogger("latte.serve")
REMEMBERED = "1 hour"  # a removal is remembered by name; a server that looks less often compares all names
TOKENS_CHANGE = "tokens"  # in latte_about: the last transaction that made or changed tokens
_TOKENS = "id, role, client, digest, created, revoked"
_GLANCE = "20ms"  # for each row of a batch of which one is held: 64 of them take 1.3 s at most
_DEADLOCKS = 3  # attempts: two servers may write the same two clients in opposite order

# the columns that a look needs: all but the upload itself
_LIGHT = "c.id, c.name, c.version, c.checksum, octet_length(c.body)"
_NEW = "xid >= pg_snapshot_xmin(%(last)s::pg_snapshot) AND NOT pg_visible_in_snapshot(xid, %(last)s::pg_snapshot)"
_ESCAPED = f"EXISTS (SELECT FROM latte_cleaned WHERE latest >= pg_snapshot_xmin(%(last)s::pg_snapshot) AND {_NEW})"
_HEAD = """SELECT (SELECT pg_current_snapshot()::text), {escaped}, news.*
    FROM (VALUES (1)) AS once LEFT JOIN ({news}) AS news ON true"""  # one statement is one snapshot
_EVERYTHING = _HEAD.format(escaped="false", news=f"SELECT {_LIGHT}, false AS removed FROM latte_clients c")
_SINCE = _HEAD.format(
    escaped=_ESCAPED,
    news=f"""SELECT {_LIGHT}, false AS removed FROM latte_clients c WHERE {_NEW}
    UNION ALL SELECT c.id, gone.name, c.version, c.checksum, octet_length(c.body), true
    FROM (SELECT name FROM latte_removals WHERE {_NEW}) AS gone LEFT JOIN latte_clients c USING (name)""",
)
_UPSERT = f"""INSERT INTO latte_clients ({ROW_COLUMNS})
    SELECT * FROM unnest(%b::bytea[], %b::bigint[], %b::bytea[], %b::bytea[], %b::bigint[], %b::float8[])
    ON CONFLICT (name) DO UPDATE SET version = excluded.version, key = excluded.key, body = excluded.body,
    checksum = excluded.checksum, updated = excluded.updated, xid = pg_current_xact_id()
    WHERE excluded.version > latte_clients.version RETURNING name"""
REMOVE = """WITH gone AS (DELETE FROM latte_clients WHERE name = %b RETURNING name)
    INSERT INTO latte_removals (name) SELECT name FROM gone
    ON CONFLICT (name) DO UPDATE SET removed = now(), xid = pg_current_xact_id() RETURNING name"""
CLEAN = f"""WITH old AS (DELETE FROM latte_removals WHERE removed < now() - interval '{REMEMBERED}' RETURNING xid)
    INSERT INTO latte_cleaned (latest) SELECT xid FROM old ORDER BY xid DESC LIMIT 1 ON CONFLICT (id)
    DO UPDATE SET latest = greatest(latte_cleaned.latest, excluded.latest), xid = pg_current_xact_id()"""


class News(NamedTuple):
    """A row that may be new. No ``id``: there is no row of this name now. ``removed``: there was a removal."""

    id: int | None
    client: str
    version: int
    checksum: int
    size: int
    removed: bool


class FeedLook(NamedTuple):
    """The result of one look. ``escaped``: removals since the last look may have been deleted before we saw them."""

    snapshot: str
    escaped: bool
    news: list[News]


def fetch(database: Database, query: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
    """Return all rows that a query gives."""
    return database.cursor(binary=True).execute(query, values).fetchall()


def claim_fact(database: Database, name: str, value: str) -> str:
    """Return a fact about the store, after setting it to ``value`` if it was not set: all processes get the same."""
    database.execute("INSERT INTO latte_about VALUES (%s, %s) ON CONFLICT DO NOTHING", [name, value])
    return get_about(database, name) or value


def read_feed(database: Database, last: str | None) -> FeedLook:
    """Return the rows that may be new since the snapshot ``last``; None: all rows."""
    query = _EVERYTHING if last is None else _SINCE
    rows = database.cursor(binary=True).execute(query, {"last": last}).fetchall()
    news = [News(row[2], name_text(row[3]), *row[4:]) for row in rows if row[3] is not None]
    news.sort(key=lambda row: row.id or 0)
    return FeedLook(rows[0][0], rows[0][1], news)


def write_records(database: Database, records: Sequence[Record]) -> set[str]:
    """Return the clients whose records were written; those whose rows somebody holds are left out."""
    from psycopg.errors import DeadlockDetected, LockNotAvailable

    for attempt in range(_DEADLOCKS):
        try:
            return _upsert(database, records)
        except LockNotAvailable:
            return _write_unlocked(database, records)
        except DeadlockDetected:
            if attempt + 1 == _DEADLOCKS:
                raise
    raise AssertionError("the last attempt raises")


def _upsert(database: Database, records: Sequence[Record]) -> set[str]:
    columns = [list(column) for column in zip(*(record.row for record in records), strict=True)]
    return {name_text(row[0]) for row in fetch(database, _UPSERT, columns)}


def _write_unlocked(database: Database, records: Sequence[Record]) -> set[str]:
    """Write records one by one, in one commit, without those whose rows somebody holds."""
    from psycopg.errors import LockNotAvailable

    written = set[str]()
    with database.transaction():
        database.execute(f"SET LOCAL lock_timeout = '{_GLANCE}'")
        for record in records:
            try:
                with database.transaction():
                    written |= _upsert(database, [record])
            except LockNotAvailable:
                log.warning("store: somebody holds the row of client %r", record.client)
    return written


def read_tokens(database: Database) -> list[TokenRow]:
    """Return all tokens."""
    rows = database.cursor(binary=True).execute(f"SELECT {_TOKENS} FROM latte_tokens ORDER BY created, id")
    return [(row[0], row[1], bytes(row[2]), bytes(row[3]), row[4], row[5]) for row in rows]


def insert_tokens(database: Database, rows: Iterable[TokenRow]) -> None:
    """Store new tokens."""
    with database.cursor() as cursor:
        cursor.executemany(f"INSERT INTO latte_tokens ({_TOKENS}) VALUES (%s, %s, %b, %b, %s, %s)", list(rows))


def note_tokens(database: Database) -> None:
    """Store the fact that tokens were made or changed. It is never removed."""
    number = database.execute("SELECT pg_current_xact_id()::text").fetchone() or ("",)
    set_about(database, TOKENS_CHANGE, str(number[0]))


def replace_records(
    database: Database,
    facts: Mapping[str, str | None],
    records: Iterable[Record],
    tokens: Callable[[list[TokenRow]], list[TokenRow]] | None,
    made: bool,
) -> None:
    """Put ``records``, ``facts`` (None: no such fact) and ``tokens`` in the place of everything, all or nothing."""
    with database.transaction():
        database.execute("SET LOCAL statement_timeout = 0")
        database.execute("SET LOCAL lock_timeout = 0")
        if tokens is not None:
            database.execute("SELECT FROM latte_about WHERE name = %s FOR UPDATE", [TOKENS_CHANGE])  # as all others do
            database.execute("LOCK TABLE latte_tokens IN SHARE ROW EXCLUSIVE MODE")
            rows = tokens(read_tokens(database))
            database.execute("DELETE FROM latte_tokens")
            if rows or made:
                insert_tokens(database, rows)
                note_tokens(database)
        for table in ("latte_clients", "latte_removals"):
            database.execute(f"DELETE FROM {table}")
        database.execute("DELETE FROM latte_about WHERE name = ANY(%s)", [list(facts)])
        for name, value in facts.items():
            if value is not None:
                set_about(database, name, value)
        for chunk in in_chunks(records, lambda record: len(record.body)):
            write_records(database, chunk)
