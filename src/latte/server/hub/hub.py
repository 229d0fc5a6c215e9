"""The hub of a server, without a network: check, store, exchange, answer, a batch of requests at a time.

All uploads of a batch share one commit, and all downloads share one product per class. An upload is first checked, then
stored durably, then put into the exchange in memory, and then acknowledged. So an acknowledged upload is never lost,
and a refused upload changes nothing.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import msgspec
import numpy as np

from ...core.evidence import Pairs
from ...core.sync import sync
from ...core.types import Collaborative, Rounding, Teachable, TeachingRights, Verifying, optional_fields
from ...core.unknown import BINS, threshold_of, unpack_counts
from ...core.validate import choice, client_name
from ...errors import InputError, refuse
from ...methods import create, create_exchange, describe
from ...methods.latte.server import GlobalMemory
from ...wire.blocks import (
    Block,
    SameShapes,
    complete,
    decode,
    encode,
    encoded_rows,
    layout_of,
    number_block,
    rounding_of,
    stack,
    vector_block,
)
from ...wire.messages import (
    NO_VERSION,
    PROTOCOL,
    DeviceReport,
    FleetWord,
    HeldRows,
    Problem,
    SyncReply,
    SyncRequest,
    Upload,
    pack,
    pairs_of,
    unpack,
)
from ...wire.rows import PRECISIONS, EncodedRows, RowFormat
from ...wire.task import Task, describe_difference
from ..store.base import DamagedRecordError, Record, Removal, Store, StoreFullError, StoreUnavailableError

log = logging.getLogger("latte.server")
STORE_RETRY = 5.0  # seconds that a client should wait if the store has a problem
SHARED_SECONDS = 3600.0  # for which it is said that two devices have one name, after the last time it was seen
_EARLIER = 8  # instances of a client that are remembered: a card that was copied is in a few devices at once
_FLOAT32 = np.dtype(np.float32)

Answer: TypeAlias = SyncReply | Problem


class Reports:
    """The latest report of every client. It is stored with the client's upload, so a restart does not lose it.

    A device that starts again has a new instance, and the earlier one is never heard of again. Where it is, two devices
    use the name.

    >>> reports = Reports()
    >>> for instance in ("one", "two", "one"):
    ...     reports.note("camera", DeviceReport(instance=instance))
    >>> reports.is_shared("camera"), reports.is_shared("gate")
    (True, False)
    """

    def __init__(self) -> None:
        self.latest: dict[str, DeviceReport] = {}
        self.rights = TeachingRights()
        self.pairs = Pairs()  # of all clients that are believed
        self.mcm = np.zeros(BINS, np.int64)  # the histogram of all clients
        self._earlier: dict[str, deque[str]] = {}
        self._shared: dict[str, float] = {}  # when it was last seen that two devices use a name

    def note(self, client: str, report: DeviceReport) -> None:
        """Take over the report of an upload."""
        before, now = self.latest.get(client), report.instance
        self._count(client, before, report)
        self.latest[client] = report
        if before is None or not before.instance or not now or before.instance == now:  # earlier versions send none
            return
        earlier = self._earlier.setdefault(client, deque(maxlen=_EARLIER))
        if now in earlier:
            self._shared[client] = time.monotonic()
        if before.instance not in earlier:
            earlier.append(before.instance)

    def grant(self, rights: TeachingRights) -> None:
        """Believe only those who may teach, if there are any, and nobody who is muted; count the labels anew."""
        self.rights = rights
        believed = (pairs_of(report) for client, report in self.latest.items() if self.believes(client))
        self.pairs = sum(filter(None, believed), Pairs())

    def believes(self, client: str) -> bool:
        """Return whether the labels of a client count as to whether adapting helps."""
        teachers = self.rights.teachers
        return client not in self.rights.muted and (not teachers or client in teachers)

    def _count(self, client: str, before: DeviceReport | None, now: DeviceReport | None) -> None:
        """Replace a client's part of the sums; what cannot be true counts as nothing."""
        for report, sign in ((before, -1), (now, 1)):
            if report is None:
                continue
            if (pairs := pairs_of(report)) is not None and self.believes(client):
                self.pairs = self.pairs + pairs if sign > 0 else self.pairs - pairs
            if isinstance(report.mcm, bytes) and (counts := unpack_counts(report.mcm)) is not None:
                self.mcm += sign * counts

    def is_shared(self, client: str) -> bool:
        """Return whether two devices have used a name lately."""
        seen = self._shared.get(client)
        return seen is not None and time.monotonic() - seen < SHARED_SECONDS

    def forget(self, client: str) -> None:
        """Forget a client."""
        self._count(client, self.latest.get(client), None)
        for known in (self.latest, self._earlier, self._shared):
            known.pop(client, None)


@dataclass(frozen=True, slots=True, eq=False)
class AcceptedUpload:
    """An upload that was checked: its record, what the exchange stores of it, and the report that came with it."""

    record: Record
    prepared: Any
    report: DeviceReport | None


# The blocks of an upload with all their rows, and what the exchange stores of it.
CheckedUpload: TypeAlias = tuple[tuple[Block, ...], Any]


class UploadReader:
    """Reads and checks the uploads of one ``task``, for the exchange that stores them; it stores nothing."""

    def __init__(self, task: Task, exchange: Any) -> None:
        self._exchange, self._fingerprint = exchange, task.zero_shot.fingerprint
        self._kind = describe(task.method).kind.Upload
        self._optional = frozenset(optional_fields(self._kind))
        self._moved = bool(task.history)  # whether what is stored may be of other classes
        client = create(task.method, task.zero_shot, task.params)
        if not isinstance(client, Collaborative):
            raise refuse("method", repr(task.method), "one that collaborates, with summary() and receive()")
        if isinstance(client, Teachable):  # the example is an upload with all that labels add to it
            client.predict(task.zero_shot.text[0])
            client.correct(task.zero_shot.text[0], 0)
            sync([("example", client)], create_exchange(task.method, task.zero_shot, task.params))
        self._expected = SameShapes.of(client.summary())
        self.upload_bytes = self._expected.size  # in full precision

    def read_many(self, requests: Sequence[SyncRequest], stored: Mapping[str, Record]) -> dict[int, CheckedUpload]:
        """Return uploads that were checked together, by their place: sound ones of the same layout, without labels.

        The others, and what an exchange cannot check together, are left to :meth:`read`, which says what is wrong.
        """
        if not hasattr(self._exchange, "prepare_many"):
            return {}
        alike: dict[Any, list[tuple[int, tuple[Block, ...]]]] = {}
        for place, request in enumerate(requests):
            with suppress(Problem, InputError):
                blocks = self._complete(request, stored.get(request.client))
                if self._optional.isdisjoint(block.name for block in blocks):
                    alike.setdefault(layout_of(blocks), []).append((place, blocks))
        checked: dict[int, CheckedUpload] = {}
        for several in alike.values():
            if len(several) < 2:
                continue
            try:
                together = stack([blocks for _, blocks in several])
                found = self._exchange.prepare_many(decode(together, self._kind, self._fingerprint))
            except InputError:
                continue
            except Exception:  # a bug of ours: the sender whose upload meets it alone gets to know
                log.exception("uploads cannot be checked together")
                continue
            pairs = zip(several, found, strict=True)
            checked |= {place: (blocks, row) for (place, blocks), row in pairs if row is not None}
        return checked

    def read(
        self, request: SyncRequest, before: Record | None, checked: CheckedUpload | None = None
    ) -> AcceptedUpload | None:
        """Return an upload that is to be stored; None if it is stored already. It may be ``checked`` already."""
        stored = before.version if before else NO_VERSION
        if before and request.key and request.key == before.key:
            if request.version != stored:
                raise Problem("key_reused", f"a key of version {stored} with version {request.version}")
            if not self._repeats(request, before):
                raise Problem("key_reused", f"the key of version {stored} with another upload")
            return None
        if request.version <= stored:
            raise stale(request.version, stored)
        if checked is None:
            try:
                blocks = self._complete(request, before)
                checked = blocks, self._prepare(blocks, self._rounding_of(blocks))
            except InputError as error:
                raise Problem("bad_upload", str(error)) from None
        blocks, prepared = checked
        body = pack(Upload(blocks, request.report))
        record = Record(request.client, request.version, request.key, body, time.time())
        return AcceptedUpload(record, prepared, request.report)

    def _complete(self, request: SyncRequest, before: Record | None) -> tuple[Block, ...]:
        """Return the blocks of an upload with all their rows; those that it leaves out are in the record ``before``."""
        rows: dict[str, EncodedRows] | None = {}
        if request.base != NO_VERSION:
            stored, rows = before.version if before else NO_VERSION, None
            if before is not None and stored == request.base:
                with suppress(InputError):  # what is stored cannot be read: as good as nothing
                    rows = encoded_rows(unpack(before.body, Upload).blocks)
            if rows is None:
                detail = f"rows of version {request.base} are left out, and version {stored} is stored: send all rows"
                raise Problem("unknown_base", detail, more={"stored_version": stored})
        return complete(request.upload or (), self._expected, rows or {})

    def _repeats(self, request: SyncRequest, before: Record) -> bool:
        """Return whether the rows that a request brings are those that are stored.

        Which rows it left out cannot be compared any more: they are those of the upload before.
        """
        try:
            stored, sent = unpack(before.body, Upload).blocks, []
            for block in request.upload or ():
                source = np.frombuffer(block.source[: len(block.source) // 4 * 4], "<i4")
                places = np.where(source >= 0, np.arange(len(source)), source).astype("<i4").tobytes()
                sent.append(msgspec.structs.replace(block, source=places))
            return complete(sent, self._expected, encoded_rows(stored)) == stored
        except InputError:
            return False

    def _rounding_of(self, blocks: tuple[Block, ...]) -> Rounding:
        """Return how far encoding can have moved vectors of unit length: sums of labels are none."""
        return rounding_of([block for block in blocks if block.name not in self._optional])

    def _prepare(self, blocks: tuple[Block, ...], rounding: Rounding | None = None) -> Any:
        return self._exchange.prepare(decode(blocks, self._kind, self._fingerprint), rounding)

    def prepare_record(self, record: Record) -> AcceptedUpload:
        """Return what the exchange stores of a record; a record that it does not accept is damaged."""
        try:
            upload = unpack(record.body, Upload)
            return AcceptedUpload(record, self._prepare(upload.blocks), upload.report)
        except InputError as error:
            raise DamagedRecordError(record.client, str(error)) from None

    def check_record(self, record: Record) -> None:
        """Refuse an upload that would be refused if it came now.

        Where classes have joined, a prototype may be nearer to another one by now: it is not held to its class.
        """
        blocks = complete(unpack(record.body, Upload).blocks, self._expected, {})
        self._prepare(blocks, None if self._moved else self._rounding_of(blocks))


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a server accepts: at most ``clients`` clients. Of their images, it lets them ``flag`` this share."""

    clients: int = 100_000
    flag: float = 0.0


class Hub:
    """One task, its exchange, and the store behind it. One thread at a time may call it."""

    def __init__(self, task: Task, store: Store, limits: Limits | None = None) -> None:
        self.task, self.store, self.limits = task, store, limits or Limits()
        self.exchange = served_exchange(task)
        if task.joined and hasattr(self.exchange, "watch_classes"):
            self.exchange.watch_classes(task.joined)
        self.reader = UploadReader(task, self.exchange)
        self.on_join: Callable[[str], None] = lambda client: None  # is called after a client's first upload
        # is called when the number of labels of a client has changed
        self.on_labels: Callable[[str, int], None] = lambda client, labels: None
        self.versions: dict[str, int] = {}  # of every client in the exchange
        self.updated: dict[str, float] = {}
        self.reports = Reports()
        self.grant(TeachingRights(frozenset()))  # until somebody says whom to trust
        self._keys: dict[str, bytes] = {}  # of their uploads; where one is missing, the store is asked
        self.seconds: dict[str, float] = {}  # of processor time: store, wire (decode, check, encode), exchange
        self._phase, self._since = "", 0.0
        owner = store.claim(task.fingerprint)
        if owner != task.fingerprint:
            differs = describe_difference(owner, task.fingerprint)
            raise refuse(
                "store", f"the store of another task ({differs} differ)", "the task it was made for, or a new store"
            )
        if hasattr(self.exchange, "use_secret"):
            self.exchange.use_secret(store.secret(), served=True)
        self.follow(strict=True)

    def __len__(self) -> int:
        return len(self.versions)

    # --- labels -------------------------------------------------------------------------------------------

    @property
    def labels(self) -> Mapping[str, int]:
        """How many labels the latest upload of each client stands for, of a method that learns from labels."""
        labels: Mapping[str, int] = getattr(self.exchange, "labels", {})
        return labels

    @property
    def rights(self) -> TeachingRights:
        """Whose labels count in full, and whose not at all."""
        return self._rights

    def grant(self, rights: TeachingRights) -> None:
        """Replace the rights to teach."""
        self._rights = rights
        self.reports.grant(rights)
        if hasattr(self.exchange, "grant"):
            self.exchange.grant(rights)

    # --- a batch ------------------------------------------------------------------------------------------

    def run(self, requests: Sequence[SyncRequest]) -> list[Answer]:
        """Answer requests, in order: uploads first, then downloads."""
        answers: list[Answer | None] = [self._refusal(request) for request in requests]
        uploaded = False
        try:
            self._take_uploads(requests, answers)
            uploaded = True
            self._begin("store")
            self.follow()
            return self._answers(requests, answers)
        except (StoreFullError, StoreUnavailableError) as error:
            problem = store_problem(error)
            pairs = zip(requests, answers, strict=True)
            return [a or (self._without_download(request, problem) if uploaded else problem) for request, a in pairs]
        finally:
            self._begin("")

    def _begin(self, phase: str) -> None:
        """Count processor time from now on for ``phase``, or for none. Asking for the time is not cheap."""
        now = time.thread_time()
        if self._phase:
            self.seconds[self._phase] = self.seconds.get(self._phase, 0.0) + now - self._since
        self._phase, self._since = phase, now

    def _without_download(self, request: SyncRequest, problem: Problem) -> Answer:
        """Return the answer to a request whose upload is stored while what others wrote cannot be read.

        An upload is acknowledged. Who also asks for a download asks again, with the same key: its upload is known then.
        """
        if request.upload is None:
            return problem
        if request.precision is None:
            return SyncReply(self.task.fingerprint, self.versions.get(request.client, NO_VERSION))
        detail = "the upload was stored, but there is no download now; send the same again later"
        return Problem(problem.code, detail, retry_after=STORE_RETRY)

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

    def _take_uploads(self, requests: Sequence[SyncRequest], answers: list[Answer | None]) -> None:
        """Store the uploads of a batch; put the refusal of an upload into ``answers``."""
        due = [i for i, request in enumerate(requests) if answers[i] is None and request.upload is not None]
        self._begin("store")
        stored = self._read_stored([requests[i] for i in due])
        accepted: dict[str, AcceptedUpload] = {}
        self._begin("wire")
        checked = self.reader.read_many([requests[i] for i in due], stored)
        for place, i in enumerate(due):
            answers[i] = self._accept(requests[i], stored, accepted, checked.get(place))
        if not accepted:
            return
        self._begin("store")
        failures = self._write([upload.record for upload in accepted.values()])
        self._begin("exchange")
        for client, upload in accepted.items():
            if client not in failures:
                is_new = client not in self.versions
                try:
                    self._apply(upload)
                    if is_new:
                        self.on_join(client)
                except Exception as error:  # it is stored: the next upload of this client finds it there
                    self._keys.pop(client, None)
                    failures[client] = failed(error, client)
        for i in due:
            answers[i] = answers[i] or failures.get(requests[i].client)

    def _read_stored(self, requests: Sequence[SyncRequest]) -> dict[str, Record]:
        """Return the stored records of the clients that upload.

        If no other process writes, a record is read only if its upload is needed, because a request has a part of one
        or repeats it; any other is made from memory, without its body.
        """
        keys = self._keys
        whole = {
            request.client
            for request in requests
            if self.store.shared
            or request.client not in keys
            or request.base != NO_VERSION
            or (request.key and request.key == keys[request.client])
        }
        stored = self.store.read(sorted(whole)) if whole else {}
        rest = {request.client for request in requests} - whole
        return stored | {c: Record(c, self.versions[c], keys[c], b"", self.updated[c]) for c in rest}

    def _accept(
        self,
        request: SyncRequest,
        stored: Mapping[str, Record],
        accepted: dict[str, AcceptedUpload],
        checked: CheckedUpload | None,
    ) -> Problem | None:
        """Add an upload to ``accepted`` unless it is stored already; return the reason if it is refused."""
        client = request.client
        is_new = client not in self.versions and client not in accepted
        if is_new and len(self) + len(accepted.keys() - self.versions.keys()) >= self.limits.clients:
            return Problem("too_many_clients", f"{len(self)} clients, at most {self.limits.clients}")
        before = stored.get(client)
        if client in accepted:
            before, checked = accepted[client].record, None
        try:
            upload = self.reader.read(request, before, checked)
        except Problem as problem:
            return problem
        except InputError as error:
            return Problem("bad_upload", str(error))
        except Exception as error:  # a bug of ours, and the others of the batch are answered
            return failed(error, client)
        if upload is not None:
            accepted[client] = upload
        return None

    def _write(self, records: Sequence[Record]) -> dict[str, Problem]:
        """Store records; return why some were not written, by client: a later one is stored, or its row is held.

        After a failure, the next upload of these clients reads their records from the store again: a write that failed
        may have been stored nevertheless, so what is in memory cannot be trusted.
        """
        try:
            late = self.store.write(records)
            stored = self.store.read(sorted(late)) if late else {}
        except BaseException:
            for record in records:
                self._keys.pop(record.client, None)
            raise
        problems = {}
        for record in records:
            if record.client in late:
                there = stored[record.client].version if record.client in stored else NO_VERSION
                detail = "somebody holds the row of this client; nothing was stored, try again later"
                held = Problem("store_unavailable", detail, retry_after=STORE_RETRY)
                problems[record.client] = stale(record.version, there) if there >= record.version else held
        return problems

    def _apply(self, upload: AcceptedUpload) -> None:
        record = upload.record
        before = self.labels.get(record.client, 0)
        self.exchange.store(record.client, upload.prepared)
        if (labels := self.labels.get(record.client, 0)) != before:
            self.on_labels(record.client, labels)
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

    def _answers(self, requests: Sequence[SyncRequest], answers: list[Answer | None]) -> list[Answer]:
        asking = []
        for i, request in enumerate(requests):
            if answers[i] is None and request.precision is not None:
                if request.client in self.versions:
                    asking.append(i)
                else:
                    detail = f"client {request.client!r} has uploaded nothing yet: upload first"
                    answers[i] = Problem("unknown_client", detail)
        word = self._fleet_word()
        downloads = dict(zip(asking, self._downloads([requests[i] for i in asking]), strict=True))
        finished: list[Answer] = []
        for i, (request, answer) in enumerate(zip(requests, answers, strict=True)):
            if answer is None:
                download, version = downloads.get(i), self.versions.get(request.client, NO_VERSION)
                shared = self.reports.is_shared(request.client)
                if isinstance(download, Problem):
                    answer = download
                else:
                    answer = SyncReply(
                        self.task.fingerprint, version, download=download, name_shared=shared, fleet=word
                    )
            finished.append(answer)
        return finished

    def _fleet_word(self) -> FleetWord | msgspec.UnsetType:
        """Return what every device is told; nothing where there are neither labels nor images to flag."""
        pairs, share = self.reports.pairs, self.limits.flag
        if not pairs.differing and not share:
            return msgspec.UNSET
        threshold = threshold_of(self.reports.mcm, self.task.zero_shot.classes, share) if share else 0.0
        return FleetWord((pairs.helped, pairs.harmed, pairs.neither), share, min(threshold, 1.0))

    def _downloads(self, requests: Sequence[SyncRequest]) -> list[tuple[Block, ...] | Problem]:
        """Return the download of each request; where all at once fail, one by one: the others are answered."""
        if not requests:
            return []
        clients = [request.client for request in requests]
        try:
            self._begin("exchange")
            if isinstance(self.exchange, GlobalMemory) and self.exchange.taught() is None:
                picked = self.exchange.pick(clients)
                self._begin("wire")
                return list(self._picked_blocks(picked, requests))
            messages = self.exchange.pull_many(clients)
            self._begin("wire")
            dim, pairs = self.task.zero_shot.dim, zip(messages, requests, strict=True)
            return [encode(message, request.precision or "", dim, _base(request)) for message, request in pairs]
        except Exception as error:
            if len(requests) == 1:
                return [failed(error, clients[0])]
            log.exception("downloads cannot be made together")
        return [answer for request in requests for answer in self._downloads([request])]

    def _picked_blocks(self, picked: Any, requests: Sequence[SyncRequest]) -> list[tuple[Block, ...]]:
        """Return what ``encode`` returns for each of the downloads of Latte; every row is encoded once for all."""
        blocks: dict[int, tuple[Block, ...]] = {}
        dim = self.task.zero_shot.dim
        for precision in dict.fromkeys(request.precision or "" for request in requests):
            places = [i for i, request in enumerate(requests) if request.precision == precision]
            mine, form = picked.of(places), RowFormat.of(precision, dim, _FLOAT32)
            as_they_are = form.stride == 4 * dim and _FLOAT32.newbyteorder("<").isnative
            rows = self.exchange.picked_vectors(mine, precision, None if as_they_are else form.encode).view(np.uint8)
            whole = Block("vectors", "f4", (*mine.rows.shape[1:], dim), precision, b"")
            for i, encoded, entropy, valid in zip(places, rows, mine.entropy, mine.valid, strict=True):
                base = _base(requests[i])
                if base is None and valid.all():  # msgspec takes a view like bytes, without a copy
                    vectors = msgspec.structs.replace(whole, data=cast(bytes, encoded.reshape(-1).data))
                else:
                    vectors = vector_block(whole, encoded, ~valid.reshape(-1), base)
                numbers = number_block("entropy", entropy, precision), number_block("valid", valid, precision)
                blocks[i] = (vectors, *numbers)
        return [blocks[i] for i in range(len(requests))]


def _base(request: SyncRequest) -> HeldRows | None:
    return HeldRows(request.have) if request.have else None


def failed(error: Exception, client: str) -> Problem:
    """Return the answer to a request at which this program failed; the log has the traceback."""
    log.error("a request of client %r failed", client, exc_info=error)
    return Problem("internal", "the server's log says more")


def store_problem(error: OSError) -> Problem:
    """Return the answer to a client if the store has a problem; the details go to the log only."""
    log.error("store: %s", error)
    if isinstance(error, StoreFullError):
        return Problem("store_full", "nothing was stored; try again later", retry_after=STORE_RETRY)
    detail = "the store does not answer: whether anything was stored is not known; send the same again later"
    return Problem("store_unavailable", detail, retry_after=STORE_RETRY)


def stale(version: int, stored: int) -> Problem:
    """Return the refusal of an upload that is not later than what is ``stored``."""
    return Problem("stale_version", f"version {version}, and {stored} is stored", more={"stored_version": stored})


def served_exchange(task: Task) -> Any:
    """Return the exchange of a task; refuse an exchange without ``prepare``, ``store`` and ``forget``.

    A server checks an upload before it stores it, so it needs an exchange that does these in two steps.
    """
    exchange = create_exchange(task.method, task.zero_shot, task.params)
    if not isinstance(exchange, Verifying) or not hasattr(exchange, "forget"):
        raise refuse(
            "exchange", type(exchange).__name__, "one with prepare, store and forget, as latte.BaseExchange has"
        )
    return exchange
