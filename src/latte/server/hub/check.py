"""Damage in a store: every row is read, compared with its checksum, decoded, and tried on its task."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from ...errors import InputError, refuse
from ...wire.messages import Upload, unpack
from ...wire.task import Task, describe_difference
from ..store import base
from ..store.audit import Audit
from ..store.backup import StorePlace, open_contents, open_to_read, readable_tokens
from ..store.sqlite import SqliteStore
from .hub import Hub, UploadReader, served_exchange

log = logging.getLogger("latte.server")
_MOST_IDS = 1 << 24  # rows that are looked for in a damaged file: 100,000 clients that rejoin 160 times each


@dataclass(frozen=True, slots=True)
class Damage:
    """A client whose upload cannot be used, and why; no ``client``: the file itself."""

    client: str | None
    fault: str


@dataclass(frozen=True, slots=True)
class StoreReport:
    """The result of a check: the number of ``clients``, and what is damaged."""

    clients: int
    damages: tuple[Damage, ...]


def check_store(place: StorePlace, task: Task | None = None) -> StoreReport:
    """Read a whole store and report what is damaged; servers may go on meanwhile."""
    with open_contents(place.store, examine=True) as contents:
        if task is not None and contents.task not in (None, task.fingerprint):
            differs = describe_difference(str(contents.task), task.fingerprint)
            raise refuse("task", f"another task than the store's ({differs} differ)", "the one given to latte serve")
        damages = [Damage(None, fault) for fault in contents.faults]
        count, check = 0, _upload_check(task)
        try:
            for row in contents.rows:
                count += 1
                try:
                    check(base.record_of(row))
                except InputError as error:
                    damages.append(Damage(base.name_text(row[0]), getattr(error, "fault", str(error))))
        except sqlite3.DatabaseError as error:  # a page that cannot be read: what is behind it is not seen
            damages.append(Damage(None, str(error)))
        return StoreReport(count, tuple(damages))


def _upload_check(task: Task | None) -> Callable[[base.Record], object]:
    """Return what refuses an upload that would be refused if it came now; without a task, what is no upload at all."""
    if task is None:
        return lambda record: unpack(record.body, Upload)
    return UploadReader(task, served_exchange(task)).check_record


def forget_damaged(place: StorePlace, report: StoreReport) -> int:
    """Go on with what is sound; the clients of the rest upload again at their next sync. Return how many faults went.

    A database file with faults of its own is set aside, and a new one is made of all rows that can be read.
    """
    if not report.damages:
        return 0
    audit, folder = Audit(place.folder), Path(place.store)
    if place.is_postgres or all(damage.client is not None for damage in report.damages):
        store = base.open_store(place.store)
    else:
        try:
            store = SqliteStore(folder, forgive=True)  # nothing but commits is missing
        except base.DamagedStoreError:
            store = _rebuilt(folder)
    with closing(store):
        for damage in report.damages:
            if damage.client is not None:
                store.remove(damage.client)
            audit.note("forgotten", damage.client or "", f"it was damaged: {damage.fault}", always=True)
    return len(report.damages)


def _rebuilt(folder: Path) -> SqliteStore:
    """Return a new store of what can be read of a damaged file, which is set aside."""
    store = SqliteStore(folder, anew=True)
    try:
        tokens = [token.row for token in readable_tokens(store.aside)]
        with closing(open_to_read(store.aside)) as old:
            facts, secret = dict[str, str](), None
            with suppress(sqlite3.Error, ValueError, TypeError, KeyError):
                facts = dict(old.execute("SELECT name, value FROM about"))
                secret = int(facts["secret"], 16)
            made = bool(tokens) or "tokens" in facts
            store.replace(facts.get("task"), _readable(old), secret, lambda rows: tokens, made)
    except BaseException:
        store.close()
        raise
    return store


def _readable(old: sqlite3.Connection) -> Iterator[base.Record]:
    """Yield the records that can be read, one by one: a scan would end at the first damaged page."""
    last = 0
    for query in ("SELECT seq FROM sqlite_sequence WHERE name = 'clients'", "SELECT max(id) FROM clients"):
        with suppress(sqlite3.Error, TypeError, ValueError):
            last = max(last, int(old.execute(query).fetchone()[0]))
    names = set[str]()
    for number in range(1, min(last, _MOST_IDS) + 1):
        with suppress(sqlite3.Error, base.DamagedRecordError, TypeError):
            record = base.record_of(
                old.execute(f"SELECT {base.ROW_COLUMNS} FROM clients WHERE id = ?", [number]).fetchone()
            )
            if record.client not in names:
                names.add(record.client)
                yield record


def mended_hub(task: Task, folder: Path) -> Hub:
    """Return the hub on the store in ``folder`` without damaged uploads, for clients that send lost uploads again.

    A store file that cannot be read at all is set aside. Each fault is one line of the log.
    """
    try:
        store = SqliteStore(folder)
    except base.DamagedStoreError as error:
        log.error("%s: the file is set aside, and clients send their uploads again", error)
        store = SqliteStore(folder, anew=True)
    try:
        if store.claim(task.fingerprint) == task.fingerprint:  # the hub refuses another task's store
            check = _upload_check(task)
            for row in store.rows():
                try:
                    check(base.record_of(row))
                except InputError as error:
                    line = "store: the upload of client %r is removed (%s), and the client sends it again"
                    log.error(line, base.name_text(row[0]), error)
                    store.remove(base.name_text(row[0]))
        return Hub(task, store)
    except BaseException:
        store.close()
        raise
