"""Conversations of clients and a server as they were recorded, and a reader of protocol 1 that does not change.

python tests/support/recorded_messages.py tests/wire/recorded/v1

records them anew: only for a new version of the protocol, into a folder of its own. What is there stays as it is.
"""

from __future__ import annotations

import base64
import json
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

FOLDER = Path(__file__).parent.parent / "wire" / "recorded"
METHODS = ("latte", "ristretto")
PRECISIONS = ("exact", "fp32", "fp16", "int8", "int4")
TASK = "GET /v1/task"


@dataclass(frozen=True)
class Call:
    """A request and its answer; bodies are bytes."""

    route: str  # such as "POST /v1/sync"
    request: bytes
    status: int
    answer: bytes

    @property
    def is_json(self) -> bool:
        return self.status != 200 or self.route.partition(" ")[2] in ("/v1/whoami", "/v1/join", "/v1/leave")


def read_conversation(path: Path) -> list[Call]:
    rows = json.loads(path.read_text("utf-8"))
    return [Call(r["route"], base64.b64decode(r["request"]), r["status"], base64.b64decode(r["answer"])) for r in rows]


def write_conversation(path: Path, calls: list[Call]) -> None:
    rows = [asdict(call) for call in calls]
    for row in rows:
        row |= {name: base64.b64encode(row[name]).decode() for name in ("request", "answer")}
    path.write_text(json.dumps(rows, indent=1) + "\n", "utf-8")


# --- recording -------------------------------------------------------------------------------------------------


def note_calls(http: Any, calls: list[Call]) -> None:
    """Let an exchange note what passes through it."""
    send = http._calls._send

    def noting(verb: str, address: str, headers: Any, content: bytes | None, most: int) -> Any:
        answer, route = send(verb, address, headers, content, most), f"{verb} /{address.split('/', 3)[3]}"
        calls.append(Call(route, content or b"", answer.status, answer.content))
        return answer

    http._calls._send = noting


def record(method: str, precision: str, folder: Path) -> list[Call]:
    """Let clients talk to a server: whole messages, then without the rows that the other side has, and refusals."""
    from devices import small_task
    from latte.edge.clients.http import HttpExchange
    from serving import IMPATIENT, serving

    task, calls = small_task(method), []
    with (
        serving(task, folder) as server,
        HttpExchange(server.address, precision=precision, connection=IMPATIENT) as http,
    ):
        note_calls(http, calls)
        http._calls.get("/v1/task")
        http._calls.get("/v1/whoami")
        http._calls.post_json("/v1/join", "ann", {"client": "ann", "task": task.fingerprint})
        talk(http, task)
        if precision == "fp32":
            provoke(http, task)
        http.leave("bob")
    return calls


def talk(http: Any, task: Any) -> list[Any]:
    """Sync as devices do; return the downloads."""
    from devices import rows
    from latte.methods import create
    from latte.wire.messages import DeviceReport

    ann, bob = (create(task.method, task.zero_shot, dict(task.params)) for _ in range(2))
    downloads = []
    ann.predict_many(rows(12, seed=1))
    bob.predict_many(rows(12, seed=2))
    http.push("bob", bob.summary(), DeviceReport(12, 0, 0.75, 0.0, 0))
    for seed in (3, 4, 5):  # all rows, then those that changed
        downloads.append(http.push_pull("ann", ann.summary(), DeviceReport(12, 0, 1.0, 0.0, 0, software="latte 0")))
        ann.receive(downloads[-1])
        ann.predict_many(rows(1, seed=seed))
    downloads.append(http.pull("ann"))
    return downloads


def provoke(http: Any, task: Any) -> None:
    """Send what is refused."""
    from devices import rows
    from latte.edge.clients.calls import RefusedError
    from latte.methods import create
    from latte.wire.blocks import encode
    from latte.wire.messages import SyncRequest, pack

    ann = create(task.method, task.zero_shot, dict(task.params))
    ann.predict_many(rows(12, seed=1))
    blocks = encode(ann.summary(), "fp32", task.zero_shot.dim)
    bad = (
        pack(SyncRequest(task.fingerprint, "ann", version=1, upload=blocks)),  # stale_version
        pack(SyncRequest(task.fingerprint, "ann", version=99, base=77, upload=blocks)),  # unknown_base
        pack(SyncRequest("-".join("abcdef"), "ann", version=99, upload=blocks)),  # other_task
        pack(SyncRequest(task.fingerprint, "nobody", precision="fp32")),  # a download for a stranger
        b"nonsense",  # bad_message
    )
    for body in bad:
        try:
            http._calls.post("/v1/sync", "ann", body)
        except RefusedError:
            continue


# --- a reader of protocol 1, after docs/protocol.md, without any code of the project -----------------------------

_TYPES = {"f4": "<f4", "f8": "<f8", "b1": "?", "i4": "<i4", "i8": "<i8", "u1": "u1", "u4": "<u4", "u8": "<u8"}


class OldClient:
    """Reads the downloads of one client, with what it has of the one before."""

    def __init__(self) -> None:
        self._held: dict[str, np.ndarray] = {}

    def read(self, reply: dict[str, Any]) -> dict[str, np.ndarray]:
        arrays = {}
        for name, dtype, shape, coding, data, *source in reply["download"]:
            arrays[name] = self._array(name, _TYPES[dtype], tuple(shape), coding, data, *source)
        self._held = {name: array for name, array in arrays.items() if array.ndim > 1}
        return arrays

    def _array(self, name, dtype, shape, coding, data, source=b"") -> np.ndarray:
        if coding in ("raw", "single"):
            return np.frombuffer(data, "<f4" if coding == "single" else dtype).astype(dtype).reshape(shape)
        if coding == "bits":
            return np.unpackbits(np.frombuffer(data, "u1"), count=int(np.prod(shape))).astype(bool).reshape(shape)
        sent = iter(_rows(coding, data, shape[-1], dtype))
        places = np.frombuffer(source, "<i4") if source else np.full(int(np.prod(shape[:-1])), -1)
        held = self._held[name].reshape(-1, shape[-1]) if name in self._held else ()
        made = [next(sent) if p == -1 else np.zeros(shape[-1]) if p == -2 else held[p] for p in places]
        return np.array(made, dtype).reshape(shape)


def _rows(coding: str, data: bytes, dim: int, dtype: str) -> np.ndarray:
    if coding in ("exact", "fp32", "fp16"):
        return np.frombuffer(data, {"exact": dtype, "fp32": "<f4", "fp16": "<f2"}[coding]).reshape(-1, dim)
    size = 4 + (dim if coding == "int8" else (dim + 1) // 2)
    raw = np.frombuffer(data, "u1").reshape(-1, size)
    scale, packed = raw[:, :4].copy().view("<f4"), raw[:, 4:]
    if coding == "int8":
        whole = packed.view("i1").astype(float)
    else:
        whole = (
            np.stack([packed & 15, packed >> 4], axis=2).reshape(len(raw), 2 * packed.shape[1])[:, :dim].astype(float)
            - 8
        )
    return _turned_back(whole) * scale


def _turned_back(rows: np.ndarray) -> np.ndarray:
    """Undo the rotation of rows whose length is a power of two: Hadamard, then signs."""
    dim = rows.shape[1]
    assert dim & (dim - 1) == 0, "the recorded messages have eight dimensions"
    matrix = np.ones((1, 1))
    while len(matrix) < dim:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return rows @ matrix / np.sqrt(dim) * np.array([-1.0 if _mixed(i) >> 63 else 1.0 for i in range(dim)])


def _mixed(x: int) -> int:
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ x >> 27) * 0x94D049BB133111EB % 2**64
    return x ^ x >> 31


def plain(content: bytes) -> Any:
    """Return msgpack as plain values."""
    return msgspec.msgpack.decode(content)


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True)
    for method in METHODS:
        for precision in PRECISIONS:
            with tempfile.TemporaryDirectory() as state:
                calls = record(method, precision, Path(state))
            write_conversation(folder / f"{method}-{precision}.json", calls)


if __name__ == "__main__":
    main()
