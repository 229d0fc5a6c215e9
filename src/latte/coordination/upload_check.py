"""Whether stored uploads can be used; a store without those that cannot."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..methods import describe
from ..wire.array_blocks import SameShapes, complete, decode, rounding_of
from ..wire.messages import Upload, unpack
from ..wire.task_file import Task
from .hub import Hub, new_client, served_exchange
from .sqlite_store import SqliteStore
from .upload_records import DamagedStoreError, Record, name_text, record_of

log = logging.getLogger("latte.serve")


class UploadCheck:
    """Whether uploads are what the exchange of a task accepts; without a task, whether they are uploads at all."""

    def __init__(self, task: Task | None) -> None:
        self._task = task
        if task is not None:
            self._exchange: Any = served_exchange(task)
            self._kind = describe(task.method).kind.Upload
            self._expected = SameShapes.of(new_client(task).summary())

    def check(self, record: Record) -> None:
        """Refuse an upload that would be refused if it came now."""
        blocks = unpack(record.body, Upload).blocks
        if self._task is not None:
            whole = complete(blocks, self._expected, {})
            upload = decode(whole, self._kind, self._task.zero_shot.fingerprint)
            self._exchange.prepare(upload, rounding_of(whole))


def mended_hub(task: Task, folder: Path) -> Hub:
    """Return the hub on the store in ``folder``, without damaged uploads: for clients that send theirs again.

    A damaged file as a whole is set aside. Each fault is one line of the log.
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
        except ValueError as error:
            yield name_text(row[0]), str(error)
