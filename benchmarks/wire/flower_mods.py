"""What the client mods of the Flower app cost in accuracy, and what they save in bytes.

python benchmarks/wire/flower_mods.py pacs.npz cifar10c.npz --seeds 0-2 --out mods.jsonl

Every client is a node of the app, with its mods; messages and records are Flower's, without its processes between them
(tests/support/direct_grid.py). Clients sync after 1, 2, 4, 8, 16 images, then after every 16. Needs the extra flower.
Writes JSON lines and a table; the same command again continues.
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
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # measurements

from measurements import interval, make_parser, measure_missing

from latte.experiment.config import parse_seeds
from latte.flower.benchmark import Barrier
from latte.flower.node import make_client_app, precision_mod, privacy_mod
from latte.flower.settings import BenchmarkSettings

ROOT = next(folder for folder in Path(__file__).resolve().parents if (folder / "pyproject.toml").exists())
sys.path.append(str(ROOT / "tests" / "support"))
from direct_grid import DirectGrid

PLAIN = "no mod"
MODS: dict[str, list[Any]] = {
    PLAIN: [],
    "fp16": [precision_mod("fp16")],
    "int8": [precision_mod("int8")],
    "int4": [precision_mod("int4")],
    "least_images=4": [privacy_mod(least_images=4)],
    "noise=0.2": [privacy_mod(noise=0.2)],
    "noise=0.5": [privacy_mod(noise=0.5)],
    "int8, least_images=4, noise=0.2": [precision_mod("int8"), privacy_mod(least_images=4, noise=0.2)],
}


@dataclass(frozen=True)
class Measurement:
    benchmark: str
    method: str
    mods: str
    seed: int
    accuracy: float
    upload_bytes: float  # of arrays, per sync
    seconds: float


def measure(file: Path, method: str, mods: str, seed: int) -> Measurement:
    started = time.process_time()
    settings = BenchmarkSettings(str(file), method, sync="doubling", seed=seed)
    grid = DirectGrid(make_client_app(MODS[mods]), {node: {} for node in range(1, len(settings.federation()) + 1)})
    barrier = Barrier(grid, settings)
    outcome = barrier.run()
    accuracy = 100 * float(np.concatenate(outcome.correct(barrier.federation)).mean())
    seconds = round(time.process_time() - started, 1)
    return Measurement(file.stem, method, mods, seed, accuracy, round(grid.sent / grid.replies), seconds)


def measure_all(a: argparse.Namespace, done: Sequence[Measurement]) -> Iterator[Measurement]:
    known = {(m.benchmark, m.method, m.mods, m.seed) for m in done}
    for file in a.files:
        for seed in parse_seeds(a.seeds):
            for method in a.methods.split(","):
                for mods in MODS:
                    if (file.stem, method, mods, seed) not in known:
                        yield measure(file, method, mods, seed)


def table(done: Sequence[Measurement]) -> str:
    """Return accuracies, and the paired differences from no mod: mean and 95 % interval over seeds."""
    by = {(m.benchmark, m.method, m.mods, m.seed): m for m in done}
    lines = ["| benchmark | method | mods | accuracy | difference | bytes of a reply |", "|:--|:--|:--|--:|--:|--:|"]
    for benchmark, method, mods in dict.fromkeys((m.benchmark, m.method, m.mods) for m in done):
        seeds = [s for s in range(100) if (benchmark, method, mods, s) in by and (benchmark, method, PLAIN, s) in by]
        mine = [by[benchmark, method, mods, s] for s in seeds]
        changes = [m.accuracy - by[benchmark, method, PLAIN, m.seed].accuracy for m in mine]
        accuracy, size = np.mean([m.accuracy for m in mine]), np.mean([m.upload_bytes for m in mine])
        difference = "" if mods == PLAIN else interval(changes) if len(seeds) > 1 else f"{changes[0]:+.2f}"
        lines.append(f"| {benchmark} | {method} | {mods} | {accuracy:.2f} | {difference} | {size:,.0f} |")
    return "\n".join(lines)


def main() -> None:
    a = make_parser(__doc__, seeds="0-2", part=False).parse_args()
    print(table(measure_missing(a.out, Measurement, lambda done: measure_all(a, done))))


if __name__ == "__main__":
    main()
