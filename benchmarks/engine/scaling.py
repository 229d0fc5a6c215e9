"""How the engine's cost grows with N, C, D, S, E and T: processor time per sample and memory, as CSV and a plot.

python benchmarks/engine/scaling.py --out docs/figures/performance
"""

from __future__ import annotations

import os

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import argparse
import csv
import ctypes
import time
from pathlib import Path

import numpy as np
import speed

from latte.engine import run_fast
from latte.methods.latte.client import LatteParams
from latte.simulation.simulator import Schedule

BASE = {"N": 64, "C": 10, "D": 512, "S": 12, "E": 9, "T": 1}
PER_CLIENT = 160
CLEAR = Path("/proc/self/clear_refs")
AXES = {
    "N": (16, 32, 64, 128, 256, 512),
    "C": (5, 10, 20, 50, 100, 200),
    "D": (64, 128, 256, 512, 1024),
    "S": (2, 4, 8, 16, 32),
    "E": (1, 2, 4, 8, 16, 32),
    "T": (1, 2, 5, 10, 20, 50),
}


def cost(setting: dict[str, int]) -> tuple[float, float]:
    """Return processor microseconds per sample, the best of two runs, and megabytes above those of the embeddings."""
    speed.DIM = setting["D"]
    shape = speed.BenchShape(setting["N"], setting["C"], setting["N"] * PER_CLIENT, 1)
    federation = speed.clip_like(shape)
    params = LatteParams(k_l=setting["S"], k_e=setting["E"])
    best, megabytes = np.inf, 0.0
    for _ in range(2):
        ctypes.CDLL(None).malloc_trim(0)  # what earlier runs freed goes back to the system
        CLEAR.write_text("5")  # the peak so far is forgotten
        before, start = speed.high_water(), time.process_time()
        run_fast(federation, "latte", params, Schedule(setting["T"]))
        best, megabytes = min(best, time.process_time() - start), max(megabytes, speed.high_water() - before)
    return 1e6 * best / shape.samples, megabytes


def measure() -> list[tuple[str, int, float, float]]:
    cost({**BASE, "N": 4})  # compiles
    rows = []
    for axis, values in AXES.items():
        for value in values:
            rows.append((axis, value, *(round(number, 2) for number in cost({**BASE, axis: value}))))
            print(*rows[-1], flush=True)
    return rows


def draw(rows: list[tuple[str, int, float, float]], path: Path) -> None:
    """Draw two panels per axis, time and memory, double logarithmic."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "latte"
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(2, len(AXES), figsize=(11, 4.5), sharey="row", sharex="col", layout="constrained")
    for axis, column in zip(AXES, panels.T, strict=True):
        for number, panel in enumerate(column, start=2):
            points = [(row[1], row[number]) for row in rows if row[0] == axis]
            panel.loglog(*zip(*points, strict=True), marker="o", color="tab:blue", base=2)
            panel.axvline(BASE[axis], color="0.8", zorder=0)
        column[-1].set_xlabel(axis)
    for panel, label in zip(panels[:, 0], ("µs per sample", "MB above the embeddings"), strict=True):
        panel.set_ylabel(label)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("docs/figures/performance"))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    rows = measure()
    with (arguments.out / "scaling.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("axis", "value", "us_per_sample", "megabytes"), *rows])
    draw(rows, arguments.out / "scaling.svg")


if __name__ == "__main__":
    main()
