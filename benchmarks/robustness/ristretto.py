"""Ristretto: gains over zero-shot, and what a prediction and a pull cost.

python benchmarks/robustness/ristretto.py accuracy FILE.npz ... --seeds 0-2  # syncs after 1, 2, 4, 8, 16, then every 16
python benchmarks/robustness/ristretto.py freshness FILE.npz --seeds 0-4     # what the shortcuts for many clients cost
python benchmarks/robustness/ristretto.py crowd FILE.npz --clients 320       # an exact run beside an approximate one
python benchmarks/robustness/ristretto.py predict                            # beside a zero-shot prediction
python benchmarks/robustness/ristretto.py pull --clients 20000               # beside a pull of Latte
python benchmarks/robustness/ristretto.py whole FILE.npz                     # a whole run beside Latte's
python benchmarks/robustness/ristretto.py honest FILE.npz ...                # what could be verified in an upload
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from latte import Clip, Latte, Prototypes, ZeroShot, sync
from latte.analysis.stats import estimate, t_quantile
from latte.data.catalogue import BenchmarkFile, default_clients, read_benchmark
from latte.data.federation import Federation, federate
from latte.engine import run_fast
from latte.engine.ristretto import run_ristretto
from latte.methods.ristretto.client import Ristretto
from latte.methods.ristretto.server import Freshness, RistrettoExchange
from latte.methods.ristretto.sums import ClassSums
from latte.simulation.results import Outcome
from latte.simulation.simulator import Schedule


def run(federation: Federation, exchange: RistrettoExchange) -> Outcome:
    """Return the outcome with syncs after 1, 2, 4, 8, 16 images of a client, then every 16."""
    return run_ristretto(federation, exchange.params, Schedule(sync="doubling"), np.random.default_rng(0), exchange)


def deal(file: Path, seed: int) -> Federation:
    embeddings = read_benchmark(BenchmarkFile(file.stem, file))
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
            outcome = run(federation, RistrettoExchange(federation.embeddings.zero_shot))
            seconds = time.perf_counter() - started
            gains.append(accuracy_of(outcome, federation) - zero_shot_accuracy(federation))
        numbers = " ".join(f"{gain:+.2f}" for gain in gains)
        clients = f"{len(federation)} clients of {federation.samples // len(federation)}"
        print(f"{file.stem:<18} {np.mean(gains):+6.2f}   ({numbers})   {clients}, {seconds:.1f} s", flush=True)


def freshness(file: Path, seeds: range) -> None:
    """Print what each shortcut for many clients costs in accuracy, alone and together, as if few clients were many.

    Every seed draws directions of its own.
    """
    federations = {seed: deal(file, seed) for seed in seeds}
    clients, dim = len(federations[seeds[0]]), federations[seeds[0]].embeddings.zero_shot.dim
    everyone, all_dims = clients - 1, dim
    rules = {"exact": Freshness(clients)}
    rules |= {f"sample of {n}": Freshness(n, 1, all_dims) for n in (8, 16, 32, 64, 128) if n < clients}
    rules |= {f"every {k} syncs": Freshness(everyone, k * clients, all_dims) for k in (1, 2, 4, 8)}
    rules |= {f"{n} directions": Freshness(everyone, 1, n) for n in (8, 16, 32, 48, 64, 128)}
    rules |= {f"{n}, every 2 syncs, 48": Freshness(n, 2 * clients, 48) for n in (16, 32, 64, 128) if n < clients}
    exact: list[float] = []
    for name, rule in rules.items():
        gains = [gain_of(federation, replace(rule, secret=seed)) for seed, federation in federations.items()]
        exact = exact or gains
        change = interval([gain - other for gain, other in zip(gains, exact, strict=True)])
        print(f"| {file.stem}, {clients} clients | {name} | {np.mean(gains):+.2f} | {change} |", flush=True)


def crowd(file: Path, clients: int) -> None:
    """Print gain and processor time of an exact run and of an approximate one, everyone syncing at once.

    Then those of a sync of one client alone, as a server has it.
    """
    embeddings = read_benchmark(BenchmarkFile(file.stem, file))
    federation = federate(embeddings, -(-clients // len(embeddings.domains)), 0)
    rules = {"exact": Freshness(clients + len(embeddings.domains)), "approximate": Freshness(256)}
    labels = {}
    for name, rule in rules.items():
        exchange = RistrettoExchange(embeddings.zero_shot, freshness=rule)
        started = time.process_time()
        outcome = run(federation, exchange)
        seconds = time.process_time() - started
        labels[name] = np.concatenate(outcome.labels)
        gain = accuracy_of(outcome, federation) - zero_shot_accuracy(federation)
        one = exchange.clients[0]
        upload = ClassSums(*(array[0] for array in exchange._table.arrays[:2]), exchange.task)
        if name == "approximate":
            upload = replace(upload, means=upload.means / np.maximum(upload.counts, 1e-9)[:, None])
        started = time.process_time()
        for _ in range(5):
            exchange.push(one, upload)
            exchange.pull(one)
        alone = 1e3 * (time.process_time() - started) / 5
        print(
            f"{file.stem}, {len(federation)} clients, {name}: gain {gain:+.2f}, {seconds:.2f} s; "
            f"one client's sync {alone:.1f} ms",
            flush=True,
        )
    print(f"labels that differ: {100 * float(np.mean(labels['exact'] != labels['approximate'])):.1f} %")


def gain_of(federation: Federation, rule: Freshness) -> float:
    """Return the gain over zero-shot in points."""
    outcome = run(federation, RistrettoExchange(federation.embeddings.zero_shot, freshness=rule))
    return accuracy_of(outcome, federation) - zero_shot_accuracy(federation)


def interval(values: list[float]) -> str:
    """Return the mean and half of its 95 % interval over seeds."""
    e = estimate(values)
    if e.sd is None:
        return f"{e.mean:+.2f}"
    return f"{e.mean:+.2f} ± {t_quantile(0.975, e.seeds - 1) * e.sd / e.seeds**0.5:.2f}"


# --- costs ----------------------------------------------------------------------------------------------------


def unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)


def a_task(rng: np.random.Generator, classes: int, dim: int) -> ZeroShot:
    return ZeroShot(unit(rng.normal(size=(classes, dim))), tuple(map(str, range(classes))))


def compare(calls: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Return the median processor time of each of several calls, in seconds; they take turns."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            start = time.process_time()
            call()
            times[name].append(time.process_time() - start)
    return {name: float(np.median(values)) for name, values in times.items()}


def predict(dim: int = 512, images: int = 256) -> None:
    """Print what one prediction costs beside zero-shot's, as it is and where its entropy is read, too."""
    rng = np.random.default_rng(0)
    for classes in (7, 10, 100, 397, 1000):
        predict_with(rng, classes, dim, images)


def predict_with(rng: np.random.Generator, classes: int, dim: int, images: int) -> None:
    zero_shot = a_task(rng, classes, dim)
    labels = rng.integers(classes, size=images)
    rows = list(unit(zero_shot.text[labels] + rng.normal(size=(images, dim)) / 20)[:, None])
    client, exchange, clip = Ristretto(zero_shot), Ristretto.exchange_for(zero_shot), Clip(zero_shot)
    client.predict_many(np.array(rows))
    sync([("a", client)], exchange)
    calls = {
        "zero-shot": lambda: [clip.predict(row) for row in rows],
        "Ristretto": lambda: [client.predict(row) for row in rows],
        "entropy": lambda: [client.predict(row).entropy for row in rows],
    }
    zero, plain, read = (1e6 * value / images for value in compare(calls, 41).values())
    print(
        f"C = {classes:>4}: zero-shot {zero:6.1f} us, Ristretto {plain:6.1f} us, {plain / zero:.2f} times; "
        f"with its entropy {read:6.1f} us, {read / zero:.2f} times",
        flush=True,
    )


def whole(file: Path, repeats: int = 5) -> None:
    """Print how long a whole run takes beside Latte's, with its own syncs and with Ristretto's."""
    federation = deal(file, 0)
    runs = {"Latte, T = 1": ("latte", "every"), "Latte, doubling": ("latte", "doubling")}
    runs |= {"Ristretto, doubling": ("ristretto", "doubling")}
    calls = {
        label: partial(run_fast, federation, name, None, Schedule(sync=timing), np.random.default_rng(0))
        for label, (name, timing) in runs.items()
    }
    for call in calls.values():
        call()  # compiles
    times = compare(calls, repeats)
    own = times["Ristretto, doubling"]
    for label, seconds in times.items():
        print(f"{file.stem}: {label} {seconds:.2f} s; Ristretto {own / seconds:.2f} times", flush=True)


def pull(clients: int, classes: int = 10, dim: int = 512) -> None:
    """Print what pulls cost beside Latte's, one at a time and several at once."""
    rng = np.random.default_rng(0)
    zero_shot = a_task(rng, classes, dim)
    exchange, memory = RistrettoExchange(zero_shot), Latte.exchange_for(zero_shot)
    base = unit(rng.normal(size=(19, classes, dim)))
    for i in range(clients):
        means = base[i % 19] + rng.normal(size=(classes, dim)) * 0.3 / np.sqrt(dim)
        shorter = 0.8 * unit(means).astype(np.float64)
        exchange.push(f"{i}", ClassSums(rng.uniform(1, 30, classes), shorter, zero_shot.fingerprint))
        memory.push(f"{i}", Prototypes(unit(means), np.ones(classes, np.bool_), zero_shot.fingerprint))
    started = time.process_time()
    exchange.pull("0")
    print(f"{clients} clients: the first pull, with the covariance: {time.process_time() - started:.3f} s")
    for number, repeats in ((1, 41), (4, 15), (16, 7), (64, 5)):
        names = [str(i) for i in range(0, clients, clients // number)][:number]
        calls = {"Latte": partial(memory.pull_many, names), "Ristretto": partial(exchange.pull_many, names)}
        one, other = (1e3 * value / number for value in compare(calls, repeats).values())
        costs = f"Latte {one:.1f} ms each, Ristretto {other:.1f} ms, {other / one:.2f} times"
        print(f"{number:>3} at once: {costs}", flush=True)


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
            run(federation, exchange)
            negative = [100 * np.mean(np.array(one) < 0) for one in (exchange.flipped, exchange.random)]
            print(
                f"{file.stem:<16} seed {seed}: {len(exchange.honest)} uploads, "
                f"least nearness {min(exchange.honest):+.4f}, "
                f"negative: flipped {negative[0]:.0f} %, random {negative[1]:.0f} %",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("accuracy", "freshness", "crowd", "predict", "pull", "whole", "honest"))
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--seeds", default="0-2")
    parser.add_argument("--clients", type=int, default=20_000)
    a = parser.parse_args()
    first, _, last = a.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    if a.what == "accuracy":
        accuracy(a.files, seeds)
    elif a.what == "freshness":
        for file in a.files:
            freshness(file, seeds)
    elif a.what == "crowd":
        for file in a.files:
            crowd(file, a.clients)
    elif a.what == "predict":
        predict()
    elif a.what == "pull":
        pull(a.clients)
    elif a.what == "whole":
        for file in a.files:
            whole(file)
    else:
        honest(a.files, seeds)


if __name__ == "__main__":
    main()
