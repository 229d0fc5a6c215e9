"""Looking for damage in a store: every row is read, compared with its checksum, decoded, and tried on its task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass

from ..coordination.upload_check import UploadCheck
from ..coordination.upload_records import DamagedRecordError, StoredRow, name_text, record_of
from ..errors import refuse
from ..wire.task_file import Task, describe_difference
from .audit import Audit
from .store_backup import StorePlace
from .store_contents import open_contents
from .upload_store import open_store


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
    with open_contents(place.store, place.folder, examine=True) as contents:
        if task is not None and contents.task not in (None, task.fingerprint):
            differs = describe_difference(str(contents.task), task.fingerprint)
            raise refuse("task", f"another task than the store's ({differs} differ)", "the one given to latte serve")
        damages = [Damage(None, fault) for fault in contents.faults]
        count = 0
        for damage in _examine(contents.rows, UploadCheck(task)):
            count += 1
            damages += [] if damage is None else [damage]
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
    """Remove the clients whose uploads are damaged; each uploads again at its next sync. Return how many."""
    clients = [damage.client for damage in report.damages if damage.client is not None]
    if not clients:
        return 0
    audit = Audit(place.folder)
    with closing(open_store(place.store)) as store:
        for client in clients:
            store.remove(client)
            audit.note("forgotten", client, "its upload was damaged", always=True)
    return len(clients)
