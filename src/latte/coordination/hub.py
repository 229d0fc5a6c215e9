"""What a server does with requests, without a network: check, store, exchange, answer. A batch at a time.

All uploads of a batch share one commit, and all downloads share one product per class. An upload is first checked, then
stored durably, then put into the exchange in memory, and then acknowledged. So an acknowledged upload is never lost,
and a refused upload changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..core.contracts import Secretive
from ..core.names import client_name
from ..core.validate import choice
from ..errors import InputError, refuse
from ..wire.array_blocks import Block
from ..wire.messages import NO_VERSION, PROTOCOL, SyncReply, SyncRequest
from ..wire.rows import PRECISIONS
from ..wire.task_file import Task, describe_difference
from .downloads import downloads
from .problems import Problem
from .reports import Reports
from .stopwatch import Stopwatch
from .upload_reader import AcceptedUpload, UploadReader, served_exchange, stale
from .upload_records import DamagedRecordError, Record, Removal, Store, StoreFullError, StoreUnavailableError

log = logging.getLogger("latte.serve")
STORE_RETRY = 5.0  # seconds that a client should wait if the store has a problem


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a server accepts: at most ``clients`` clients."""

    clients: int = 100_000


class Hub:
    """One task, its exchange, and the store behind it. One thread at a time may call it."""

    def __init__(self, task: Task, store: Store, limits: Limits | None = None) -> None:
        self.task, self.store, self.limits = task, store, limits or Limits()
        self.exchange = served_exchange(task)
        self.reader = UploadReader(task, self.exchange)
        self.on_join: Callable[[str], None] = lambda client: None  # is called after a client's first upload
        self.versions: dict[str, int] = {}  # of every client in the exchange
        self.updated: dict[str, float] = {}
        self.reports = Reports()
        self._keys: dict[str, bytes] = {}
        self.watch = Stopwatch()  # what batches take: store, wire (decode, check, encode), exchange
        owner = store.claim(task.fingerprint)
        if owner != task.fingerprint:
            differs = describe_difference(owner, task.fingerprint)
            raise refuse(
                "store", f"the store of another task ({differs} differ)", "the task it was made for, or a new store"
            )
        if isinstance(self.exchange, Secretive):
            self.exchange.use_secret(store.secret(), served=True)
        self.follow(strict=True)

    def __len__(self) -> int:
        return len(self.versions)

    # --- a batch ------------------------------------------------------------------------------------------

    def run(self, requests: Sequence[SyncRequest]) -> list[SyncReply | Problem]:
        """Answer requests, in order: uploads first, then downloads."""
        answers: list[SyncReply | Problem | None] = [self._refusal(request) for request in requests]
        try:
            self._take_uploads(requests, answers)
        except (StoreFullError, StoreUnavailableError) as error:
            problem = store_problem(error)
            return [answer or problem for answer in answers]
        try:
            with self.watch.phase("store"):
                self.follow()
        except (StoreFullError, StoreUnavailableError) as error:
            return self._without_downloads(requests, answers, store_problem(error))
        return self._answers(requests, answers)

    def _without_downloads(
        self, requests: Sequence[SyncRequest], answers: Sequence[SyncReply | Problem | None], problem: Problem
    ) -> list[SyncReply | Problem]:
        """Return the answers to a batch whose uploads are stored while what others wrote cannot be read.

        An upload is acknowledged. Who also asks for a download asks again, with the same key: its upload is known then.
        """
        detail = "the upload was stored, but there is no download now; send the same again later"
        stored = Problem(problem.code, detail, retry_after=STORE_RETRY)
        finished = list[SyncReply | Problem]()
        for request, answer in zip(requests, answers, strict=True):
            if answer is not None:
                finished.append(answer)
            elif request.upload is None:
                finished.append(problem)
            elif request.precision is None:
                finished.append(SyncReply(self.task.fingerprint, self.versions.get(request.client, NO_VERSION)))
            else:
                finished.append(stored)
        return finished

    def _refusal(self, request: SyncRequest) -> Problem | None:
        """Return why a request is refused whatever is stored; None: it is not."""
        if request.protocol != PROTOCOL:
            return Problem("bad_message", f"protocol {request.protocol}, want {PROTOCOL}")
        mine, theirs = self.task.fingerprint, request.task
        if theirs != mine:
            differs = describe_difference(mine, theirs)
            more = {"server_task": mine, "client_task": theirs, "differs": differs}
            return Problem("other_task", f"another task than the server's: {differs} differ", more=more)
        try:
            client_name(request.client)
            if request.precision is not None:
                choice("precision", request.precision, PRECISIONS)
        except InputError as error:
            return Problem("bad_message", str(error))
        return None

    # --- uploads ------------------------------------------------------------------------------------------

    def _take_uploads(self, requests: Sequence[SyncRequest], answers: list[SyncReply | Problem | None]) -> None:
        """Store the uploads of a batch; put the refusal of an upload into ``answers``."""
        due = [i for i, request in enumerate(requests) if answers[i] is None and request.upload is not None]
        with self.watch.phase("store"):
            stored = self._read_stored([requests[i] for i in due])
        accepted: dict[str, AcceptedUpload] = {}
        with self.watch.phase("wire"):
            ready = self.reader.prepare_many([requests[i] for i in due])
            for place, i in enumerate(due):
                answers[i] = self._accept(requests[i], stored, accepted, ready.get(place))
        late = self._commit(accepted)
        for i in due:
            refusal = late.get(requests[i].client)
            if refusal is not None and answers[i] is None:
                version = requests[i].version
                answers[i] = refusal if isinstance(refusal, Problem) else _not_written(version, refusal)

    def _read_stored(self, requests: Sequence[SyncRequest]) -> dict[str, Record]:
        """Return the stored records of the clients that upload.

        If no other process writes, a record whose upload is not needed is made from memory, without its body.
        """
        clients = {request.client for request in requests}
        whole = clients if self.store.shared else {request.client for request in requests if self._needs_rows(request)}
        heads = {c: Record(c, self.versions[c], self._keys[c], b"", self.updated[c]) for c in clients - whole}
        return heads | (self.store.read(sorted(whole)) if whole else {})

    def _needs_rows(self, request: SyncRequest) -> bool:
        """Return whether the stored upload is needed to answer a request: it has a part of one, or repeats it."""
        key = self._keys.get(request.client)
        return key is None or request.base != NO_VERSION or (key == request.key and bool(key))

    def _accept(
        self, request: SyncRequest, stored: Mapping[str, Record], accepted: dict[str, AcceptedUpload], ready: Any
    ) -> Problem | None:
        """Add an upload to ``accepted`` unless it is stored already; return the reason if it is refused."""
        before = accepted[request.client].record if request.client in accepted else stored.get(request.client)
        try:
            self._check_room(request.client, accepted)
            checked = self.reader.read(request, before, ready)
        except Problem as problem:
            return problem
        except InputError as error:
            return Problem("bad_upload", str(error))
        except Exception as error:  # a bug of ours, and the others of the batch are answered
            return failed(error, request.client)
        if checked is not None:
            accepted[request.client] = checked
        return None

    def _commit(self, accepted: dict[str, AcceptedUpload]) -> dict[str, int | Problem]:
        """Store accepted uploads; return the clients whose upload was not written, with the version that is stored.

        Where the exchange failed, the problem stands instead of the version.
        """
        late: dict[str, int | Problem] = {}
        with self.watch.phase("store"):
            late.update(self._write([upload.record for upload in accepted.values()]) if accepted else {})
        for client, upload in accepted.items():
            if client in late:
                continue
            is_new = client not in self.versions
            try:
                with self.watch.phase("exchange"):
                    self._apply(upload)
                if is_new:
                    self.on_join(client)
            except Exception as error:  # it is stored: the next upload of this client finds it there
                self._keys.pop(client, None)
                late[client] = failed(error, client)
        return late

    def _write(self, records: Sequence[Record]) -> dict[str, int]:
        """Store records and return the stored versions of those that are late.

        After a failure, the next upload of these clients reads their records from the store again: a write that failed
        may have been stored nevertheless, so what is in memory cannot be trusted.
        """
        try:
            late = sorted(self.store.write(records))
            stored = self.store.read(late) if late else {}
            return {client: stored[client].version if client in stored else NO_VERSION for client in late}
        except BaseException:
            for record in records:
                self._keys.pop(record.client, None)
            raise

    def _check_room(self, client: str, accepted: dict[str, AcceptedUpload]) -> None:
        if client in self.versions or client in accepted:
            return
        if len(self.versions) + len(accepted.keys() - self.versions.keys()) >= self.limits.clients:
            raise Problem("too_many_clients", f"{len(self.versions)} clients, at most {self.limits.clients}")

    def _apply(self, upload: AcceptedUpload) -> None:
        record = upload.record
        self.exchange.store(record.client, upload.prepared)
        if upload.report is not None:
            self.reports.note(record.client, upload.report)
        self.versions[record.client], self.updated[record.client] = record.version, record.updated
        self._keys[record.client] = record.key

    # --- what other processes and earlier ones wrote ---------------------------------------------------------

    def follow(self, strict: bool = False) -> None:
        """Take over what is in the store and not in memory: at the start everything, later what others wrote.

        An upload that cannot be used is left out, with a line in the log; with ``strict`` it is an error.
        """
        for change in self.store.changes():
            if isinstance(change, Removal):
                self._drop(change.client)
            elif self.versions.get(change.client, NO_VERSION) < change.version:
                try:
                    self._apply(self.reader.prepare_record(change))
                except Exception as error:
                    if strict:
                        raise
                    ours = not isinstance(error, DamagedRecordError)
                    log.error("%s", error, exc_info=error if ours else None)

    def forget(self, client: str) -> bool:
        """Remove a client, durably; return whether it was there."""
        was_there = self.store.remove(client)
        self._drop(client)
        return was_there

    def _drop(self, client: str) -> None:
        if self.versions.pop(client, None) is not None:
            del self.updated[client]
            self._keys.pop(client, None)
            self.reports.forget(client)
            self.exchange.forget(client)

    # --- downloads ----------------------------------------------------------------------------------------

    def _answers(
        self, requests: Sequence[SyncRequest], answers: Sequence[SyncReply | Problem | None]
    ) -> list[SyncReply | Problem]:
        finished = [answer or self._unknown(request) for request, answer in zip(requests, answers, strict=True)]
        asking = [i for i, answer in enumerate(finished) if answer is None and requests[i].precision is not None]
        by_place = dict(zip(asking, self._downloads([requests[i] for i in asking]), strict=True))
        replies: list[SyncReply | Problem] = []
        for i, (request, answer) in enumerate(zip(requests, finished, strict=True)):
            download, version = by_place.get(i), self.versions.get(request.client, NO_VERSION)
            if answer is not None:
                replies.append(answer)
            elif isinstance(download, Problem):
                replies.append(download)
            else:
                shared = self.reports.is_shared(request.client)
                replies.append(SyncReply(self.task.fingerprint, version, download=download, name_shared=shared))
        return replies

    def _downloads(self, requests: Sequence[SyncRequest]) -> list[tuple[Block, ...] | Problem]:
        """Return the download of each request; where all at once fail, one by one: the others are answered."""
        dim = self.task.zero_shot.dim
        try:
            return list(downloads(self.exchange, requests, dim, self.watch))
        except Exception as error:
            if len(requests) == 1:
                return [failed(error, requests[0].client)]
            log.exception("downloads cannot be made together")
        return [answer for request in requests for answer in self._downloads([request])]

    def _unknown(self, request: SyncRequest) -> Problem | None:
        if request.precision is not None and request.client not in self.versions:
            return Problem("unknown_client", f"client {request.client!r} has uploaded nothing yet: upload first")
        return None


def failed(error: Exception, client: str) -> Problem:
    """Return the answer to a request at which this program failed; the log has the traceback."""
    log.error("a request of client %r failed", client, exc_info=error)
    return Problem("internal", "the server's log says more")


def _not_written(version: int, stored: int) -> Problem:
    """Return why an upload was not written: a later one is stored, or somebody held its row for too long."""
    if stored >= version:
        return stale(version, stored)
    detail = "somebody holds the row of this client; nothing was stored, try again later"
    return Problem("store_unavailable", detail, retry_after=STORE_RETRY)


def store_problem(error: OSError) -> Problem:
    """Return the answer to a client if the store has a problem; the details go to the log only."""
    log.error("store: %s", error)
    if isinstance(error, StoreFullError):
        return Problem("store_full", "nothing was stored; try again later", retry_after=STORE_RETRY)
    detail = "the store does not answer: whether anything was stored is not known; send the same again later"
    return Problem("store_unavailable", detail, retry_after=STORE_RETRY)
