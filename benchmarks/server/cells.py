"""Cells: what bounded pools of clients cost in accuracy, and what a million devices need in machines.

python benchmarks/server/cells.py real pacs.npz cifar10c.npz --seeds 0-4 --out cells.jsonl  # pools of real clients
python benchmarks/server/cells.py crowd cifar10c.npz --clients 100000                       # pools of made-up clients
python benchmarks/server/cells.py machines --devices 1000000 --syncs-per-day 64  # from COSTS in cell_machines.py

A cell is a pool of clients with a server of its own: nothing is exchanged between cells. "random" cells are drawn;
"similar" cells hold clients whose images look alike: the clients are cut in two at the median of the first principal
component of their mean embeddings, and so on. A client's mean is that of its first 16 images, which a server can
calculate from what the client uploads then.
"""

from __future__ import annotations

import os
import sys

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # measurements

from cell_crowd import measure_crowd
from cell_groups import FIRST, GROUPINGS, SHARES, cells_of
from cell_machines import print_machines
from measurements import Gain, MethodSpec, first_clients, interval, measure_missing

from latte.data.catalogue import BenchmarkFile, default_clients, read_benchmark
from latte.data.federation import Federation, federate, generators
from latte.engine import run_fast
from latte.experiment.config import parse_seeds
from latte.simulation.simulator import Schedule


@dataclass(frozen=True)
class Measurement(Gain):
    benchmark: str
    method: str
    grouping: str
    cells: int
    clients: int
    seed: int
    accuracy: float
    zero_shot: float
    seconds: float


def measure_real(a: argparse.Namespace) -> None:
    print(real_table(measure_missing(a.out, Measurement, lambda done: all_real(a, done))))


def all_real(a: argparse.Namespace, done: Sequence[Measurement]) -> Iterator[Measurement]:
    known = {(m.benchmark, m.method, m.grouping, m.cells, m.seed) for m in done}
    for file in a.files:
        embeddings = read_benchmark(BenchmarkFile(file.stem, file))
        for seed in parse_seeds(a.seeds):
            federation = first_clients(federate(embeddings, default_clients(embeddings, file.stem), seed), a)
            plans = [(grouping, round(1 / share)) for share in SHARES[1:] for grouping in GROUPINGS]
            for method in map(MethodSpec, a.methods.split(",")):
                for grouping, cells in [("random", 1), *plans, ("alone", len(federation))]:
                    if (embeddings.name, method.text, grouping, cells, seed) not in known:
                        yield measure_cells(federation, method, grouping, cells, seed)


def measure_cells(federation: Federation, method: MethodSpec, grouping: str, cells: int, seed: int) -> Measurement:
    """Run every cell as a federation of its own."""
    started = time.process_time()
    means = np.array([federation.stream(client)[:FIRST, 0].mean(axis=0) for client in federation.clients], np.float64)
    right = zero_shot = 0
    for rows in cells_of(grouping, means, cells, np.random.default_rng([seed, cells])):
        cell = Federation(federation.embeddings, tuple(federation.clients[i] for i in rows))
        schedule, rng = Schedule(sync="doubling"), generators(seed).cohort
        outcome, base = run_fast(cell, method.name, method.params, schedule, rng), run_fast(cell, "clip")
        assert outcome is not None and base is not None, "numba is needed"
        right += sum(int(one.sum()) for one in outcome.correct(cell))
        zero_shot += sum(int(one.sum()) for one in base.correct(cell))
    scores = (100 * right / federation.samples, 100 * zero_shot / federation.samples)
    seconds = round(time.process_time() - started, 1)
    name = federation.embeddings.name
    return Measurement(name, method.text, grouping, cells, len(federation), seed, *scores, seconds)


def real_table(measurements: Sequence[Measurement]) -> str:
    """Return the gain over zero-shot, and the paired change from one pool: mean and 95 % interval over seeds."""
    gains = {(m.benchmark, m.method, m.grouping, m.cells, m.seed): m.gain for m in measurements}
    lines = ["| benchmark | method | cells | clients per cell | gain | change |", "|:--|:--|:--|--:|--:|--:|"]
    plans = dict.fromkeys((m.benchmark, m.method, m.grouping, m.cells, m.clients) for m in measurements)
    for benchmark, method, grouping, cells, clients in plans:
        seeds = [s for b, m, g, c, s in gains if (b, m, g, c) == (benchmark, method, grouping, cells)]
        own = {seed: gains[benchmark, method, grouping, cells, seed] for seed in seeds}
        change = [gain - gains[benchmark, method, "random", 1, seed] for seed, gain in own.items()]
        label = {1: "one pool", clients: "every client alone"}.get(cells, f"{cells} {grouping}")
        cell = f"{np.mean(list(own.values())):+.2f} | {interval(change) if cells > 1 else ''}"
        lines.append(f"| {benchmark} | {method} | {label} | {clients / cells:.0f} | {cell} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("real", "crowd", "machines"))
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--methods", default="latte,ristretto")
    parser.add_argument("--clients-per-domain", type=int, help="real: use this many clients of each domain")
    parser.add_argument("--seeds", default="0-4", help="real: the partitions")
    parser.add_argument("--out", type=Path, help="real: JSON lines; what the file has is not measured again")
    parser.add_argument("--clients", type=int, default=100_000, help="crowd: how many there are")
    parser.add_argument("--sample", type=int, default=500, help="crowd: how many of them are scored")
    parser.add_argument("--images", type=int, default=32, help="crowd: of each, after the sync")
    parser.add_argument("--small", default="0.01,0.001", help="crowd: further shares of the clients in a cell")
    parser.add_argument("--devices", type=int, default=1_000_000)
    parser.add_argument("--syncs-per-day", type=float, default=64, help="of a device: 1,024 images, one sync per 16")
    a = parser.parse_args()
    {"real": measure_real, "crowd": measure_crowd, "machines": print_machines}[a.what](a)


if __name__ == "__main__":
    main()
