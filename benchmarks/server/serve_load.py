"""The load on a server: processor time, rate and latency of syncs, measured from another process.

python benchmarks/server/serve_load.py --clients 1000 20000 --concurrent 64 --seconds 8
python benchmarks/server/serve_load.py --abusive          # what one client that never pauses costs 50 good ones
python benchmarks/server/serve_load.py --clients 100 300 1000 3000 10000 20000 --seconds 4 \\
    --out benchmarks/results/serve-load.jsonl --plot docs/figures/serve-load.svg

A server with so many known clients runs as a process of its own, with a durable store on the disk of ``--folder``. This
process plays ``--concurrent`` clients at a time: each uploads all rows of a new version and gets its download. The
processor time is that of the server process, from the operating system, divided by the number of syncs. Memory is that
after the load, without that of a server with no clients: it includes the rows that are kept as they are sent.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import msgspec
import numpy as np

from latte import Prototypes, ZeroShot
from latte.edge.joining import make_task
from latte.methods.ristretto.sums import ClassSums
from latte.server.store.base import Record, open_store
from latte.server.store.tokens import TokenFile, new_token
from latte.wire.blocks import encode
from latte.wire.messages import MEDIA_TYPE, SyncRequest, Upload, pack
from latte.wire.task import write_task

TICK = os.sysconf("SC_CLK_TCK")


def unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)


class Fleet:
    """Clients of ten domains, whose class means lie around the text embeddings."""

    def __init__(self, method: str, classes: int, dim: int, precision: str) -> None:
        self.rng = np.random.default_rng(0)
        self.text = unit(self.rng.normal(size=(classes, dim)))
        params = {"k_e": 9} if method == "latte" else {}
        self.task = make_task(ZeroShot(self.text, [f"class {y}" for y in range(classes)]), method, params)
        self.precision = precision
        self.domains = self.rng.normal(size=(10, classes, dim)) * 0.5 / np.sqrt(dim)

    def upload(self, client: int) -> tuple[object, ...]:
        noise = self.rng.normal(size=self.text.shape) * 0.3 / np.sqrt(self.text.shape[1])
        vectors = unit(self.text + self.domains[client % 10] + noise)
        mark = self.task.zero_shot.fingerprint
        if self.task.method == "latte":
            message: object = Prototypes(vectors, np.ones(len(vectors), np.bool_), mark)
        else:
            counts = self.rng.uniform(5, 50, len(vectors))
            message = ClassSums(counts, 0.7 * vectors.astype(np.float64), mark)
        return encode(message, self.precision, self.text.shape[1])  # type: ignore[arg-type]

    def prepare(self, count: int) -> None:
        """Make uploads to send, each of them different: equal ones would be ties, which take longer to decide."""
        self.bodies = [self.upload(i) for i in range(count)]
        self.sent = itertools.count()

    def fill(self, folder: Path, clients: int) -> None:
        store = open_store(folder)
        store.claim(self.task.fingerprint)
        for start in range(0, clients, 1000):
            numbers = range(start, min(start + 1000, clients))
            store.write([Record(name(i), 1, b"", pack(Upload(self.upload(i))), time.time()) for i in numbers])  # type: ignore[arg-type]
        store.close()


def name(client: int) -> str:
    return f"client {client}"


class Server:
    """A server process and its processor time."""

    def __init__(self, task: Path, folder: Path, options: Sequence[str] = ()) -> None:
        command = [
            sys.executable,
            "-m",
            "latte",
            "serve",
            str(task),
            "--folder",
            str(folder),
            "--port",
            "0",
            "--rate",
            "0",
        ]
        self.process = subprocess.Popen(
            [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self.process.stdout is not None
        match = re.search(r":(\d+)$", self.process.stdout.readline().strip())
        assert match, "the server did not start"
        self.port = int(match[1])

    def processor(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICK

    def memory(self) -> float:
        line = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{self.process.pid}/status").read_text())
        return int(line[1]) / 1024 if line else 0.0

    def metrics(self) -> dict[str, float]:
        import urllib.request

        page = urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics").read().decode()
        return {m[1]: float(m[2]) for m in re.finditer(r'latte_batch_seconds_total\{phase="(\w+)"\} (\S+)', page)}

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()


class Worker:
    """One client at a time over one connection, with a ``pause`` (seconds, random, that on average) between syncs."""

    def __init__(
        self, fleet: Fleet, port: int, clients: Sequence[int], pause: float = 0.0, token: str | None = None
    ) -> None:
        self.fleet, self.port, self.clients, self.pause = fleet, port, clients, pause
        self.head = b"Authorization: Bearer %b\r\n" % token.encode() if token else b""
        self.refused = 0
        self.bodies = fleet.bodies
        self.latencies: list[float] = []
        self.bytes = 0

    async def run(self, until: float) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 24)
        turn = 0
        while time.perf_counter() < until:
            turn += 1
            client = self.clients[turn % len(self.clients)]
            body = self._body(client, turn)
            start = time.perf_counter()
            writer.write(
                b"POST /v1/sync HTTP/1.1\r\nHost: localhost\r\n%bContent-Type: %b\r\nContent-Length: %d\r\n\r\n"
                % (self.head, MEDIA_TYPE.encode(), len(body))
                + body
            )
            head = await reader.readuntil(b"\r\n\r\n")
            size = int(re.search(rb"content-length: (\d+)", head)[1])  # type: ignore[index]
            reply = await reader.readexactly(size)
            if head.startswith(b"HTTP/1.1 429"):
                self.refused += 1
                continue
            assert head.startswith(b"HTTP/1.1 200"), reply[:400]
            self.latencies.append(time.perf_counter() - start)
            self.bytes += len(body) + size
            if self.pause:
                await asyncio.sleep(self.fleet.rng.exponential(self.pause))
        writer.close()

    def _body(self, client: int, turn: int) -> bytes:
        request = SyncRequest(
            task=self.fleet.task.fingerprint, client=name(client), version=time.time_ns(), key=os.urandom(16),
            upload=self.bodies[next(self.fleet.sent) % len(self.bodies)], precision=self.fleet.precision,  # type: ignore[arg-type]
        )  # fmt: skip
        return msgspec.msgpack.encode(request)


async def load(workers: Sequence[Worker], seconds: float) -> float:
    start = time.perf_counter()
    await asyncio.gather(*(worker.run(start + seconds) for worker in workers))
    return time.perf_counter() - start


def measure(
    fleet: Fleet, clients: int, concurrent: int, seconds: float, rounds: int, folder: Path, uploads: int
) -> dict[str, object]:
    where = folder / f"{fleet.task.method}-{clients}"
    task = folder / f"{fleet.task.method}.task"
    write_task(task, fleet.task)
    fleet.fill(where, clients)
    fleet.prepare(uploads)
    empty = Server(task, folder / "empty")
    base = empty.memory()
    empty.stop()
    server = Server(task, where)
    try:
        share = max(1, clients // concurrent)
        busy = min(concurrent, clients)
        workers = [Worker(fleet, server.port, range(i * share, (i + 1) * share)) for i in range(busy)]
        asyncio.run(load(workers, 2.0))  # warm
        spans = sorted((measure_span(server, workers, seconds) for _ in range(rounds)), key=lambda s: s["processor ms"])
        memory = server.memory()
    finally:
        server.stop()
    return {
        "method": fleet.task.method, "clients": clients, "precision": fleet.precision, "concurrent": busy,
        **spans[len(spans) // 2],
        "processor ms of all": [span["processor ms"] for span in spans],
        "kB per client in memory": round(1e3 * (memory - base) / clients, 1),
    }  # fmt: skip


def measure_span(server: Server, workers: Sequence[Worker], seconds: float) -> dict[str, float]:
    """Return the costs of the syncs of some seconds; HTTP is what the batches did not take."""
    for worker in workers:
        worker.latencies.clear()
        worker.bytes = 0
    before, phases = server.processor(), server.metrics()
    wall = asyncio.run(load(workers, seconds))
    spent, after = server.processor() - before, server.metrics()
    latencies = np.array([x for worker in workers for x in worker.latencies]) * 1e3
    syncs = len(latencies)
    parts = {f"{key} ms": round(1e3 * (after[key] - phases.get(key, 0.0)) / syncs, 3) for key in after}
    whole = 1e3 * spent / syncs
    return {
        "processor ms": round(whole, 3), **parts, "HTTP ms": round(whole - sum(parts.values()), 3),
        "syncs/s": round(syncs / wall),
        "p50 ms": round(float(np.percentile(latencies, 50)), 1),
        "p99 ms": round(float(np.percentile(latencies, 99)), 1),
        "kB per sync": round(sum(worker.bytes for worker in workers) / syncs / 1e3, 1),
    }  # fmt: skip


def measure_abuse(fleet: Fleet, clients: int, seconds: float, folder: Path) -> dict[str, object]:
    """Return the p99 of 50 good clients, each with a sync per second, without and with one that never pauses."""
    good = 50
    task, where = folder / "abuse.task", folder / "abuse"
    write_task(task, fleet.task)
    fleet.fill(where, clients)
    fleet.prepare(1024)
    tokens = []
    with closing(TokenFile(where)) as file:
        for client in range(good + 1):
            plain, stored = new_token(name(client))
            tokens.append(plain)
            file.add(stored)
    server = Server(task, where, ("--rate", "50"))
    row: dict[str, object] = {"clients": clients, "good": good}
    try:
        for label, abusive in (("warm", 0), ("alone", 0), ("with one abusive", 1)):
            workers = [Worker(fleet, server.port, [i], 1.0, tokens[i]) for i in range(good)]
            # the abusive one has 32 connections and never pauses
            others = [Worker(fleet, server.port, [good], 0.0, tokens[good]) for _ in range(32 * abusive)]
            asyncio.run(load([*workers, *others], seconds))
            latencies = np.array([x for worker in workers for x in worker.latencies]) * 1e3
            if label != "warm":
                row |= {f"p50 ms {label}": round(float(np.percentile(latencies, 50)), 1)}
                row |= {f"p99 ms {label}": round(float(np.percentile(latencies, 99)), 1)}
            if abusive:
                row |= {"abusive: served/s": round(sum(len(w.latencies) for w in others) / seconds)}
                row |= {"abusive: refused/s": round(sum(w.refused for w in others) / seconds)}
    finally:
        server.stop()
    return row


def kept(path: Path | None) -> list[dict[str, object]]:
    """Return the rows of a file of results."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path and path.exists() else []


def keep(row: dict[str, object], path: Path | None) -> None:
    """Add a row to a file of results."""
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(json.dumps(row) + "\n")


def plot(rows: Sequence[dict[str, object]], path: Path) -> None:
    """Draw processor time per sync by the number of clients, with its parts."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4))
    for method in dict.fromkeys(row["method"] for row in rows):
        mine = [row for row in rows if row["method"] == method]
        clients = [row["clients"] for row in mine]
        axes.plot(clients, [row["processor ms"] for row in mine], "o-", label=f"{method}: the whole server process")
        for part in ("exchange", "wire", "store", "HTTP"):
            axes.plot(clients, [row[f"{part} ms"] for row in mine], ".--", alpha=0.7, label=f"{method}: {part}")
    axes.set(xscale="log", yscale="log", xlabel="clients", ylabel="processor ms per sync")
    axes.legend(fontsize=8)
    axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, nargs="+", default=[1000, 20000])
    parser.add_argument("--methods", nargs="+", default=["latte"])
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--concurrent", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=3, help="Spans of so many seconds; the median one is reported.")
    parser.add_argument("--uploads", type=int, default=8192, help="Different uploads that are sent in turn.")
    parser.add_argument("--precision", default="fp16")
    parser.add_argument("--folder", type=Path, help="Where the stores are; default: a temporary folder.")
    parser.add_argument("--abusive", action="store_true", help="Measure what one abusive client costs the others.")
    parser.add_argument("--out", type=Path, help="JSON lines; what the file has is not measured again.")
    parser.add_argument("--plot", type=Path, help="Draw the processor time by the number of clients.")
    a = parser.parse_args()
    rows, known = [], {(row["method"], row["clients"], row["precision"]): row for row in kept(a.out)}
    with tempfile.TemporaryDirectory(dir=a.folder) as folder:
        if a.abusive:
            fleet = Fleet("latte", a.classes, a.dim, a.precision)
            print(json.dumps(measure_abuse(fleet, 1000, a.seconds, Path(folder))))
            return
        for method, clients in itertools.product(a.methods, a.clients):
            row = known.get((method, clients, a.precision))
            if row is None:
                fleet = Fleet(method, a.classes, a.dim, a.precision)
                row = measure(fleet, clients, a.concurrent, a.seconds, a.rounds, Path(folder), a.uploads)
                keep(row, a.out)
            rows.append(row)
            print(json.dumps(row), flush=True)
    if a.plot:
        plot(rows, a.plot)


if __name__ == "__main__":
    main()
