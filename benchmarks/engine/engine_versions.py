"""The engine of two installations beside each other, in turns in one run: processor microseconds per sample.

python benchmarks/engine/engine_versions.py OLD/bin/python NEW/bin/python [--shape NAME] [--repeat 15]

Each interpreter has its own version of the package (``pip install -e`` of a checkout). The shapes are those of
``engine/speed.py``; the least of all turns counts, so the machine must be idle for some turns only, not for all.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

SHAPES = ("vlcs", "terra", "cifar10c", "cifar100c")
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
# runs in the interpreter that is measured: one line per line that it reads
SERVER = """
import gc, inspect, sys, time
from dataclasses import replace
sys.path.insert(0, sys.argv[2])
import speed
from latte.methods.latte.client import PRESETS
shape, params = speed.SHAPES[sys.argv[1]], replace(PRESETS[sys.argv[1]], variant="released")
speed.run_fast(speed.clip_like(replace(shape, clients=4, samples=80)), "latte", params)
federation = speed.clip_like(shape)
# labels only: early versions record no confidences
options = {"calibration": False} if "calibration" in inspect.signature(speed.run_fast).parameters else {}
gc.collect()
gc.disable()
for _ in sys.stdin:
    start = time.process_time()
    outcome = speed.run_fast(federation, "latte", params, **options)
    print(1e6 * (time.process_time() - start) / shape.samples, flush=True)
"""


def start(python: Path, shape: str) -> subprocess.Popen[str]:
    """Start the measured process; without a path of its own, it imports what is installed."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | ONE_THREAD
    command = [str(python), "-c", SERVER, shape, str(next(Path(__file__).parent.rglob("speed.py")).parent)]
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def turn(process: subprocess.Popen[str]) -> float:
    """Return the time of one run."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def compare(pythons: list[Path], shape: str, repeat: int) -> list[float]:
    """Return the least time of each version at a shape."""
    processes = [start(python, shape) for python in pythons]
    try:
        turns = [[turn(process) for process in processes] for _ in range(repeat)]
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    return [min(times) for times in zip(*turns, strict=True)]


def main() -> None:
    """Print a line per shape: the time of each version, and each over the first."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("pythons", nargs="+", type=Path)
    parser.add_argument("--shape", action="append", choices=SHAPES)
    parser.add_argument("--repeat", type=int, default=15)
    chosen = parser.parse_args()
    for shape in chosen.shape or SHAPES:
        times = compare(chosen.pythons, shape, chosen.repeat)
        cells = [f"{time:.2f} ({time / times[0]:.3f})" for time in times]
        sys.stdout.write(f"{shape:<10} {'  '.join(cells)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
