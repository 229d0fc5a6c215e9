"""How the engine's cost grows with N, C, D, S, E and T: processor time per sample and memory, as CSV and a plot.

python benchmarks/scaling.py --out docs/figures/performance
"""

from __future__ import annotations

import os

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import argparse  # noqa: E402
import csv  # noqa: E402
import time  # noqa: E402
from pathlib import Path  # noqa: E402

import numpy as np  # noqa: E402

from latte.experiment import speed  # noqa: E402
from latte.experiment.engine import run_fast  # noqa: E402
from latte.experiment.schedule import Schedule  # noqa: E402
from latte.methods.latte import LatteParams  # noqa: E402

BASE = {"N": 64, "C": 10, "D": 512, "S": 12, "E": 9, "T": 1}
PER_CLIENT = 160
AXES = {
    "N": (16, 32, 64, 128, 256, 512),
    "C": (5, 10, 20, 50, 100, 200),
    "D": (64, 128, 256, 512, 1024),
    "S": (2, 4, 8, 16, 32),
    "E": (1, 2, 4, 8, 16, 32),
    "T": (1, 2, 5, 10, 20, 50),
}


def cost(setting: dict[str, int]) -> float:
    """Return processor microseconds per sample, the best of two runs."""
    speed.DIM = setting["D"]
    shape = speed.Shape(setting["N"], setting["C"], setting["N"] * PER_CLIENT, 1)
    federation = speed.clip_like(shape)
    params = LatteParams(k_l=setting["S"], k_e=setting["E"])
    best = np.inf
    for _ in range(2):
        start = time.process_time()
        run_fast(federation, "latte", params, Schedule(setting["T"]))
        best = min(best, time.process_time() - start)
    return 1e6 * best / shape.samples


def measure() -> list[tuple[str, int, float]]:
    cost({**BASE, "N": 4})  # compiles
    rows = []
    for axis, values in AXES.items():
        for value in values:
            rows.append((axis, value, cost({**BASE, axis: value})))
            print(*rows[-1], flush=True)
    return rows


def draw(rows: list[tuple[str, int, float]], path: Path) -> None:
    """Draw one panel per axis, double logarithmic."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "latte"
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(2, 3, figsize=(9, 5), sharey=True, layout="constrained")
    for axis, panel in zip(AXES, panels.flat, strict=True):
        points = [(value, microseconds) for name, value, microseconds in rows if name == axis]
        panel.loglog(*zip(*points, strict=True), marker="o", color="tab:blue", base=2)
        panel.axvline(BASE[axis], color="0.8", zorder=0)
        panel.set_xlabel(axis)
    for panel in panels[:, 0]:
        panel.set_ylabel("µs per sample")
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("docs/figures/performance"))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    rows = measure()
    with (arguments.out / "scaling.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("axis", "value", "us_per_sample"), *rows])
    draw(rows, arguments.out / "scaling.svg")


if __name__ == "__main__":
    main()
