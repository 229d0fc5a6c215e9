"""A federation of very many clients: time and memory of the engine, and a comparison with the readable simulator.

python benchmarks/engine/scale.py --clients 20000
python benchmarks/engine/scale.py --check 600  # in blocks, on so many clients that the readable simulator can follow
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # the threads of a run share out the products themselves

import argparse
import time

import numpy as np
from engine.speed import high_water

from latte.core.zero_shot import ZeroShot
from latte.data.federation import ClientStream, Embeddings, Federation
from latte.engine import reader, run_fast
from latte.simulation.simulator import Schedule, run_readable

CLASSES, DIM, LENGTH, PERIOD, DOMAINS = 10, 512, 20, 10, 19


def unit(rows: np.ndarray) -> np.ndarray:
    rows /= np.linalg.norm(rows, axis=-1, keepdims=True)
    return rows


def many_clients(clients: int, seed: int = 0) -> Federation:
    """Return clients of 20 samples each in 19 domains, with CLIP-like embeddings."""
    rng = np.random.default_rng(seed)
    draw = lambda *shape: unit(rng.standard_normal(shape, np.float32))  # noqa: E731
    text = unit(0.8 * draw(DIM) + 0.6 * draw(CLASSES, DIM))
    cone, own, shift = draw(DIM), draw(CLASSES, DIM), draw(DOMAINS, DIM)
    samples = clients * LENGTH
    labels = rng.integers(0, CLASSES, samples)
    domain = np.repeat(np.arange(clients) % DOMAINS, LENGTH)
    rows = np.empty((samples, 1, DIM), np.float32)
    for start in range(0, samples, 20_000):
        part = slice(start, start + 20_000)
        rows[part, 0] = 0.7 * cone + 0.18 * text[labels[part]] + 0.25 * own[labels[part]] + 0.3 * shift[domain[part]]
        rows[part, 0] += 0.5 * draw(len(rows[part]), DIM)
        unit(rows[part, 0])
    names = tuple(f"class {y}" for y in range(CLASSES))
    domains = tuple(f"domain {d}" for d in range(DOMAINS))
    embeddings = Embeddings("many clients", ZeroShot(text, names), rows, labels, domain, domains)
    streams = np.arange(samples).reshape(clients, LENGTH)
    return Federation(embeddings, tuple(ClientStream(f"client {i}", i % DOMAINS, s) for i, s in enumerate(streams)))


def timed(federation: Federation, threads: int):
    cpu, wall = time.process_time(), time.perf_counter()
    outcome = run_fast(federation, "latte", None, Schedule(PERIOD), threads=threads)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    right = np.concatenate(outcome.correct(federation)).mean()
    print(
        f"{len(federation)} clients, {outcome.engine}: {wall:.1f} s wall, {cpu:.1f} s processor time, "
        f"peak {high_water() / 1024:.2f} GB, accuracy {100 * right:.2f}",
        flush=True,
    )
    return outcome


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=20_000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--check", type=int, default=0, metavar="CLIENTS", help="compare with the readable simulator")
    arguments = parser.parse_args()
    run_fast(many_clients(4), "latte")  # compiles
    if not arguments.check:
        timed(many_clients(arguments.clients), arguments.threads)
        return
    reader.SIMILARITY_BYTES = 0
    federation = many_clients(arguments.check)
    outcome = timed(federation, arguments.threads)
    readable = run_readable(federation, "latte", None, Schedule(PERIOD), calibration=False)
    different = sum(int((a != b).sum()) for a, b in zip(outcome.labels, readable.labels, strict=True))
    downloads = int((outcome.downloads != readable.downloads).sum())
    print(f"{different} of {federation.samples} predictions differ, {downloads} download counts")


if __name__ == "__main__":
    main()
