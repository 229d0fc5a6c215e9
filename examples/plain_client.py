"""A client of Latte that was written after docs/protocol.md alone: the standard library, numpy and msgspec.

python examples/plain_client.py http://127.0.0.1:8420 "camera 8" embeddings.npy      # rows (n, D)

It joins, reads the task, classifies rows with zero-shot and its memory, and syncs now and then.
"""

import hashlib
import json
import math
import os
import sys
import urllib.request
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

Memory = list[list[tuple[float, NDArray[Any]]]]  # per class: entropies and vectors
NEXT, ZERO = -1, -2
TYPES = {"f4": "<f4", "f8": "<f8", "single": "<f4", "exact": "<f4", "fp32": "<f4", "fp16": "<f2"}  # of this method


def row_ids(rows: NDArray[Any], seed: int) -> bytes:
    return b"".join(hashlib.sha256(seed.to_bytes(8, "little") + row.tobytes()).digest()[:8] for row in rows)


def hadamard(columns: NDArray[Any]) -> None:
    """Multiply (P, n) in place by the Walsh-Hadamard matrix over sqrt(P), with sums of pairs at distance 1, 2, 4, …"""
    power = len(columns)
    for half in (1 << bit for bit in range(power.bit_length() - 1)):
        pairs = columns.reshape(power // (2 * half), 2, half, -1)
        pairs[:, 0], pairs[:, 1] = pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]
    columns *= np.float32(1 / math.sqrt(power))


def sign(place: int) -> float:
    x = (place ^ place >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ x >> 27) * 0x94D049BB133111EB % 2**64
    return -1.0 if (x ^ x >> 31) >> 63 else 1.0


def decode_rows(rows: NDArray[Any], coding: str, dim: int) -> NDArray[Any]:
    if coding in ("exact", "fp32", "fp16"):
        return rows.view(TYPES[coding]).astype(np.float32)
    scale, packed = np.ascontiguousarray(rows[:, :4]).view("<f4"), np.ascontiguousarray(rows[:, 4:])
    if coding == "int8":
        whole = packed.view("i1").astype(np.float32)
    else:
        halves = np.stack([packed & 15, packed >> 4], axis=2).reshape(len(rows), -1)
        whole = halves[:, :dim].astype(np.float32) - np.float32(8)
    columns, power = np.ascontiguousarray((whole * scale).T), 1 << (dim.bit_length() - 1)
    signs = np.array([sign(place) for place in range(dim)], np.float32)[:, None]
    if power < dim:
        hadamard(columns[-power:])
        columns *= signs
    hadamard(columns[:power])
    return np.ascontiguousarray((columns * signs).T)


class Client:
    """One client of a federation: its memory, and what it and the server know of each other."""

    def __init__(self, server: str, name: str, token: str = "", precision: str = "fp16") -> None:
        self.server, self.name, self.token, self.precision = server, name, token, precision
        content = self.call("GET", "/v1/task")
        size = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + size])
        self.fingerprint, about = header["__metadata__"]["fingerprint"], json.loads(header["__metadata__"]["task"])
        assert about["method"] == "latte", "this client knows one method"
        self.text = np.frombuffer(content[8 + size :], "<f4").reshape(header["text"]["shape"])
        self.classnames, self.scale, self.params = about["classnames"], about["scale"], about["params"]
        joined = self.call("POST", "/v1/join", json.dumps({"client": name, "task": self.fingerprint}).encode())
        self.version, self.acknowledged = json.loads(joined)["version"], 0
        self.uploaded, self.held = np.zeros((0, 0), np.uint8), np.zeros((0, 0), np.uint8)
        self.seed = int.from_bytes(os.urandom(8), "little") >> 1
        self.memory: Memory = [[] for _ in self.classnames]  # its own; an item is replaced, never changed
        self.others: Memory = list(self.memory)

    def call(self, verb: str, path: str, body: bytes | None = None, kind: str = "application/json") -> bytes:
        headers = {"Content-Type": kind} | ({"Authorization": f"Bearer {self.token}"} if self.token else {})
        request = urllib.request.Request(self.server + path, body, headers, method=verb)
        with urllib.request.urlopen(request, timeout=60) as answer:  # a refusal is an HTTPError, its body a problem
            return bytes(answer.read())

    def predict(self, embedding: NDArray[Any]) -> int:
        """Return the class of a unit vector (D,), and remember it."""
        p, logits = self.params, self.scale * (self.text.astype(np.float64) @ embedding)
        label, weights = int(logits.argmax()), np.exp(logits - logits.max())
        share = np.maximum(weights / weights.sum(), 1e-300)
        entropy = float(-(share * np.log(share)).sum() / math.log(len(share)))
        self.memory[label] = sorted([*self.memory[label], (entropy, embedding)], key=lambda item: item[0])[: p["k_l"]]
        for y, own in enumerate(self.memory):
            items = sorted([*own, *self.others[y]], key=lambda item: item[0])[: p["k_l"]]
            total = sum((np.exp(p["beta"] * (v @ embedding - 1) - p["gamma"] * h) * v for h, v in items), 0 * embedding)
            logits[y] += p["alpha"] * self.scale * (total @ embedding) / max(np.linalg.norm(total), 1e-12)
        return int(logits.argmax())

    def sync(self) -> dict[str, NDArray[Any]]:
        """Upload a prototype per class, without rows that the server has; return the download, completed."""
        seen = np.array([bool(items) for items in self.memory])
        vectors = np.zeros_like(self.text)
        for y in np.flatnonzero(seen):
            total = sum(np.exp(-self.params["gamma"] * h) * v.astype(np.float64) for h, v in self.memory[y])
            vectors[y] = total / np.linalg.norm(total)
        rows = vectors.astype("<f2").view(np.uint8)  # the coding fp16
        source = np.where(seen, NEXT, ZERO).astype("<i4")
        if self.acknowledged:
            same = seen & (rows == self.uploaded).all(axis=1)
            source[same] = np.flatnonzero(same)
        first = ["vectors", "f4", vectors.shape, "fp16", rows[source == NEXT].tobytes(), source.tobytes()]
        blocks = [first, ["seen", "b1", seen.shape, "bits", np.packbits(seen).tobytes()]]
        have = [{"array": "vectors", "seed": self.seed, "ids": row_ids(self.held, self.seed)}] if len(self.held) else []
        request = {"task": self.fingerprint, "client": self.name, "protocol": 1, "version": self.version + 1}
        request |= {"base": self.acknowledged, "key": os.urandom(16), "upload": blocks, "precision": self.precision}
        body = msgspec.msgpack.encode(request | {"have": have})
        reply = msgspec.msgpack.decode(self.call("POST", "/v1/sync", body, "application/vnd.latte+msgpack"))
        self.version = self.acknowledged = reply["version"]
        self.uploaded = np.where(seen[:, None], rows, 0).astype(np.uint8)
        download = {block[0]: self.array(*block) for block in reply["download"]}
        slots = list(zip(download["entropy"], download["vectors"], download["valid"], strict=True))
        self.others = [[(h, v) for h, v, ok in zip(*of, strict=True) if ok] for of in slots]
        return download

    def array(self, name: str, dtype: str, shape: list[int], coding: str, data: bytes, source: bytes = b"") -> Any:
        if coding == "bits":
            return np.unpackbits(np.frombuffer(data, np.uint8), count=math.prod(shape)).astype(bool).reshape(shape)
        if coding in ("raw", "single"):
            return (
                np.frombuffer(data, TYPES[coding if coding == "single" else dtype]).astype(TYPES[dtype]).reshape(shape)
            )
        dim = shape[-1]
        size = {"fp16": 2 * dim, "int8": 4 + dim, "int4": 4 + (dim + 1) // 2}.get(coding, 4 * dim)
        sent = np.frombuffer(data, np.uint8).reshape(-1, size)
        places = np.frombuffer(source, "<i4") if source else np.full(len(sent), NEXT)
        rows = np.zeros((len(places), size), np.uint8)
        rows[places == NEXT] = sent
        if len(self.held):
            rows[places >= 0] = self.held[places[places >= 0]]
        self.held = rows if name == "vectors" else self.held  # the label head of others is not used here
        return decode_rows(rows, coding, dim).reshape(shape)


if __name__ == "__main__":
    client = Client(sys.argv[1], sys.argv[2], os.environ.get("LATTE_TOKEN", ""))
    for number, row in enumerate(np.load(sys.argv[3]).astype(np.float32)):
        if number % 10 == 9:
            client.sync()
        print(client.classnames[client.predict(row / np.linalg.norm(row))])
