"""The store of several servers: plain PostgreSQL, 13 or later, without extensions.

Each server has its own exchange in memory and follows what the others write. A number from a sequence cannot tell what
is new: transactions commit in another order than they take numbers, and a reader that has seen 8 never looks for the 7
that comes later. So every row has the number of the transaction that wrote it (``xid``), and a reader remembers the
snapshot of its last look, which says exactly which transactions it has seen. What is committed before a look begins is
part of that look.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from .postgres_link import Hold, Link
from .postgres_tables import get_about, set_about
from .upload_store import (
    COLUMNS,
    Record,
    Removal,
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

if TYPE_CHECKING:
    from .postgres_link import Database

REMEMBERED = "1 hour"  # that a removal is remembered by name; who looks less often compares all names
_CLEAN_EVERY = 600.0  # seconds
_DEADLOCKS = 3  # attempts: two servers may write the same two clients in opposite order

# what a look needs to know of a row: not the upload itself
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
_UPSERT = f"""INSERT INTO latte_clients ({COLUMNS})
    SELECT * FROM unnest(%b::bytea[], %b::bigint[], %b::bytea[], %b::bytea[], %b::bigint[], %b::float8[])
    ON CONFLICT (name) DO UPDATE SET version = excluded.version, key = excluded.key, body = excluded.body,
    checksum = excluded.checksum, updated = excluded.updated, xid = pg_current_xact_id()
    WHERE excluded.version > latte_clients.version RETURNING name"""
_REMOVE = """WITH gone AS (DELETE FROM latte_clients WHERE name = %b RETURNING name)
    INSERT INTO latte_removals (name) SELECT name FROM gone
    ON CONFLICT (name) DO UPDATE SET removed = now(), xid = pg_current_xact_id() RETURNING name"""
_CLEAN = f"""WITH old AS (DELETE FROM latte_removals WHERE removed < now() - interval '{REMEMBERED}' RETURNING xid)
    INSERT INTO latte_cleaned (latest) SELECT xid FROM old ORDER BY xid DESC LIMIT 1 ON CONFLICT (id)
    DO UPDATE SET latest = greatest(latte_cleaned.latest, excluded.latest), xid = pg_current_xact_id()"""


class News(NamedTuple):
    """A row that may be new: without ``id``, there is none of this name. ``removed``: it was, perhaps long ago."""

    id: int | None
    client: str
    version: int
    checksum: int
    size: int
    removed: bool


class FeedLook(NamedTuple):
    """What one statement has seen. ``escaped``: removals that the last look has not seen may have been cleaned away."""

    snapshot: str
    escaped: bool
    news: list[News]


class PostgresStore:
    """Records in the tables ``latte_clients`` and ``latte_removals`` of the database at ``url``.

    One database, or one schema of it (``?options=-csearch_path%3DNAME``), is one federation. ``alone``: no server runs
    on it meanwhile.
    """

    shared: ClassVar[bool] = True

    def __init__(self, url: str, alone: bool = False) -> None:
        hold: Hold = "alone" if alone else "shared"
        self._link = Link(url, hold)
        self._seen: dict[str, tuple[int, int]] = {}  # version and checksum of what the caller of changes() has
        self._last: str | None = None  # the snapshot of the last look
        self._looked_by = 0  # the number of the connection of that look
        self._cleaned_at = float("-inf")
        self._task: str | None = None
        self._secret: str | None = None

    def claim(self, task: str) -> str:
        """Return the fingerprint of the task that the store belongs to: ``task``, if it is new."""
        self._task = self._link.run(lambda database: _claim(database, "task", task), again=True)
        return self._task

    def secret(self) -> int:
        """Return the secret of the store; one that has none gets one."""
        self._secret = self._link.run(lambda database: _claim(database, "secret", new_secret()), again=True)
        return secret_of(self._secret)

    def read(self, clients: Sequence[str]) -> dict[str, Record]:
        """Return the records of those of ``clients`` that have a sound one."""
        names = [name_bytes(client) for client in clients]
        query = f"SELECT {COLUMNS} FROM latte_clients WHERE name = ANY(%b)"
        rows = self._link.run(lambda database: _fetch(database, query, [names]), again=True) if names else []
        return {record.client: record for record in sound_records(rows)}

    def write(self, records: Sequence[Record]) -> frozenset[str]:
        """Store records, all or none; return when they are durable."""
        if not records:
            return frozenset()
        written = self._link.run(lambda database: _write(database, records))
        for record in records:
            if record.client in written:
                self._seen[record.client] = record.version, record.checksum
        return frozenset(record.client for record in records) - written

    def remove(self, client: str) -> bool:
        """Remove the record of a client, durably."""
        name = name_bytes(client)
        was_there = self._link.run(lambda database: database.execute(_REMOVE, [name]).fetchone() is not None)
        self._seen.pop(client, None)
        return was_there

    def close(self) -> None:
        """Close the connection."""
        self._link.close()

    def is_empty(self) -> bool:
        """Return whether there is no record."""
        return not self._link.run(lambda database: _fetch(database, "SELECT 1 FROM latte_clients LIMIT 1"))

    def replace(self, task: str | None, records: Iterable[Record], secret: int | None = None) -> None:
        """Put ``records`` of ``task`` in the place of everything, all or nothing."""
        facts = {"task": task, "secret": None if secret is None else secret_text(secret)}
        self._link.run(lambda database: _replace(database, facts, records))

    # --- what others write --------------------------------------------------------------------------------

    def changes(self) -> Iterator[Record | Removal]:
        """Yield what changed since the last call, in the order of joining; at the first call, every record.

        A caller that stops half way gets the same again.
        """
        look, everything = self._look()
        differing = [news for news in look.news if self._differs(news)]
        gone = {news.client for news in differing if self._lost(news)}
        if everything:
            gone |= self._seen.keys() - {news.client for news in look.news}
        for client in gone:
            yield Removal(client)
        seen = {}
        for chunk in in_chunks([news for news in differing if news.id is not None], lambda news: news.size):
            for record in self._records([news.id for news in chunk]):
                yield record
                seen[record.client] = record.version, record.checksum
        for client in gone:
            self._seen.pop(client, None)
        self._seen.update(seen)
        self._last = look.snapshot
        self._clean()

    def _look(self) -> tuple[FeedLook, bool]:
        """Return what may be new, and whether that is everything: at first, and where something may have escaped.

        The numbers of transactions mean nothing where a new connection leads to another server, or to one that was
        restored; and a removal that we have not seen may have been cleaned away.
        """
        if self._last is not None:
            look = self._link.run(lambda database: _look(database, self._last), again=True)
            if self._link.number == self._looked_by and not look.escaped:
                return look, False
        look = self._link.run(lambda database: _look(database, None), again=True)
        self._check_facts()
        self._looked_by = self._link.number
        return look, True

    def _check_facts(self) -> None:
        """Refuse a store that was replaced by another one while there was no connection."""
        owner = self._link.run(lambda database: get_about(database, "task"))
        if self._task is not None and owner != self._task:
            raise StoreUnavailableError(f"{self._link.name}: is the store of another task now")
        secret = self._link.run(lambda database: get_about(database, "secret"))
        if self._secret is not None and secret != self._secret:
            raise StoreUnavailableError(f"{self._link.name}: has another secret now; start this server again")

    def _differs(self, news: News) -> bool:
        if news.id is None:
            return news.client in self._seen
        return self._seen.get(news.client) != (news.version, news.checksum)

    def _lost(self, news: News) -> bool:
        """Return whether what the caller has of a client is to be forgotten, rather than replaced by a later upload."""
        known = self._seen.get(news.client)
        return known is not None and (news.removed or news.version <= known[0])

    def _records(self, ids: Sequence[int | None]) -> list[Record]:
        """Return the records of rows, later ones where they were written again; who was removed is left out.

        A damaged one is refused at the first look, and left out later.
        """
        query = f"SELECT {COLUMNS} FROM latte_clients WHERE id = ANY(%b) ORDER BY id"
        rows = self._link.run(lambda database: _fetch(database, query, [ids]))
        return list(map(record_of, rows) if self._last is None else sound_records(rows))

    def _clean(self) -> None:
        """Forget old removals now and then; who has not seen one learns that it escaped, and compares all names."""
        if time.monotonic() - self._cleaned_at > _CLEAN_EVERY:
            self._link.run(lambda database: database.execute(_CLEAN))
            self._cleaned_at = time.monotonic()


# --- statements ---------------------------------------------------------------------------------------------


def _fetch(database: Database, query: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
    return database.cursor(binary=True).execute(query, values).fetchall()


def _claim(database: Database, name: str, value: str) -> str:
    """Return a fact about the store: ``value``, if there was none; all processes get the same."""
    database.execute("INSERT INTO latte_about VALUES (%s, %s) ON CONFLICT DO NOTHING", [name, value])
    return get_about(database, name) or value


def _look(database: Database, last: str | None) -> FeedLook:
    query = _EVERYTHING if last is None else _SINCE
    rows = database.cursor(binary=True).execute(query, {"last": last}).fetchall()
    news = [News(row[2], name_text(row[3]), *row[4:]) for row in rows if row[3] is not None]
    news.sort(key=lambda one: one.id or 0)
    return FeedLook(rows[0][0], rows[0][1], news)


def _write(database: Database, records: Sequence[Record]) -> set[str]:
    """Return the clients whose records were written."""
    from psycopg.errors import DeadlockDetected

    columns = [list(column) for column in zip(*(record.row for record in records), strict=True)]
    for attempt in range(_DEADLOCKS):
        try:
            return {name_text(row[0]) for row in _fetch(database, _UPSERT, columns)}
        except DeadlockDetected:
            if attempt + 1 == _DEADLOCKS:
                raise
    raise AssertionError("the last attempt raises")


def _replace(database: Database, facts: Mapping[str, str | None], records: Iterable[Record]) -> None:
    with database.transaction():
        database.execute("SET LOCAL statement_timeout = 0")
        for table in ("latte_clients", "latte_removals"):
            database.execute(f"DELETE FROM {table}")
        database.execute("DELETE FROM latte_about WHERE name = ANY(%s)", [list(facts)])
        for name, value in facts.items():
            if value is not None:
                set_about(database, name, value)
        for chunk in in_chunks(records, lambda record: len(record.body)):
            _write(database, chunk)
