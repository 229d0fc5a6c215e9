"""What the label-free temperature does: the expected calibration error with it and without it, beside zero-shot's.

python benchmarks/robustness/calibration.py pacs.npz cifar10c.npz --methods latte,ristretto --seeds 0

Both methods sync after 1, 2, 4, 8, 16 images of a client, then after every 16. (`latte run --engine readable` measures
the error of every method, with any schedule.)
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np

from latte.core.types import Prediction
from latte.data.catalogue import BenchmarkFile, default_clients, read_benchmark
from latte.data.federation import Federation, federate, generators
from latte.experiment.config import parse_seeds
from latte.simulation.results import expected_calibration_error
from latte.simulation.simulator import Schedule, set_up, simulate


def confidence(prediction: Prediction) -> float:
    return float(prediction.probabilities[prediction.label])


def errors(federation: Federation, method: str, seed: int) -> tuple[float, float]:
    """Return the expected calibration error with the method's temperature, and with 1."""
    clients, exchange = set_up(federation, method)
    labels = [federation.labels(client) for client in federation.clients]
    rows = []
    for step in simulate(clients, exchange, Schedule(sync="doubling"), generators(seed).cohort):
        raw = replace(step.prediction, temperature=1.0)
        right = step.prediction.label == labels[step.client][step.sample]
        rows.append((confidence(step.prediction), confidence(raw), right))
    tempered, raw, correct = np.array(rows, np.float64).T
    return expected_calibration_error(tempered, correct), expected_calibration_error(raw, correct)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--methods", default="latte,ristretto")
    parser.add_argument("--seeds", default="0")
    a = parser.parse_args()
    for file in a.files:
        embeddings = read_benchmark(BenchmarkFile(file.stem, file))
        for seed in parse_seeds(a.seeds):
            federation = federate(embeddings, default_clients(embeddings, file.stem), seed)
            zero_shot, _ = errors(federation, "clip", seed)
            print(f"{file.stem:<16} seed {seed} zero-shot {zero_shot:.3f}", flush=True)
            for method in a.methods.split(","):
                tempered, raw = errors(federation, method, seed)
                text = f"with its temperature {tempered:.3f}, without {raw:.3f}"
                print(f"{file.stem:<16} seed {seed} {method}: {text}", flush=True)


if __name__ == "__main__":
    main()
