"""The store of several servers: plain PostgreSQL, 13 or later, without extensions.

Each server has its own exchange in memory and follows what the others write. A number from a sequence cannot tell which
rows are new: transactions commit in another order than they take numbers, and a reader that has seen number 8 would
never look for number 7, which is committed later. So every row has the number of the transaction that wrote it
(``xid``), and a reader remembers the snapshot of its last look, which says exactly which transactions it has seen. A
look sees every row that was committed before it began.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from . import base
from .postgres_link import Link, get_about, set_about
from .tokens import Token, TokenStore, tokens_of

if TYPE_CHECKING:
    from .postgres_link import Database

log = logging.getLogger("latte.server")
REMEMBERED = "1 hour"  # a removal is remembered by name; a server that looks less often compares all names
TOKENS_CHANGE = "tokens"  # in latte_about: the last transaction that made or changed tokens
_TOKENS = "id, role, client, digest, created, revoked"
_GLANCE = "20ms"  # for each row of a batch of which one is held: 64 of them take 1.3 s at most
_DEADLOCKS = 3  # attempts: two servers may write the same two clients in opposite order
_CLEAN_EVERY = 600.0  # seconds
_TOKENS_FRESH = 1.0  # seconds for which tokens are believed

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
READ_ROWS = f"SELECT {base.ROW_COLUMNS} FROM latte_clients WHERE id = ANY(%b) ORDER BY id"
_UPSERT = f"""INSERT INTO latte_clients ({base.ROW_COLUMNS})
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


def read_feed(database: Database, last: str | None) -> FeedLook:
    """Return the rows that may be new since the snapshot ``last``; None: all rows."""
    query = _EVERYTHING if last is None else _SINCE
    rows = database.cursor(binary=True).execute(query, {"last": last}).fetchall()
    news = [News(row[2], base.name_text(row[3]), *row[4:]) for row in rows if row[3] is not None]
    news.sort(key=lambda row: row.id or 0)
    return FeedLook(rows[0][0], rows[0][1], news)


def write_records(database: Database, records: Sequence[base.Record]) -> set[str]:
    """Return the clients whose records were written; those whose rows somebody holds are left out."""
    from psycopg.errors import DeadlockDetected, LockNotAvailable

    for attempt in range(_DEADLOCKS):
        try:
            return _upsert(database, records)
        except LockNotAvailable:
            break  # one by one, in one commit
        except DeadlockDetected:
            if attempt + 1 == _DEADLOCKS:
                raise
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


def _upsert(database: Database, records: Sequence[base.Record]) -> set[str]:
    columns = [list(column) for column in zip(*(record.row for record in records), strict=True)]
    return {base.name_text(row[0]) for row in fetch(database, _UPSERT, columns)}


def read_tokens(database: Database) -> list[base.TokenRow]:
    """Return all tokens."""
    rows = database.cursor(binary=True).execute(f"SELECT {_TOKENS} FROM latte_tokens ORDER BY created, id")
    return [(row[0], row[1], bytes(row[2]), bytes(row[3]), row[4], row[5]) for row in rows]


def insert_tokens(database: Database, rows: Iterable[base.TokenRow]) -> None:
    """Store new tokens."""
    with database.cursor() as cursor:
        cursor.executemany(f"INSERT INTO latte_tokens ({_TOKENS}) VALUES (%s, %s, %b, %b, %s, %s)", list(rows))


def note_tokens(database: Database) -> None:
    """Store the fact that tokens were made or changed. It is never removed."""
    number = database.execute("SELECT pg_current_xact_id()::text").fetchone() or ("",)
    set_about(database, TOKENS_CHANGE, str(number[0]))


class PostgresStore(base.Store):
    """Records in the tables ``latte_clients`` and ``latte_removals`` of the database at ``url``.

    One database, or one schema of it (``?options=-csearch_path%3DNAME``), is one federation. With ``alone``, a database
    on which a server runs is refused.
    """

    shared: ClassVar[bool] = True

    def __init__(self, url: str, alone: bool = False) -> None:
        self._claimed: dict[str, str] = {}  # facts that have to stay as they are
        self._link = Link(url, "alone" if alone else "shared", check=self._check_facts)
        self._seen: dict[str, tuple[int, int]] = {}  # version and checksum of what the caller of changes() has
        self._last: str | None = None  # the snapshot of the last look
        self._looked_by = 0  # the number of the connection of that look
        self._cleaned_at = float("-inf")

    def _check_facts(self, database: Database) -> None:
        """Refuse a store that has changed hands while there was no connection, before anything is written."""
        facts = {name: get_about(database, name) for name in self._claimed}
        if facts.get("task") != self._claimed.get("task"):
            raise base.StoreUnavailableError(f"{self._link.name}: is the store of another task now")
        if facts.get("secret") != self._claimed.get("secret"):
            raise base.StoreUnavailableError(f"{self._link.name}: has another secret now; start this server again")

    def _claim_fact(self, name: str, value: str) -> str:
        def claim(database: Database) -> str:
            database.execute("INSERT INTO latte_about VALUES (%s, %s) ON CONFLICT DO NOTHING", [name, value])
            return get_about(database, name) or value

        self._claimed[name] = self._link.run(claim, again=True)
        return self._claimed[name]

    def read(self, clients: Sequence[str]) -> dict[str, base.Record]:
        """Return the sound records of ``clients``, by client."""
        names = [base.name_bytes(client) for client in clients]
        query = f"SELECT {base.ROW_COLUMNS} FROM latte_clients WHERE name = ANY(%b)"
        rows = self._link.run(lambda database: fetch(database, query, [names]), again=True) if names else []
        return {record.client: record for record in base.sound_records(rows)}

    def write(self, records: Sequence[base.Record]) -> frozenset[str]:
        """Store records, all or none; return when they are durable."""
        if not records:
            return frozenset()
        written = self._link.run(lambda database: write_records(database, records))
        for record in records:
            if record.client in written:
                self._seen[record.client] = record.version, record.checksum
        return frozenset(record.client for record in records) - written

    def remove(self, client: str) -> bool:
        """Remove the record of a client, durably."""
        name = base.name_bytes(client)
        was_there = self._link.run(lambda database: database.execute(REMOVE, [name]).fetchone() is not None)
        self._seen.pop(client, None)
        return was_there

    def close(self) -> None:
        """Close the connection."""
        self._link.close()

    def is_empty(self) -> bool:
        """Return whether there is no record."""
        return not self._link.run(lambda database: fetch(database, "SELECT 1 FROM latte_clients LIMIT 1"))

    def _replace(
        self, facts: base.Facts, records: Iterable[base.Record], tokens: base.TokenChoice | None, made: bool
    ) -> None:
        def fill(database: Database) -> None:
            with database.transaction():
                database.execute("SET LOCAL statement_timeout = 0")
                database.execute("SET LOCAL lock_timeout = 0")
                if tokens is not None:
                    query = "SELECT FROM latte_about WHERE name = %s FOR UPDATE"  # as all others do
                    database.execute(query, [TOKENS_CHANGE])
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
                for chunk in base.in_chunks(records, lambda record: len(record.body)):
                    write_records(database, chunk)

        self._link.run(fill)

    # --- what others write --------------------------------------------------------------------------------

    def changes(self) -> Iterator[base.Record | base.Removal]:
        """Yield what changed since the last call, in the order of joining; at the first call, every record.

        A caller that stops half way gets the same changes at the next call.
        """
        look, everything = self._look()
        known = self._seen
        differing = [
            news
            for news in look.news
            if (news.client in known if news.id is None else known.get(news.client) != (news.version, news.checksum))
        ]
        # removed since the last look: the caller has to forget these, even if they are back
        gone = {n.client for n in differing if n.client in known and (n.removed or n.version <= known[n.client][0])}
        if everything:
            gone |= known.keys() - {news.client for news in look.news}
        for client in gone:
            yield base.Removal(client)
        seen = {}
        for chunk in base.in_chunks([news for news in differing if news.id is not None], lambda news: news.size):
            ids = [news.id for news in chunk]
            rows = self._link.run(lambda database: fetch(database, READ_ROWS, [ids]))  # noqa: B023  it is called at once
            for record in map(base.record_of, rows) if self._last is None else base.sound_records(rows):
                yield record
                seen[record.client] = record.version, record.checksum
        for client in gone:
            self._seen.pop(client, None)
        self._seen.update(seen)
        self._last = look.snapshot
        if time.monotonic() - self._cleaned_at > _CLEAN_EVERY:  # who has not seen a removal notices, and compares all
            self._link.run(lambda database: database.execute(CLEAN))
            self._cleaned_at = time.monotonic()

    def _look(self) -> tuple[FeedLook, bool]:
        """Return a look, and whether it lists every row instead of those that may be new.

        It lists every row at the first call, after a new connection, and if a removal was deleted before we saw it. A
        new connection may lead to another database server, or to a restored one, where the numbers of transactions that
        we know mean nothing.
        """
        if self._last is not None:
            look = self._link.run(lambda database: read_feed(database, self._last), again=True)
            if self._link.number == self._looked_by and not look.escaped:
                return look, False
        look = self._link.run(lambda database: read_feed(database, None), again=True)
        self._looked_by = self._link.number
        return look, True


class PostgresTokens(TokenStore):
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
                raise base.StoreUnavailableError(f"{self._link.name}: did not answer a moment ago")
            if newest or now >= self._fresh_until:
                try:
                    self._link.run(self._refresh, again=True)
                except base.StoreUnavailableError:
                    self._fails_until = time.monotonic() + _TOKENS_FRESH
                    raise
                self._fresh_until = now + _TOKENS_FRESH
            return self._known

    def at_hand(self, newest: bool = False) -> Mapping[str, Token] | None:
        """Return all tokens; None if that would take waiting."""
        return self._known if not newest and time.monotonic() < self._fresh_until else None

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
