"""What a precision on the wire costs in accuracy.

python benchmarks/wire/wire_accuracy.py pacs.npz cifar10c.npz cifar100c_test.npz --seeds 0-2 --out accuracy.jsonl

Clients sync after 1, 2, 4, 8, 16 images, then after every 16. Messages of Ristretto go through what a device and a
server use (wire_local.py). Latte runs in the engine, with prototypes rounded as on the wire; ``--messages``
sends its messages, too, which gives the same. Writes JSON lines and a table; the same command again continues.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # measurements

from measurements import MethodSpec, first_clients, interval, make_parser, measure_missing
from wire_bytes import PRECISIONS, widen
from wire_local import LocalExchange

from latte.data.catalogue import BenchmarkFile, default_clients, read_benchmark
from latte.data.federation import Federation, federate, generators
from latte.edge.joining import make_task
from latte.engine import run_fast
from latte.engine import server as store
from latte.engine.ristretto import run_ristretto
from latte.experiment.config import parse_seeds
from latte.simulation.results import Outcome
from latte.simulation.simulator import Schedule, set_up, simulate
from latte.wire.rows import RowFormat

BASELINE = "fp32"


def run(federation: Federation, method: MethodSpec, schedule: Schedule, exchange: Any) -> Outcome:
    if method.name == "ristretto":
        return run_ristretto(federation, method.params, schedule, generators(0).cohort, exchange)
    clients, _ = set_up(federation, method.name, method.params)
    labels = [np.full(len(client), -1, np.int64) for client in federation.clients]
    for step in simulate(clients, exchange, schedule):
        labels[step.client][step.sample] = step.prediction.label
    return Outcome(tuple(labels))


@dataclass(frozen=True)
class Measurement:
    benchmark: str
    method: str
    precision: str
    seed: int
    accuracy: float
    seconds: float


def all_accuracies(a: argparse.Namespace, done: Sequence[Measurement]) -> Iterator[Measurement]:
    known = {(m.benchmark, m.method, m.precision, m.seed) for m in done}
    for file in a.files:
        embeddings = read_benchmark(BenchmarkFile(file.stem, file))
        for seed in parse_seeds(a.seeds):
            federation = first_clients(federate(embeddings, default_clients(embeddings, file.stem), seed), a)
            federation = widen(federation, a.dim) if a.dim else federation
            for method in map(MethodSpec, a.methods.split(",")):
                for precision in a.precisions.split(","):
                    if (embeddings.name, method.text, precision, seed) not in known:
                        yield accuracy_of(federation, method, precision, (seed, a.messages))


@contextmanager
def rounded_prototypes(precision: str, dim: int) -> Iterator[None]:
    """Let the engine round every prototype that is uploaded as the wire does. Rows go down as they came up."""
    form, blend = RowFormat.of(precision, dim, np.dtype(np.float32)), store.blend

    def blend_and_round(*arguments: Any) -> None:
        blend(*arguments)
        *_, places, vectors, _ = arguments
        vectors[places] = form.decode(form.encode(vectors[places]))

    store.blend = blend_and_round  # type: ignore[assignment]
    try:
        yield
    finally:
        store.blend = blend


def run_rounded(federation: Federation, method: MethodSpec, precision: str) -> Outcome:
    with rounded_prototypes(precision, federation.embeddings.zero_shot.dim):
        outcome = run_fast(federation, method.name, method.params, Schedule(sync="doubling"))
    assert outcome is not None, "numba is needed"
    return outcome


def accuracy_of(federation: Federation, method: MethodSpec, precision: str, case: tuple[int, bool]) -> Measurement:
    started, (seed, messages) = time.process_time(), case
    if messages or method.name == "ristretto":
        task = make_task(federation.embeddings.zero_shot, method.name, method.params)
        outcome = run(federation, method, Schedule(sync="doubling"), LocalExchange(task, precision))
    else:
        outcome = run_rounded(federation, method, precision)
    right = 100 * float(np.concatenate(outcome.correct(federation)).mean())
    seconds = round(time.process_time() - started, 1)
    return Measurement(federation.embeddings.name, method.text, precision, seed, right, seconds)


def accuracy_table(measurements: Sequence[Measurement]) -> str:
    """Return accuracies in fp32, and the paired differences from it: mean and 95 % interval over seeds."""
    accuracy = {(m.benchmark, m.method, m.precision, m.seed): m.accuracy for m in measurements}
    others = [precision for precision in PRECISIONS if precision != BASELINE]
    heads = ["benchmark", "method", "seeds", BASELINE, *others]
    lines = [f"| {' | '.join(heads)} |", "|:--|:--|--:" + "|--:" * (1 + len(others)) + "|"]
    for benchmark, method in dict.fromkeys((m.benchmark, m.method) for m in measurements):
        seeds = [s for s in range(100) if all((benchmark, method, p, s) in accuracy for p in PRECISIONS)]
        if not seeds:
            continue
        base = [accuracy[benchmark, method, BASELINE, s] for s in seeds]
        changes = [
            interval([accuracy[benchmark, method, p, s] - b for s, b in zip(seeds, base, strict=True)]) for p in others
        ]
        lines.append(f"| {benchmark} | {method} | {len(seeds)} | {np.mean(base):.2f} | {' | '.join(changes)} |")
    return "\n".join(lines)


def main() -> None:
    parser = make_parser(__doc__, "latte+k_e=5,ristretto")
    parser.add_argument("--precisions", default=",".join(PRECISIONS))
    parser.add_argument("--dim", type=int, help="map the embeddings to so many dimensions")
    parser.add_argument("--messages", action="store_true", help="send Latte's messages, too (slow)")
    a = parser.parse_args()
    print(accuracy_table(measure_missing(a.out, Measurement, lambda done: all_accuracies(a, done))))


if __name__ == "__main__":
    main()
