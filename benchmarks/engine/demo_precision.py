"""Would the demo say the same with its embeddings in 8 bits, a scale per row?

    python benchmarks/engine/demo_precision.py

Accuracy and gain of every method of the demo, in float16 as it ships and in 8 bits, seeds 0 to 4.
"""

from dataclasses import replace

import numpy as np

from latte.analysis.stats import paired
from latte.core.maths import normalised
from latte.data.bundled import demo_embeddings
from latte.data.federation import Embeddings, federate
from latte.demo.pacs import METHODS, SEEDS, SYNC
from latte.engine import run_fast
from latte.simulation.simulator import Schedule, run_readable

SCHEDULE = Schedule(sync=SYNC)


def in_eight_bits(embeddings: Embeddings) -> Embeddings:
    rows = embeddings.views[:, 0].astype(np.float32)
    scale = np.abs(rows).max(axis=1, keepdims=True) / 127
    stored = np.round(rows / scale).astype(np.int8)
    return replace(embeddings, views=normalised(stored * scale)[:, None].astype(np.float32))


def accuracies(embeddings: Embeddings, method: str) -> dict[int, float]:
    by_seed = {}
    for seed in SEEDS:
        federation = federate(embeddings, 10, seed)
        outcome = run_fast(federation, method, schedule=SCHEDULE) or run_readable(federation, method, schedule=SCHEDULE)
        by_seed[seed] = outcome.result(federation, method, {}, "default", seed).micro
    return by_seed


if __name__ == "__main__":
    exact = demo_embeddings()
    sets = {"float16": exact, "8 bits": in_eight_bits(exact)}
    base = {name: accuracies(embeddings, "clip") for name, embeddings in sets.items()}
    print(f"{'':<12}" + "".join(f"{name:>40}" for name in sets))
    for method in METHODS:
        cells = []
        for name, embeddings in sets.items():
            scores = accuracies(embeddings, method)
            gain = paired((method, "clip"), scores, base[name])
            shown = f"{np.mean(list(scores.values())):.2f}  {gain.mean:+.2f} [{gain.low:+.2f}, {gain.high:+.2f}]"
            cells.append(f"{shown:>40}")
        print(f"{method:<12}" + "".join(cells))
