"""Whether stored uploads can be used, and a hub on a store from which damaged uploads are removed."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

from ..errors import InputError
from ..wire.messages import Upload, unpack
from ..wire.task_file import Task
from .hub import Hub
from .sqlite_store import SqliteStore
from .upload_reader import UploadReader, served_exchange
from .upload_records import DamagedStoreError, Record, name_text, record_of

log = logging.getLogger("latte.serve")


class UploadCheck:
    """Whether uploads are what the exchange of a task accepts; without a task, whether they are uploads at all."""

    def __init__(self, task: Task | None) -> None:
        self._reader = None if task is None else UploadReader(task, served_exchange(task))

    def check(self, record: Record) -> None:
        """Refuse an upload that would be refused if it came now."""
        if self._reader is None:
            unpack(record.body, Upload)
        else:
            self._reader.check_record(record)


def mended_hub(task: Task, folder: Path) -> Hub:
    """Return the hub on the store in ``folder`` without damaged uploads, for clients that send lost uploads again.

    A store file that cannot be read at all is set aside. Each fault is one line of the log.
    """
    try:
        store = SqliteStore(folder)
    except DamagedStoreError as error:
        log.error("%s: the file is set aside, and clients send their uploads again", error)
        store = SqliteStore(folder, anew=True)
    try:
        mine = store.claim(task.fingerprint) == task.fingerprint  # the hub refuses another task's store
        for client, fault in _damages(store, UploadCheck(task)) if mine else ():
            log.error("store: the upload of client %r is removed (%s), and the client sends it again", client, fault)
            store.remove(client)
        return Hub(task, store)
    except BaseException:
        store.close()
        raise


def _damages(store: SqliteStore, uploads: UploadCheck) -> Iterator[tuple[str, str]]:
    for row in store.rows():
        try:
            uploads.check(record_of(row))
        except InputError as error:
            yield name_text(row[0]), str(error)
