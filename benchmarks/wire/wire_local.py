"""A device and a server in one process: every message is made, packed, unpacked and answered, but not carried."""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from latte.edge.clients.http import Conversation, HttpExchange, most_download
from latte.methods import describe
from latte.server.hub.hub import Hub
from latte.server.store.base import Record
from latte.wire.blocks import encode
from latte.wire.messages import PROTOCOL, SyncReply, SyncRequest, pack, unpack
from latte.wire.task import Task


@dataclass(frozen=True)
class Size:
    """The bytes of one request and its reply, with what they leave out and ``whole``; ``have`` lists what is held."""

    client: str
    rows: int
    up: int
    up_whole: int
    have: int
    down: int
    down_whole: int

    def bytes_with(self, deltas: str) -> tuple[int, int]:
        """Return the bytes up and down with deltas in one direction, in both or in none."""
        up = self.up if deltas in ("up", "both") else self.up_whole
        if deltas in ("down", "both"):
            return up + self.have, self.down
        return up, self.down_whole


class RamStore:
    """The latest uploads, without a disk."""

    shared = False

    def __init__(self) -> None:
        self._records: dict[str, Record] = {}

    def claim(self, task: str) -> str:
        return task

    def secret(self) -> int:
        return 0

    def read(self, clients: Sequence[str]) -> dict[str, Record]:
        return {client: self._records[client] for client in clients if client in self._records}

    def write(self, records: Sequence[Record]) -> frozenset[str]:
        self._records |= {record.client: record for record in records}
        return frozenset()

    def changes(self) -> Iterator[Record]:
        return iter(())


class HubCalls:
    """Stands in for the connection to a server: messages are packed and unpacked, but not carried."""

    server, protocol = "in this process", PROTOCOL

    def __init__(self, hub: Hub) -> None:
        self.hub = hub

    def post(self, path: str, client: str, body: bytes) -> bytes:
        return self.post_many([body])[0]

    def post_many(self, bodies: Sequence[bytes]) -> list[bytes]:
        """Answer requests that a server would have found waiting together."""
        replies = self.hub.run([unpack(body, SyncRequest) for body in bodies])
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        return [pack(reply) for reply in replies]  # type: ignore[arg-type]


class LocalExchange(HttpExchange):
    """What a device calls, in front of a hub in this process."""

    def __init__(self, task: Task, precision: str) -> None:
        self.hub = Hub(task, RamStore())  # type: ignore[arg-type]
        self.precision, self.shared_task, self.sizes = precision, task, list[Size]()
        self._calls = HubCalls(self.hub)  # type: ignore[assignment]
        self._info, self._most = describe(task.method), most_download(task)
        self._conversations: dict[str, Conversation] = {}
        self._lock = threading.Lock()

    def pull_many(self, clients: Sequence[str]) -> list[Any]:
        return self.sync_many(dict.fromkeys(clients))

    def sync_many(self, uploads: Mapping[str, Any]) -> list[Any]:
        """Upload and download in one round trip, for clients that sync at the same time."""
        talks = [self._conversation(client) for client in uploads]
        requests = [
            self._request(client, talk, upload, True, None)
            for talk, (client, upload) in zip(talks, uploads.items(), strict=True)
        ]
        answers = self._calls.post_many([pack(request) for request in requests])  # type: ignore[attr-defined]
        replies = [unpack(answer, SyncReply) for answer in answers]
        downloads = [self._accept(*one) for one in zip(talks, requests, replies, strict=True)]
        if any(upload is not None for upload in uploads.values()):
            self.sizes += map(self._size, requests, replies, uploads.values(), downloads)
        return downloads

    def _size(self, request: SyncRequest, reply: SyncReply, upload: Any, download: Any) -> Size:
        dim = self.shared_task.zero_shot.dim
        alone = msgspec.structs.replace(request, have=())
        whole = msgspec.structs.replace(alone, upload=encode(upload, self.precision, dim))
        answer = msgspec.structs.replace(reply, download=encode(download, self.precision, dim))
        return Size(
            request.client,
            rows_in(upload) + rows_in(download),
            up=len(pack(alone)),
            up_whole=len(pack(whole)),
            have=len(pack(request)) - len(pack(alone)),
            down=len(pack(reply)),
            down_whole=len(pack(answer)),
        )

    # --- what run_ristretto asks for --------------------------------------------------------------------------

    @property
    def clients(self) -> tuple[str, ...]:
        return tuple(self.hub.versions)

    def pull_traced(self, clients: Sequence[str]) -> tuple[list[Any], np.ndarray]:
        return self.pull_many(clients), np.zeros((len(clients), len(self.clients)))


def rows_in(message: Any) -> int:
    """Return the number of vectors in a message that are not zero."""
    vectors = getattr(message, type(message).vector_fields[0])
    return int(vectors.any(axis=-1).sum())
