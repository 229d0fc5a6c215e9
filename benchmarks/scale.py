"""A federation of very many clients: time, memory, and how far the approximate index is from the exact path.

python benchmarks/scale.py --clients 100000 --verify 1000
python benchmarks/scale.py --clients 1000 --index exact        # what the exact path takes
python benchmarks/scale.py --check 1000                        # both paths on the same clients
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # the threads of a run share out the products themselves

import argparse
import time

import numpy as np
from latte.simulation.engine.large import run_large, run_sample

from latte.analysis.speed import high_water
from latte.core.zero_shot import ZeroShot
from latte.data.benchmark import ClientStream, Embeddings, Federation
from latte.methods.latte import LatteParams
from latte.simulation.schedule import Schedule

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


def _pairs(result, federation: Federation):
    return zip(result.outcome.labels, federation.clients, strict=True)


def verify(federation: Federation, result, count: int) -> None:
    """Compare some clients of a run with what exact donors give them."""
    some = np.sort(np.random.default_rng(1).permutation(len(federation))[:count])
    exact = run_sample(federation, LatteParams(), Schedule(PERIOD), np.random.default_rng(0), some)
    different = sum(int((result.outcome.labels[i] != labels).sum()) for i, labels in zip(some, exact, strict=True))
    right = np.mean([(a == federation.labels(federation.clients[i])).mean() for i, a in zip(some, exact, strict=True)])
    print(
        f"{count} of the clients with exact donors: {different} of {count * LENGTH} predictions differ, "
        f"accuracy {100 * right:.2f}"
    )


def timed(federation: Federation, index: str, threads: int):
    cpu, wall = time.process_time(), time.perf_counter()
    result = run_large(federation, LatteParams(), Schedule(PERIOD), np.random.default_rng(0), index, threads)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    right = np.mean([(a == federation.labels(c)).mean() for a, c in _pairs(result, federation)])
    print(
        f"{len(federation)} clients, index {result.index}: {wall:.1f} s wall, {cpu:.1f} s processor time, "
        f"peak {high_water() / 1024:.2f} GB, recall {result.recall:.4f} "
        f"(unseen classes {result.recall_unseen:.4f}), accuracy {100 * right:.2f}",
        flush=True,
    )
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=100_000)
    parser.add_argument("--index", choices=("auto", "exact", "ivf"), default="auto")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--check", type=int, default=0, metavar="CLIENTS", help="compare both paths on so many")
    parser.add_argument("--verify", type=int, default=0, metavar="CLIENTS", help="find the donors of some exactly, too")
    arguments = parser.parse_args()
    if arguments.check:
        federation = many_clients(arguments.check)
        exact, near = (timed(federation, index, arguments.threads) for index in ("exact", "ivf"))
        pairs = zip(exact.outcome.labels, near.outcome.labels, strict=True)
        different = sum(int((a != b).sum()) for a, b in pairs)
        print(f"{different} of {federation.samples} predictions differ")
        return
    federation = many_clients(arguments.clients)
    result = timed(federation, arguments.index, arguments.threads)
    if arguments.verify:
        verify(federation, result, arguments.verify)


if __name__ == "__main__":
    main()
