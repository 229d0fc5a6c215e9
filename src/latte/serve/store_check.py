"""Looking for damage in a store: every row is read, compared with its checksum, decoded, and tried on its task."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from ..coordination.sqlite_store import SqliteStore
from ..coordination.upload_check import UploadCheck
from ..coordination.upload_records import (
    ROW_COLUMNS,
    DamagedRecordError,
    DamagedStoreError,
    Record,
    Store,
    StoredRow,
    name_text,
    record_of,
    secret_of,
)
from ..errors import refuse
from ..wire.task_file import Task, describe_difference
from .audit import Audit
from .store_backup import StorePlace, readable_tokens
from .store_contents import open_contents, open_to_read
from .upload_store import open_store

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
        count = 0
        try:
            for damage in _examine(contents.rows, UploadCheck(task)):
                count += 1
                damages += [] if damage is None else [damage]
        except sqlite3.DatabaseError as error:  # a page that cannot be read: what is behind it is not seen
            damages.append(Damage(None, str(error)))
        return StoreReport(count, tuple(damages))


def _examine(rows: Iterable[StoredRow], uploads: UploadCheck) -> Iterator[Damage | None]:
    for row in rows:
        try:
            uploads.check(record_of(row))
            yield None
        except DamagedRecordError as error:
            yield Damage(name_text(row[0]), error.fault)
        except ValueError as error:
            yield Damage(name_text(row[0]), str(error))


def forget_damaged(place: StorePlace, report: StoreReport) -> int:
    """Go on with what is sound; the clients of the rest upload again at their next sync. Return how many faults went.

    A database file with faults of its own is set aside, and a new one is made of all rows that can be read.
    """
    if not report.damages:
        return 0
    audit = Audit(place.folder)
    with closing(_sound_store(place, report)) as store:
        for damage in report.damages:
            if damage.client is not None:
                store.remove(damage.client)
            audit.note("forgotten", damage.client or "", f"it was damaged: {damage.fault}", always=True)
    return len(report.damages)


def _sound_store(place: StorePlace, report: StoreReport) -> Store:
    if place.is_postgres or all(damage.client is not None for damage in report.damages):
        return open_store(place.store)
    folder = Path(place.store)
    try:
        return SqliteStore(folder, forgive=True)  # nothing but commits is missing
    except DamagedStoreError:
        return _rebuilt(folder)


def _rebuilt(folder: Path) -> SqliteStore:
    """Return a new store of what can be read of a damaged file, which is set aside."""
    store = SqliteStore(folder, anew=True)
    try:
        tokens = [token.row for token in readable_tokens(store.aside)]
        with closing(open_to_read(store.aside)) as old:
            facts, secret = dict[str, str](), None
            with suppress(sqlite3.Error, ValueError, TypeError, KeyError):
                facts = dict(old.execute("SELECT name, value FROM about"))
                secret = secret_of(facts["secret"])
            made = bool(tokens) or "tokens" in facts
            store.replace(facts.get("task"), _readable(old), secret, lambda rows: tokens, made)
    except BaseException:
        store.close()
        raise
    return store


def _readable(old: sqlite3.Connection) -> Iterator[Record]:
    """Yield the records that can be read, one by one: a scan would end at the first damaged page."""
    last = 0
    for query in ("SELECT seq FROM sqlite_sequence WHERE name = 'clients'", "SELECT max(id) FROM clients"):
        with suppress(sqlite3.Error, TypeError, ValueError):
            last = max(last, int(old.execute(query).fetchone()[0]))
    names = set[str]()
    for number in range(1, min(last, _MOST_IDS) + 1):
        with suppress(sqlite3.Error, DamagedRecordError, TypeError):
            record = record_of(old.execute(f"SELECT {ROW_COLUMNS} FROM clients WHERE id = ?", [number]).fetchone())
            if record.client not in names:
                names.add(record.client)
                yield record
