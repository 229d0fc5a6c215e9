"""How well zero-shot's MCM tells images of unknown classes, on streams half of whose classes are unknown.

LATTE_DATA=FOLDER python benchmarks/robustness/unknown_classes.py clip_caltech clip_dtd pacs

For each benchmark, five times: a random half of the classes is unknown to the classifier, and its images stay in the
stream. AUROC: how often an image of a known class has the higher score (50: no better than a coin). "flagged" is the
share of the unknown images among the tenth of the stream with the lowest scores, found with the histograms of ten
clients as a server does; a coin would flag 10 %. "accuracy" is zero-shot's, with all classes: a weak model rejects
weakly.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse

import numpy as np
from latte.analysis.beyond import auroc

from latte.core.unknown import BINS, bin_of, mcm_of, threshold_of
from latte.core.zero_shot import ZeroShot
from latte.data.catalogue import list_benchmarks, read_benchmark
from latte.data.federation import Embeddings

SPLITS, CLIENTS, SHARE, MOST = 5, 10, 0.1, 5000


def measure(embeddings: Embeddings) -> tuple[float, float, float, float]:
    """Return the AUROC, its range over the splits, the share of unknown images that are flagged, and the accuracy."""
    rng, zero_shot = np.random.default_rng(0), embeddings.zero_shot
    chosen = np.sort(rng.permutation(len(embeddings))[:MOST])
    rows, labels = np.asarray(embeddings.views)[chosen].reshape(len(chosen), -1, zero_shot.dim)[:, 0], None
    labels = embeddings.labels[chosen]
    accuracy = float((zero_shot.logits(rows).argmax(1) == labels).mean())
    areas, flagged = [], []
    for _ in range(SPLITS):
        known = np.sort(rng.permutation(zero_shot.classes)[: (zero_shot.classes + 1) // 2])
        half = ZeroShot(zero_shot.text[known], [zero_shot.classnames[i] for i in known], zero_shot.scale)
        scores = np.array([mcm_of(row, half) for row in rows])
        inside = np.isin(labels, known)
        areas.append(auroc(scores[inside], scores[~inside]))
        clients = np.zeros((CLIENTS, BINS), np.int64)
        for number, score in enumerate(scores):
            clients[number % CLIENTS, bin_of(score, half.classes)] += 1
        threshold = threshold_of(clients.sum(axis=0), half.classes, SHARE)
        flagged.append(float((scores[~inside] < threshold).mean()))
    return float(np.mean(areas)), float(np.ptp(areas)), float(np.mean(flagged)), accuracy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmarks", nargs="+")
    options = parser.parse_args()
    print(f"{'benchmark':<16}  {'AUROC':>6}  {'range':>6}  {'flagged':>8}  {'accuracy':>8}")
    for name in options.benchmarks:
        area, spread, flagged, accuracy = measure(read_benchmark(list_benchmarks()[name]))
        print(
            f"{name:<16}  {100 * area:6.1f}  {100 * spread:6.1f}  {100 * flagged:6.1f} %  {100 * accuracy:6.1f} %",
            flush=True,
        )


if __name__ == "__main__":
    main()
