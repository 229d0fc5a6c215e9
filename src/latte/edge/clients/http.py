"""The exchange of a federation over HTTP: the same calls as in one process, for Python programs on any machine.

A client sends only rows that changed since its last upload, and gets only rows that it does not have. A request that
fails on the way is sent again with the same key, so that it counts once.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from ...core.validate import choice, client_name, message
from ...errors import InputError, refuse
from ...files.documents import shorten
from ...methods import describe, resolve
from ...methods.traffic import traffic_of
from ...wire import messages
from ...wire.blocks import AtMost, complete, decode, encode, encoded_rows
from ...wire.rows import PRECISIONS, EncodedRows
from ...wire.task import Task, describe_difference, parse_task
from .calls import MOST_ANSWER, Calls, Connection, RefusedError

PARALLEL = 16  # requests at once when many clients pull
_AGAIN = ("stale_version", "unknown_base")  # problems that sending everything as a later version solves
_SLACK = 1 << 20  # bytes of an answer beside its arrays


@dataclass(slots=True)
class Conversation:
    """What a client knows of the server: its last acknowledged upload, and the rows of its last download."""

    version: int = messages.NO_VERSION
    acknowledged: int = messages.NO_VERSION
    uploaded: dict[str, EncodedRows] = field(default_factory=dict)
    held: dict[str, EncodedRows] = field(default_factory=dict)
    reused: bool = True  # whether listing what is held was of any use the last time
    name_shared: bool = False  # whether another device uses the name, too, as the last answer says
    fleet: messages.FleetWord = field(
        default_factory=messages.FleetWord
    )  # what the last answer says of the whole fleet
    seed: int = field(default_factory=lambda: secrets.randbits(63))
    lock: threading.Lock = field(default_factory=threading.Lock)


class HttpExchange:
    """The exchange of the server at the address ``server``. Any number of threads may use it.

    The server's task is ``shared_task``: ``shared_task.zero_shot`` has the class names, the text rows (C, D) and the
    logit scale, ``shared_task.sync`` and ``period`` say when to sync. With these, any encoder of the same space will
    do, and a device needs no text model (examples/own_client.py)::

        with HttpExchange("http://127.0.0.1:8420") as exchange:
            member = new_member(exchange.shared_task)  # the method of the task
            member.predict(embed(picture))  # a unit row (D,)
            sync([("camera 7", member)], exchange)

    Without a ``task``, it comes from the server; a task that differs from the server's is refused. ``tokens`` is one
    token, or a mapping from the names of clients to their tokens. ``precision`` is that of vectors on the way, in both
    directions: "exact", "fp32", "fp16", "int8" or "int4".
    """

    def __init__(
        self,
        server: str,
        task: Task | None = None,
        *,
        tokens: str | Mapping[str, str] | None = None,
        precision: str = "fp32",
        connection: Connection | None = None,
    ) -> None:
        choice("precision", precision, PRECISIONS)
        self.precision = precision
        self._calls = Calls(server, tokens, connection or Connection())
        try:
            self.shared_task = fetch_task(self._calls)
            if task is not None and task.fingerprint != self.shared_task.fingerprint:
                differs = describe_difference(self.shared_task.fingerprint, task.fingerprint)
                raise RefusedError("other_task", 409, f"another task than the server's: {differs} differ")
        except BaseException:
            self._calls.close()
            raise
        self._info = describe(self.shared_task.method)
        self._most = most_download(self.shared_task)
        self._conversations: dict[str, Conversation] = {}
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"HttpExchange({self._calls.server!r}, {self.shared_task!r}, precision={self.precision!r})"

    @property
    def task(self) -> str:
        """The fingerprint of the classifier that all clients share."""
        return self.shared_task.zero_shot.fingerprint

    # --- the exchange -------------------------------------------------------------------------------------

    def push(self, client: str, upload: Any, report: messages.DeviceReport | None = None) -> None:
        """Upload the latest summary of ``client``."""
        self._send(client_name(client), upload, download=False, report=report)

    def pull(self, client: str) -> Any:
        """Download what ``client`` gets from the others."""
        return self._send(client_name(client), None, download=True)

    def pull_many(self, clients: Sequence[str]) -> list[Any]:
        """Download what each of ``clients`` gets; the server answers waiting requests together, with one product."""
        names = [client_name(client) for client in clients]
        if len(set(names)) < 2:
            return [self.pull(name) for name in names]
        with ThreadPoolExecutor(min(PARALLEL, len(names))) as pool:
            return list(pool.map(self.pull, names))

    def push_pull(self, client: str, upload: Any, report: messages.DeviceReport | None = None) -> Any:
        """Upload and download in one round trip."""
        return self._send(client_name(client), upload, download=True, report=report)

    def name_is_shared(self, client: str) -> bool:
        """Return whether, as the server says, another device has used the name of ``client`` lately."""
        return self._conversation(client_name(client)).name_shared

    def fleet(self, client: str) -> messages.FleetWord:
        """Return what the server said of the whole fleet, when it last answered ``client``."""
        return self._conversation(client_name(client)).fleet

    def leave(self, client: str) -> bool:
        """Remove what ``client`` has uploaded; return whether there was anything."""
        name = client_name(client)
        with self._lock:
            self._conversations.pop(name, None)
        return bool(self._calls.post_json("/v1/leave", name, {"client": name})["removed"])

    def close(self) -> None:
        """Close the connections."""
        self._calls.close()

    def __enter__(self) -> HttpExchange:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- one request --------------------------------------------------------------------------------------

    def _send(self, client: str, upload: Any, download: bool, report: messages.DeviceReport | None = None) -> Any:
        if upload is not None:
            message("upload", upload, self._info.kind.Upload, self.task)
        talk = self._conversation(client)
        with talk.lock:
            try:
                return self._exchange(client, talk, upload, download, report)
            except RefusedError as error:
                if error.code not in _AGAIN:
                    raise
                talk.version, talk.acknowledged = max(talk.version, error.stored_version), messages.NO_VERSION
                talk.uploaded = {}
                return self._exchange(client, talk, upload, download, report)

    def _conversation(self, client: str) -> Conversation:
        with self._lock:
            return self._conversations.setdefault(client, Conversation())

    def _exchange(
        self, client: str, talk: Conversation, upload: Any, download: bool, report: messages.DeviceReport | None
    ) -> Any:
        request = self._request(client, talk, upload, download, report)
        route = "download" if upload is None else "sync" if download else "upload"
        answer = self._calls.post(f"/v1/{route}", client, messages.pack(request), self._most)
        if messages.protocol_of(answer) not in messages.SPOKEN:
            raise RefusedError(messages.UNSUPPORTED, 200, messages.upgrade_advice([messages.protocol_of(answer)]))
        return self._accept(talk, request, messages.unpack(answer, messages.SyncReply))

    def _request(
        self, client: str, talk: Conversation, upload: Any, download: bool, report: messages.DeviceReport | None
    ) -> messages.SyncRequest:
        blocks, base = None, messages.NO_VERSION
        if upload is not None:
            talk.version += 1
            base = talk.acknowledged
            before = messages.SameRows(talk.uploaded) if base != messages.NO_VERSION else None
            blocks = encode(upload, self.precision, self.shared_task.zero_shot.dim, before)
        # the list of rows that the client has; if the last list saved nothing, only now and then
        listed = download and talk.held and (talk.reused or talk.version % 16 == 0)
        return messages.SyncRequest(
            task=self.shared_task.fingerprint,
            client=client,
            protocol=self._calls.protocol,
            version=talk.version,
            base=base,
            key=secrets.token_bytes(16),
            upload=blocks,
            precision=self.precision if download else None,
            have=messages.have_of(talk.held, talk.seed) if listed else (),
            report=report,
        )

    def _accept(self, talk: Conversation, request: messages.SyncRequest, reply: messages.SyncReply) -> Any:
        if request.upload is not None and reply.version == request.version:
            rows = encoded_rows(complete(request.upload, AtMost(self._most), talk.uploaded))
            talk.acknowledged, talk.uploaded = request.version, rows
        talk.name_shared = reply.name_shared
        talk.fleet = reply.fleet if isinstance(reply.fleet, messages.FleetWord) else messages.FleetWord()
        if request.precision is None:
            return None
        blocks = complete(reply.download or (), AtMost(self._most), talk.held)
        download = decode(blocks, self._info.kind.Download, self.task)
        talk.reused = any(block.source for block in reply.download or ()) or not request.have
        talk.held = encoded_rows(blocks)
        return download


def fetch_task(calls: Calls) -> Task:
    """Return the task of a server; refuse a server that has none, because it is of another kind."""
    try:
        return parse_task(calls.get("/v1/task"), f"{calls.server}/v1/task")
    except RefusedError:
        raise
    except InputError as error:
        want = "the address of latte serve, of a version that this one understands"
        raise refuse("--server", f"{calls.server}, where no Latte server answers ({shorten(error)})", want) from None


def most_download(task: Task) -> int:
    """Return how many bytes an answer of the server may have: what the method says of a download, in full precision."""
    params = resolve(task.method, dict(task.params))
    traffic = traffic_of(task.method, params, task.zero_shot.classes, task.zero_shot.dim, "fp32")
    return MOST_ANSWER if traffic is None else _SLACK + 3 * traffic.whole_down  # exact rows are twice as long
