"""Reads and checks uploads before anything is stored: versions, rows that were left out, arrays, and plausibility."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, cast

from ..core.contracts import Collaborative, Exchange, Verifying
from ..core.row_copies import ManyAtOnce
from ..errors import InputError, refuse
from ..methods import create, create_exchange, describe
from ..wire.array_blocks import Block, complete, decode, encoded_rows, in_place, rounding_of
from ..wire.expected_arrays import SameShapes
from ..wire.many_blocks import decode_many
from ..wire.messages import NO_VERSION, DeviceReport, SyncRequest, Upload, pack, unpack
from ..wire.task_file import Task
from .problems import Problem
from .upload_records import DamagedRecordError, Record

log = logging.getLogger("latte.serve")


class ServedExchange(Exchange[Any, Any], Verifying, Protocol):
    """What a server needs of an exchange. :class:`latte.BaseExchange` has all of it."""

    def forget(self, client: str) -> None:
        """Remove a client and what it uploaded."""


@dataclass(frozen=True, slots=True, eq=False)
class AcceptedUpload:
    """An upload that was checked: its record, what the exchange stores of it, and the report that came with it."""

    record: Record
    prepared: Any
    report: DeviceReport | None


class UploadReader:
    """Reads and checks the uploads of one ``task``, for the exchange that stores them; it stores nothing."""

    def __init__(self, task: Task, exchange: ServedExchange) -> None:
        self._exchange, self._fingerprint = exchange, task.zero_shot.fingerprint
        self._kind = describe(task.method).kind.Upload
        self._expected = SameShapes.of(new_client(task).summary())

    @property
    def upload_bytes(self) -> int:
        """The bytes of an upload in full precision."""
        return self._expected.size

    # --- requests -----------------------------------------------------------------------------------------

    def prepare_many(self, requests: Sequence[SyncRequest]) -> dict[int, Any]:
        """Return what the exchange stores of uploads that can be checked together, by their place.

        All other uploads, and suspicious ones, have no entry and are read one by one.
        """
        if not isinstance(self._exchange, ManyAtOnce):
            return {}
        ready: dict[int, Any] = {}
        uploads = [request.upload if request.base == NO_VERSION else None for request in requests]
        try:
            for group in decode_many(uploads, self._expected, self._kind, self._fingerprint):
                with suppress(InputError):
                    prepared = self._exchange.prepare_many(group.message, group.roundings)
                    ready.update(zip(group.places, prepared, strict=True))
        except Exception:  # a bug of ours
            log.exception("uploads cannot be checked together")
        return ready

    def read(self, request: SyncRequest, before: Record | None, ready: Any) -> AcceptedUpload | None:
        """Return an upload that is to be stored; None if it is stored already.

        ``ready`` is what the exchange stores of it, if :meth:`prepare_many` has checked it.
        """
        version = before.version if before else NO_VERSION
        if before and request.key and request.key == before.key:
            if request.version != before.version:
                raise Problem("key_reused", f"a key of version {before.version} with version {request.version}")
            if not self._repeats(request, before):
                raise Problem("key_reused", f"the key of version {before.version} with another upload")
            return None
        if request.version <= version:
            raise stale(request.version, version)
        blocks, prepared = (request.upload or (), ready) if ready is not None else self._prepare(request, before)
        body = pack(Upload(blocks, request.report))
        record = Record(request.client, request.version, request.key, body, time.time())
        return AcceptedUpload(record, prepared, request.report)

    def _repeats(self, request: SyncRequest, before: Record) -> bool:
        """Return whether the rows that a request brings are those that are stored.

        Which rows it left out cannot be compared any more: they are those of the upload before.
        """
        try:
            rows = encoded_rows(unpack(before.body, Upload).blocks)
            blocks = complete([in_place(block) for block in request.upload or ()], self._expected, rows)
        except InputError:
            return False
        return blocks == unpack(before.body, Upload).blocks

    def _prepare(self, request: SyncRequest, before: Record | None) -> tuple[tuple[Block, ...], Any]:
        """Return all blocks of an upload, and what the exchange stores of it."""
        rows = _rows_left_out(request, before)
        try:
            blocks = complete(request.upload or (), self._expected, rows)
            return blocks, self._exchange.prepare(self._decode(blocks), rounding_of(blocks))
        except InputError as error:
            raise Problem("bad_upload", str(error)) from None

    def _decode(self, blocks: tuple[Block, ...]) -> Any:
        return decode(blocks, self._kind, self._fingerprint)

    # --- what is stored -----------------------------------------------------------------------------------

    def prepare_record(self, record: Record) -> AcceptedUpload:
        """Return what the exchange stores of a record; a record that it does not accept is damaged."""
        try:
            upload = unpack(record.body, Upload)
            return AcceptedUpload(record, self._exchange.prepare(self._decode(upload.blocks)), upload.report)
        except InputError as error:
            raise DamagedRecordError(record.client, str(error)) from None

    def check_record(self, record: Record) -> None:
        """Refuse an upload that would be refused if it came now."""
        blocks = complete(unpack(record.body, Upload).blocks, self._expected, {})
        self._exchange.prepare(self._decode(blocks), rounding_of(blocks))


def _rows_left_out(request: SyncRequest, before: Record | None) -> dict[str, Any]:
    """Return the rows of the version that the upload is based on; none if it leaves out no rows."""
    if request.base == NO_VERSION:
        return {}
    stored = before.version if before else NO_VERSION
    if before is not None and stored == request.base:
        with suppress(InputError):  # what is stored cannot be read: as good as nothing
            return encoded_rows(unpack(before.body, Upload).blocks)
    detail = f"rows of version {request.base} are left out, and version {stored} is stored: send all rows"
    raise Problem("unknown_base", detail, more={"stored_version": stored})


def stale(version: int, stored: int) -> Problem:
    """Return the refusal of an upload that is not later than what is ``stored``."""
    return Problem("stale_version", f"version {version}, and {stored} is stored", more={"stored_version": stored})


def served_exchange(task: Task) -> ServedExchange:
    """Return the exchange of a task; refuse an exchange without ``prepare``, ``store`` and ``forget``.

    A server checks an upload before it stores it, so it needs an exchange that does these in two steps.
    """
    exchange = create_exchange(task.method, task.zero_shot, task.params)
    if not isinstance(exchange, Verifying) or not hasattr(exchange, "forget"):
        raise refuse(
            "exchange", type(exchange).__name__, "one with prepare, store and forget, as latte.BaseExchange has"
        )
    return cast(ServedExchange, exchange)


def new_client(task: Task) -> Collaborative[Any, Any]:
    """Return a new client of a task."""
    method = create(task.method, task.zero_shot, task.params)
    if not isinstance(method, Collaborative):
        raise refuse("method", repr(task.method), "one that collaborates, with summary() and receive()")
    return method
