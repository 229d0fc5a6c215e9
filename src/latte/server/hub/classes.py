"""A store whose task has a new version, with other classes: every upload goes on in it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from ...core.zero_shot import places_of
from ...errors import InputError, refuse
from ...methods import describe
from ...methods.classes import move_upload
from ...wire.blocks import SameShapes, complete, decode, encode
from ...wire.messages import Upload, pack, unpack
from ...wire.task import Task
from ..store.base import Record, Store, open_store
from .hub import served_exchange

log = logging.getLogger("latte.server")


def open_followed(place: str | Path, task: Task) -> Store:
    """Open a store; one of an earlier version of ``task`` belongs to ``task`` from then on.

    Such a one is refused while another server runs on it, which would read and write uploads of the earlier version.
    """
    store = open_store(place)
    if _earlier(store, task) is None:
        return store
    store.close()
    with closing(open_store(place, alone=True)) as store:
        earlier = _earlier(store, task)
        if earlier is not None:  # or another server was first
            _follow_classes(store, task, earlier)
    return open_store(place)


def _earlier(store: Store, task: Task) -> Sequence[str] | None:
    """Return the classes of the earlier version that a store belongs to; None if it is that of ``task``, or none."""
    owner = store.claim(task.fingerprint)
    return None if owner == task.fingerprint else task.classes_of(owner)  # a class that left and came back is no other


def _follow_classes(store: Store, task: Task, earlier: Sequence[str]) -> None:
    """Let every upload go on, in one transaction.

    One that says nothing of the classes that are left is removed: the next of its client replaces it.
    """
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
