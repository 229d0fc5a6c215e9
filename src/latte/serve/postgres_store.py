"""The store of several servers: plain PostgreSQL, 13 or later, without extensions.

Each server has its own exchange in memory and follows what the others write. A number from a sequence cannot tell which
rows are new: transactions commit in another order than they take numbers, and a reader that has seen number 8 would
never look for number 7, which is committed later. So every row has the number of the transaction that wrote it
(``xid``), and a reader remembers the snapshot of its last look, which says exactly which transactions it has seen. A
look sees every row that was committed before it began.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import ClassVar

from ..coordination.upload_records import (
    ROW_COLUMNS,
    Record,
    Removal,
    StoreUnavailableError,
    TokenRow,
    in_chunks,
    name_bytes,
    new_secret,
    record_of,
    secret_of,
    secret_text,
    sound_records,
)
from .postgres_link import Link, LockMode
from .postgres_queries import (
    CLEAN,
    REMOVE,
    FeedLook,
    News,
    claim_fact,
    fetch,
    read_feed,
    replace_records,
    write_records,
)
from .postgres_tables import get_about

_CLEAN_EVERY = 600.0  # seconds


class PostgresStore:
    """Records in the tables ``latte_clients`` and ``latte_removals`` of the database at ``url``.

    One database, or one schema of it (``?options=-csearch_path%3DNAME``), is one federation. With ``alone``, a database
    on which a server runs is refused.
    """

    shared: ClassVar[bool] = True

    def __init__(self, url: str, alone: bool = False) -> None:
        hold: LockMode = "alone" if alone else "shared"
        self._link = Link(url, hold)
        self._seen: dict[str, tuple[int, int]] = {}  # version and checksum of what the caller of changes() has
        self._last: str | None = None  # the snapshot of the last look
        self._looked_by = 0  # the number of the connection of that look
        self._cleaned_at = float("-inf")
        self._task: str | None = None
        self._secret: str | None = None

    def claim(self, task: str) -> str:
        """Return the fingerprint of the task that the store belongs to; a new store belongs to ``task``."""
        self._task = self._link.run(lambda database: claim_fact(database, "task", task), again=True)
        return self._task

    def secret(self) -> int:
        """Return the secret of the store; it is drawn at the first call of any process."""
        self._secret = self._link.run(lambda database: claim_fact(database, "secret", new_secret()), again=True)
        return secret_of(self._secret)

    def read(self, clients: Sequence[str]) -> dict[str, Record]:
        """Return the sound records of ``clients``, by client."""
        names = [name_bytes(client) for client in clients]
        query = f"SELECT {ROW_COLUMNS} FROM latte_clients WHERE name = ANY(%b)"
        rows = self._link.run(lambda database: fetch(database, query, [names]), again=True) if names else []
        return {record.client: record for record in sound_records(rows)}

    def write(self, records: Sequence[Record]) -> frozenset[str]:
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
        name = name_bytes(client)
        was_there = self._link.run(lambda database: database.execute(REMOVE, [name]).fetchone() is not None)
        self._seen.pop(client, None)
        return was_there

    def close(self) -> None:
        """Close the connection."""
        self._link.close()

    def is_empty(self) -> bool:
        """Return whether there is no record."""
        return not self._link.run(lambda database: fetch(database, "SELECT 1 FROM latte_clients LIMIT 1"))

    def replace(
        self,
        task: str | None,
        records: Iterable[Record],
        secret: int | None = None,
        tokens: Callable[[list[TokenRow]], list[TokenRow]] | None = None,
        made: bool = False,
    ) -> None:
        """Put ``records`` of ``task`` in the place of everything, all or nothing."""
        facts = {"task": task, "secret": None if secret is None else secret_text(secret)}
        self._link.run(lambda database: replace_records(database, facts, records, tokens, made))

    # --- what others write --------------------------------------------------------------------------------

    def changes(self) -> Iterator[Record | Removal]:
        """Yield what changed since the last call, in the order of joining; at the first call, every record.

        A caller that stops half way gets the same changes at the next call.
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
        self._check_facts()
        self._looked_by = self._link.number
        return look, True

    def _check_facts(self) -> None:
        """Refuse a store that was replaced by another store while there was no connection."""
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
        """Return whether a client was removed since the last look: the caller has to forget it, even if it is back."""
        known = self._seen.get(news.client)
        return known is not None and (news.removed or news.version <= known[0])

    def _records(self, ids: Sequence[int | None]) -> list[Record]:
        """Return the records of rows, in their latest version and without clients that were removed meanwhile.

        A damaged record is an error at the first look, and is left out later.
        """
        query = f"SELECT {ROW_COLUMNS} FROM latte_clients WHERE id = ANY(%b) ORDER BY id"
        rows = self._link.run(lambda database: fetch(database, query, [ids]))
        return list(map(record_of, rows) if self._last is None else sound_records(rows))

    def _clean(self) -> None:
        """Delete old removals now and then; a server that has not seen one notices that, and compares all names."""
        if time.monotonic() - self._cleaned_at > _CLEAN_EVERY:
            self._link.run(lambda database: database.execute(CLEAN))
            self._cleaned_at = time.monotonic()
