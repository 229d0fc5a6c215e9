"""A large federation in one process: how long join, predict, push and pull take, and the pulls of everyone at once.

At the end, the same pulls from clients of which many hold the same prototypes, or nearly so, beside distinct ones.

python benchmarks/engine/exchange.py --clients 1000 --classes 100 --dim 512
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

from latte import GlobalMemory, Latte, Prototypes, ZeroShot
from latte.methods import LatteParams

KINDS = (
    "distinct",
    "identical",
    "2 groups",
    "100 groups",
    "half are copies",
    "half the classes",
    "a float32 step apart",
)


def unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)


def timed(what: str, calls: int, run: Callable[[], object]) -> float:
    started = time.process_time()
    run()
    seconds = time.process_time() - started
    print(f"{what:<28} {seconds:8.2f} s of processor   {1e3 * seconds / calls:8.3f} ms each")
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, value in (("clients", 1000), ("classes", 100), ("dim", 512), ("images", 200), ("some", 50)):
        parser.add_argument(f"--{name}", type=int, default=value)
    a = parser.parse_args()
    rng = np.random.default_rng(0)
    text = unit(rng.normal(size=(a.classes, a.dim)))
    zero_shot = ZeroShot(text, tuple(map(str, range(a.classes))))
    params = LatteParams(k_l=2, k_e=5)
    names = [f"client {i}" for i in range(a.clients)]
    clients: list[Latte] = []
    exchange = Latte.exchange_for(zero_shot, params)
    shift = rng.normal(size=(10, a.classes, a.dim)) * 0.5 / np.sqrt(a.dim)  # ten domains

    def images(client: int) -> np.ndarray:
        labels = rng.integers(a.classes, size=a.images)
        noise = rng.normal(size=(a.images, a.dim)) * 0.8 / np.sqrt(a.dim)
        return unit(text[labels] + shift[client % 10][labels] + noise)

    streams = [images(i) for i in range(a.some)]
    timed("make clients", a.clients, lambda: clients.extend(Latte(zero_shot, params) for _ in names))
    timed("join", a.clients, lambda: [exchange.join(name) for name in names])
    predictions = a.some * a.images
    timed("predict", predictions, lambda: [c.predict(x) for c, s in zip(clients, streams, strict=False) for x in s])
    for i in range(a.some, a.clients):  # the others store what they would have stored, without the prediction
        for image in images(i)[:100]:
            clients[i].local.put(int((text @ image).argmax()), image, 0.5)
    uploads = [client.summary() for client in clients]
    timed("push", a.clients, lambda: [exchange.push(n, u) for n, u in zip(names, uploads, strict=True)])
    one = timed(f"pull, one by one ({a.some})", a.some, lambda: [exchange.pull(name) for name in names[: a.some]])
    many = timed("pull, all at once", a.clients, lambda: exchange.pull_many(names))
    print(f"all at once is {one / a.some * a.clients / many:.1f} times as fast as one by one")
    for share in (1.0, 0.6):
        print(f"\nClients have seen {share:.0%} of the classes. Processor time, and times distinct ones\n")
        print(f"| {'prototypes':<20} | {'push':>16} | {'pull one':>16} | {'one of 64':>16} | {'one of all':>16} |")
        print("|---|---|---|---|---|")
        distinct: list[float] = []
        for kind in KINDS:
            times = pull_costs(kind, share, zero_shot, Latte.exchange_for(zero_shot, params), a.clients, a.some)
            distinct = distinct or times
            cells = (f"{1e3 * t:8.3f} ms {t / d:4.1f}" for t, d in zip(times, distinct, strict=True))
            print(f"| {kind:<20} | " + " | ".join(cells) + " |", flush=True)


def pull_costs(
    kind: str, share: float, zero_shot: ZeroShot, exchange: GlobalMemory, clients: int, some: int
) -> list[float]:
    """Return the processor time of a push, of a pull, of one of 64 pulls, and of one of all."""
    rng, (classes, dim) = np.random.default_rng(1), zero_shot.text.shape
    groups = {"identical": 1, "2 groups": 2, "100 groups": 100, "a float32 step apart": 1}.get(kind, clients)
    different = np.stack(
        [unit(zero_shot.text + 0.8 / np.sqrt(dim) * rng.normal(size=(classes, dim))) for _ in range(groups)]
    )
    vectors = different[rng.integers(groups, size=clients) if groups < clients else np.arange(clients)]
    if kind == "half are copies":
        vectors[: clients // 2] = vectors[0]
    if kind == "half the classes":
        vectors[:, ::2] = vectors[0, ::2]
    if kind == "a float32 step apart":
        for rows in vectors:
            rows[:] = np.where(rng.random(rows.shape) < 0.5, np.nextafter(rows, np.float32(1)), rows)
    seen = rng.random((clients, classes)) < share
    vectors[~seen] = 0
    uploads = [Prototypes(*row, zero_shot.fingerprint) for row in zip(vectors, seen, strict=True)]
    names = [f"client {i}" for i in range(clients)]

    def cost(calls: int, run: Callable[[], object]) -> float:
        times = []
        for _ in range(3):
            started = time.process_time()
            run()
            times.append(time.process_time() - started)
        return min(times) / calls

    return [
        cost(clients, lambda: [exchange.push(n, u) for n, u in zip(names, uploads, strict=True)]),
        cost(some, lambda: [exchange.pull(name) for name in names[:some]]),
        cost(64, lambda: exchange.pick(names[:64])),
        cost(clients, lambda: exchange.pick(names)),
    ]


if __name__ == "__main__":
    main()
