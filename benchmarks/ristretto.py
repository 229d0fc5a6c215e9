"""Ristretto: gains over zero-shot, and what a prediction and a pull cost.

python benchmarks/ristretto.py accuracy FILE.npz ... --seeds 0-2     # syncs after 1, 2, 4, 8, 16 images, then every 16
python benchmarks/ristretto.py freshness FILE.npz --exact 8,32,256   # what a covariance from a sample costs
python benchmarks/ristretto.py predict                               # beside a zero-shot prediction
python benchmarks/ristretto.py pull --clients 20000                  # beside a pull of Latte
python benchmarks/ristretto.py honest FILE.npz ...                   # what could be verified in an upload
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from latte import Clip, Latte, Prototypes, ZeroShot
from latte.core.class_sums import ClassSums
from latte.core.ristretto_exchange import Freshness, RistrettoExchange
from latte.core.types import Integers
from latte.data.benchmark import Federation
from latte.data.catalogue import default_clients, find, open_entry
from latte.data.partition import federate
from latte.methods.ristretto import Ristretto
from latte.simulation.engine.ristretto_engine import walk
from latte.simulation.outcome import Outcome


def doubling(federation: Federation) -> Iterator[tuple[Integers, Integers]]:
    """Yield the syncs after 1, 2, 4, 8, 16 images, then every 16: those with an image in that round take part."""
    lengths = np.array([len(client) for client in federation.clients])
    for number in range(1, lengths.max()):
        if number in (1, 2, 4, 8) or number % 16 == 0:
            members = np.flatnonzero(lengths >= number)
            yield members, np.full(len(members), number)


def deal(file: Path, seed: int) -> Federation:
    embeddings = open_entry(find(str(file)))
    return federate(embeddings, default_clients(embeddings, file.stem), seed)


def accuracy_of(outcome: Outcome, federation: Federation) -> float:
    return 100 * float(np.concatenate(outcome.correct(federation)).mean())


def zero_shot_accuracy(federation: Federation) -> float:
    embeddings = federation.embeddings
    logits = embeddings.zero_shot.logits(np.asarray(embeddings.views[:, 0], np.float32))
    rows = np.concatenate([client.samples for client in federation.clients])
    return 100 * float((logits.argmax(axis=1) == embeddings.labels)[rows].mean())


def accuracy(files: list[Path], seeds: range) -> None:
    for file in files:
        gains = []
        for seed in seeds:
            federation = deal(file, seed)
            started = time.perf_counter()
            outcome = walk(federation, RistrettoExchange(federation.embeddings.zero_shot), doubling(federation))
            seconds = time.perf_counter() - started
            gains.append(accuracy_of(outcome, federation) - zero_shot_accuracy(federation))
        numbers = " ".join(f"{gain:+.2f}" for gain in gains)
        clients = f"{len(federation)} clients of {federation.samples // len(federation)}"
        print(f"{file.stem:<18} {np.mean(gains):+6.2f}   ({numbers})   {clients}, {seconds:.1f} s", flush=True)


def freshness(file: Path, seeds: range, sizes: list[int]) -> None:
    for exact in sizes:
        gains = []
        for seed in seeds:
            federation = deal(file, seed)
            rule = Freshness(exact, exact)
            exchange = RistrettoExchange(federation.embeddings.zero_shot, freshness=rule)
            outcome = walk(federation, exchange, doubling(federation))
            gains.append(accuracy_of(outcome, federation) - zero_shot_accuracy(federation))
        numbers = " ".join(f"{gain:+.2f}" for gain in gains)
        print(f"{file.stem} sample {exact:>4} of {len(federation)}: {np.mean(gains):+.2f}   ({numbers})", flush=True)


# --- costs ----------------------------------------------------------------------------------------------------


def unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)


def a_task(rng: np.random.Generator, classes: int, dim: int) -> ZeroShot:
    return ZeroShot(unit(rng.normal(size=(classes, dim))), tuple(map(str, range(classes))))


def best_cpu(call, arguments, passes: int = 7) -> float:
    best = np.inf
    for _ in range(passes):
        start = time.process_time()
        for argument in arguments:
            call(argument)
        best = min(best, (time.process_time() - start) / len(arguments))
    return float(best)


def predict() -> None:
    rng = np.random.default_rng(0)
    for classes, dim in ((10, 512), (100, 512), (1000, 512)):
        zero_shot = a_task(rng, classes, dim)
        images = list(unit(zero_shot.text[rng.integers(classes, size=500)] + rng.normal(size=(500, dim)) / 20)[:, None])
        client, exchange = Ristretto(zero_shot), Ristretto.exchange_for(zero_shot)
        for image in images:
            client.predict(image)
        exchange.push("a", client.summary())
        client.receive(exchange.pull("a"))
        one, other = best_cpu(Clip(zero_shot).predict, images), best_cpu(client.predict, images)
        ratio = f"Ristretto {1e6 * other:6.1f} us, {other / one:.2f} times"
        print(f"C = {classes:>4}: zero-shot {1e6 * one:6.1f} us, {ratio}")


def pull(clients: int, classes: int = 10, dim: int = 512) -> None:
    rng = np.random.default_rng(0)
    zero_shot = a_task(rng, classes, dim)
    exchange, memory = RistrettoExchange(zero_shot), Latte.exchange_for(zero_shot)
    base = unit(rng.normal(size=(19, classes, dim)))
    for i in range(clients):
        means = base[i % 19] + rng.normal(size=(classes, dim)) * 0.3 / np.sqrt(dim)
        shorter = 0.8 * unit(means).astype(np.float64)
        exchange.push(f"{i}", ClassSums(rng.uniform(1, 30, classes), shorter, zero_shot.fingerprint))
        memory.push(f"{i}", Prototypes(unit(means), np.ones(classes, np.bool_), zero_shot.fingerprint))
    started = time.perf_counter()
    exchange.pull("0")
    print(f"{clients} clients: the first pull, with the covariance: {time.perf_counter() - started:.3f} s")
    names = [str(i) for i in range(1, 6)]
    one, other = best_cpu(memory.pull, names), best_cpu(exchange.pull, names)
    print(f"Latte {1e3 * one:.1f} ms, Ristretto {1e3 * other:.1f} ms, {other / one:.2f} times")
    some = [str(i) for i in range(0, clients, max(clients // 500, 1))]
    started = time.perf_counter()
    exchange.pull_many(some)
    print(f"{len(some)} heads at once: {1e3 * (time.perf_counter() - started) / len(some):.2f} ms each")


# --- what an honest upload looks like -----------------------------------------------------------------------


class Watching(RistrettoExchange):
    """Notes how near the class means of every upload lie to the texts of their own classes, and to those of others."""

    honest: list[float]
    flipped: list[float]
    random: list[float]

    def push(self, client: str, upload: ClassSums) -> None:
        super().push(client, upload)
        rows = upload.counts[:, None] * upload.means
        self.honest.append(self.nearness(rows))
        self.flipped.append(self.nearness(np.roll(rows, 1, axis=0)))
        noise = np.random.default_rng(len(self.honest)).normal(size=rows.shape)
        self.random.append(self.nearness(upload.counts[:, None] * unit(noise)))

    def nearness(self, rows: np.ndarray) -> float:
        text = self._task.centred_text
        return float((rows * text).sum() / np.sqrt((rows**2).sum() * (text**2).sum()))


def honest(files: list[Path], seeds: range) -> None:
    for file in files:
        for seed in seeds:
            federation = deal(file, seed)
            exchange = Watching(federation.embeddings.zero_shot)
            exchange.honest, exchange.flipped, exchange.random = [], [], []
            walk(federation, exchange, doubling(federation))
            negative = [100 * np.mean(np.array(one) < 0) for one in (exchange.flipped, exchange.random)]
            print(
                f"{file.stem:<16} seed {seed}: {len(exchange.honest)} uploads, "
                f"least nearness {min(exchange.honest):+.4f}, "
                f"negative: flipped {negative[0]:.0f} %, random {negative[1]:.0f} %",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("accuracy", "freshness", "predict", "pull", "honest"))
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--seeds", default="0-2")
    parser.add_argument("--exact", default="8,32,256")
    parser.add_argument("--clients", type=int, default=20_000)
    a = parser.parse_args()
    first, _, last = a.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    if a.what == "accuracy":
        accuracy(a.files, seeds)
    elif a.what == "freshness":
        for file in a.files:
            freshness(file, seeds, [int(size) for size in a.exact.split(",")])
    elif a.what == "predict":
        predict()
    elif a.what == "pull":
        pull(a.clients)
    else:
        honest(a.files, seeds)


if __name__ == "__main__":
    main()
