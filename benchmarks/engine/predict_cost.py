"""CPU cost of one Latte prediction, beside a plain numpy matmul of the same operands (one thread).

python benchmarks/engine/predict_cost.py
"""

import os

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

import time

import numpy as np

from latte import External, Latte, ZeroShot
from latte.methods import LatteParams

SHAPES = [(10, 12, 9, 512), (100, 8, 5, 512), (1000, 16, 12, 512)]
LIMITS = [80e-6, 250e-6, 5e-3]


def unit(rng: np.random.Generator, *shape: int) -> np.ndarray:
    rows = rng.normal(size=shape).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def filled_client(rng: np.random.Generator, C: int, S: int, E: int, D: int) -> Latte:
    """Return a client whose local memory is full and whose external memory is full."""
    text = unit(rng, C, D)
    client = Latte(ZeroShot(text, tuple(f"class {c}" for c in range(C))), LatteParams(k_l=S, k_e=E))
    for label in range(C):
        for row in unit(rng, S, D):
            client.local.put(label, row, float(rng.uniform(0.3, 1)))
    full = np.ones((C, E), np.bool_)
    task = client.zero_shot.fingerprint
    client.receive(External(unit(rng, C, E, D), rng.uniform(0.3, 1, (C, E)), full, task))
    return client


def stream(rng: np.random.Generator, client: Latte, count: int) -> list[np.ndarray]:
    """Return images of every degree of certainty, so that some are inserted and some are not."""
    text = client.zero_shot.text
    noise = unit(rng, count, text.shape[1]) * rng.uniform(1, 6, (count, 1))
    rows = text[rng.integers(len(text), size=count)] + noise
    return list((rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)[:, None])


def cpu_per_call(call, arguments) -> float:
    """Return the lowest mean CPU seconds per call over five passes."""
    best = np.inf
    for _ in range(5):
        start = time.process_time()
        for argument in arguments:
            call(argument)
        best = min(best, (time.process_time() - start) / len(arguments))
    return best


def main() -> None:
    rng = np.random.default_rng(0)
    print(f"{'(C, S, E, D)':>20} {'predict':>12} {'limit':>12} {'matmul':>12} {'ratio':>7}")
    for (C, S, E, D), limit in zip(SHAPES, LIMITS, strict=True):
        client = filled_client(rng, C, S, E, D)
        images = stream(rng, client, 2000 if C < 1000 else 200)
        flat, text = client.merged.vectors.reshape(-1, D), client.zero_shot.text
        plain = cpu_per_call(lambda f: (text @ f[0], flat @ f[0]), images)  # noqa: B023
        cost = cpu_per_call(client.predict, images)
        cells = [f"{x * 1e6:9.1f} us" for x in (cost, limit, plain)]
        print(f"{(C, S, E, D)!s:>20} {' '.join(cells)} {cost / plain:7.1f}")


if __name__ == "__main__":
    main()
