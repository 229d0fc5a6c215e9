"""A store whose task has a new version, with other classes: every upload goes on in it."""

from __future__ import annotations

import logging
from dataclasses import replace

from ...errors import InputError, refuse
from ...methods import describe
from ...methods.classes import move_upload, places_of
from ...wire.blocks import SameShapes, complete, decode, encode
from ...wire.messages import Upload, pack, unpack
from ...wire.task import Task
from ..store.base import Record, Store
from .hub import served_exchange

log = logging.getLogger("latte.server")


def follow_classes(store: Store, task: Task) -> None:
    """Let a store of an earlier version belong to ``task``. No server may run on it; it has to be opened again.

    All uploads change in one transaction. One that says nothing of the classes that are left is removed: the next of
    its client replaces it.
    """
    owner = store.claim(task.fingerprint)
    earlier = task.classes_of(owner)
    if owner == task.fingerprint or earlier is None:
        return
    kind, exchange = describe(task.method).kind.Upload, served_exchange(task)
    if not hasattr(kind, "class_fields"):
        want = "a method whose uploads name their class_fields, as those of Latte and Ristretto do"
        raise refuse("classes", f"others than before, with {task.method}", want)
    places, fingerprint = places_of(task.zero_shot.classnames, earlier), task.zero_shot.fingerprint
    moved, count = list[Record](), 0
    for record in store.changes():
        if not isinstance(record, Record):
            continue
        count += 1
        upload = unpack(record.body, Upload)
        try:
            message = move_upload(decode(upload.blocks, kind, fingerprint), places, fingerprint)
            exchange.prepare(message)  # without a rounding: a prototype is held to its class when it is uploaded
        except InputError as error:
            log.warning("client %r starts anew: %s", record.client, error)
            continue
        blocks = complete(encode(message, "exact", task.zero_shot.dim), SameShapes.of(message), {})
        moved.append(replace(record, body=pack(Upload(blocks, upload.report))))
    store.replace(task.fingerprint, moved, store.secret())
    log.info("classes changed", extra={"fields": {"clients": count, "kept": len(moved)}})
