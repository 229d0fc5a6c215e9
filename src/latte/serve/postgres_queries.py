"""The statements of the store in PostgreSQL, and what they return."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..coordination.upload_records import ROW_COLUMNS, Record, in_chunks, name_text
from .postgres_tables import get_about, set_about

if TYPE_CHECKING:
    from .postgres_link import Database

REMEMBERED = "1 hour"  # a removal is remembered by name; a server that looks less often compares all names
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
    """Return the clients whose records were written."""
    from psycopg.errors import DeadlockDetected

    columns = [list(column) for column in zip(*(record.row for record in records), strict=True)]
    for attempt in range(_DEADLOCKS):
        try:
            return {name_text(row[0]) for row in fetch(database, _UPSERT, columns)}
        except DeadlockDetected:
            if attempt + 1 == _DEADLOCKS:
                raise
    raise AssertionError("the last attempt raises")


def replace_records(database: Database, facts: Mapping[str, str | None], records: Iterable[Record]) -> None:
    """Put ``records`` and ``facts`` (None: no such fact) in the place of everything, all or nothing."""
    with database.transaction():
        database.execute("SET LOCAL statement_timeout = 0")
        for table in ("latte_clients", "latte_removals"):
            database.execute(f"DELETE FROM {table}")
        database.execute("DELETE FROM latte_about WHERE name = ANY(%s)", [list(facts)])
        for name, value in facts.items():
            if value is not None:
                set_about(database, name, value)
        for chunk in in_chunks(records, lambda record: len(record.body)):
            write_records(database, chunk)
