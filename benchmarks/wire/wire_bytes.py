"""What a sync sends in each precision, with and without deltas.

python benchmarks/wire/wire_bytes.py cifar100c_test.npz --dim 512       # at the paper's size

Messages go through what a device and a server use, ``HttpExchange`` and ``Hub``, without a network between them: bytes
are those of the bodies of requests and replies. A client syncs after 1, 2, 4, 8, 16 images, then after every 16
(``--period 1``: after every image, as in the paper); bytes are those of syncs in the second half of every stream. With
``--dim 512``, the embeddings are first mapped to 512 dimensions by a random isometry, which changes no cosine.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # measurements

from measurements import MethodSpec, first_clients
from wire_local import LocalExchange, Size

from latte.core.maths import entropy_of_one
from latte.core.zero_shot import ZeroShot
from latte.data.catalogue import BenchmarkFile, default_clients, read_benchmark
from latte.data.federation import Federation, federate, generators
from latte.edge.joining import make_task
from latte.engine.ristretto import run_ristretto
from latte.methods.latte.client import PRESETS
from latte.simulation.simulator import Schedule, rounds, set_up

PRECISIONS = ("fp32", "fp16", "int8", "int4")
DELTAS = ("none", "up", "down", "both")
PAPER_SLOTS = PRESETS["cifar100c"].k_e  # of the round whose bytes the paper counts


class InOneTrip:
    """Carries the upload and the download of a sync in one request."""

    def __init__(self, exchange: LocalExchange) -> None:
        self.exchange, self.task = exchange, exchange.task
        self._waiting: dict[str, Any] = {}

    @property
    def clients(self) -> tuple[str, ...]:
        return self.exchange.clients

    def push(self, client: str, upload: Any) -> None:
        self._waiting[client] = upload

    def pull_many(self, clients: Sequence[str]) -> list[Any]:
        return self.exchange.sync_many({client: self._waiting[client] for client in clients})

    def pull_traced(self, clients: Sequence[str]) -> tuple[list[Any], np.ndarray]:
        downloads = self.pull_many(clients)
        return downloads, np.zeros((len(clients), len(self.clients)))


class Uploader:
    """A client of Latte that remembers and uploads, and predicts nothing: its uploads depend on no download."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def predict(self, views: Any, *, remember: bool = True) -> Any:
        logits = self.client.zero_shot.logits(views[0])
        self.client.local.put(int(logits.argmax()), views[0], entropy_of_one(logits))

    def summary(self) -> Any:
        return self.client.summary()

    def receive(self, download: Any) -> None:
        pass


def walk(federation: Federation, method: MethodSpec, schedule: Schedule, exchange: InOneTrip) -> None:
    """Let everyone sync; nobody is scored."""
    if method.name == "ristretto":
        run_ristretto(federation, method.params, schedule, generators(0).cohort, exchange)
        return
    clients, _ = set_up(federation, method.name, method.params)
    names = [client.name for client in clients]
    uploaders = [Uploader(client.method) for client in clients]
    handled = [0] * len(clients)
    for turn in rounds([len(client.stream) for client in clients], schedule, generators(0).cohort):
        for i in turn.active:
            uploaders[i].predict(clients[i].stream[handled[i]])
            handled[i] += 1
        for i in turn.members:
            exchange.push(names[i], uploaders[i].summary())
        if turn.members:
            exchange.pull_many([names[i] for i in turn.members])


def widen(federation: Federation, dim: int) -> Federation:
    """Return the federation with its embeddings in ``dim`` dimensions: all cosines are the same."""
    embeddings = federation.embeddings
    own = embeddings.zero_shot
    basis, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(dim, own.dim)))
    views = (np.asarray(embeddings.views[:, :1], np.float32) @ basis.T.astype(np.float32)).astype(np.float32)
    views /= np.linalg.norm(views, axis=2, keepdims=True)
    text = own.text.astype(np.float64) @ basis.T
    text /= np.linalg.norm(text, axis=1, keepdims=True)
    return Federation(
        replace(embeddings, views=views, zero_shot=ZeroShot(text, own.classnames, own.scale)), federation.clients
    )


def steady(sizes: Sequence[Size]) -> list[Size]:
    """Return those of the second half of every client's syncs."""
    total = Counter(size.client for size in sizes)
    place: Counter[str] = Counter()
    chosen = []
    for size in sizes:
        place[size.client] += 1
        if 2 * place[size.client] > total[size.client]:
            chosen.append(size)
    return chosen


def measure_bytes(a: argparse.Namespace) -> None:
    """Print the bytes of a sync, a row per precision and choice of deltas."""
    embeddings = read_benchmark(BenchmarkFile(a.file.stem, a.file))
    federation = first_clients(federate(embeddings, default_clients(embeddings, a.file.stem), 0), a)
    federation = widen(federation, a.dim) if a.dim else federation
    schedule = Schedule(period=a.period, sync="doubling" if a.period > 1 else "every")
    for method in map(MethodSpec, a.methods.split(",")):
        print("\n| method | precision | deltas | up | down | bytes of a sync | of the paper's |")
        print("|:--|:--|:--|--:|--:|--:|--:|")
        for precision in a.precisions.split(","):
            print_bytes(federation, method, schedule, precision)


def print_bytes(federation: Federation, method: MethodSpec, schedule: Schedule, precision: str) -> None:
    exchange = LocalExchange(make_task(federation.embeddings.zero_shot, method.name, method.params), precision)
    started = time.process_time()
    walk(federation, method, schedule, InOneTrip(exchange))
    classes, dim = federation.embeddings.zero_shot.text.shape
    slots = getattr(method.params, "k_e", 1)
    paper, sizes = classes * (1 + PAPER_SLOTS) * dim * 2, steady(exchange.sizes)
    filled = np.mean([size.rows for size in sizes]) / (classes * (1 + slots))
    for deltas in DELTAS:
        up, down = np.mean([size.bytes_with(deltas) for size in sizes], axis=0)
        shown = f"{up:,.0f} | {down:,.0f} | {up + down:,.0f} | {(up + down) / paper:.1%}"
        print(f"| {method.text} | {precision} | {deltas} | {shown} |")
    seconds = time.process_time() - started
    run = f"C = {classes}, D = {dim}, {len(federation)} clients, {len(exchange.sizes)} syncs, {seconds:.0f} s"
    print(f"{method.text}, {precision}: {run}; {filled:.0%} of the rows in use", file=sys.stderr)
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--methods", default="latte+k_e=5,ristretto")
    parser.add_argument("--precisions", default=",".join(PRECISIONS))
    parser.add_argument("--clients-per-domain", type=int, help="use this many clients of each domain")
    parser.add_argument("--dim", type=int, help="map the embeddings to so many dimensions")
    parser.add_argument("--period", type=int, default=16, help="images between two syncs")
    measure_bytes(parser.parse_args())


if __name__ == "__main__":
    main()
