"""A large federation in one process: how long join, predict, push and pull take, and the pulls of everyone at once.

python benchmarks/exchange.py --clients 1000 --classes 100 --dim 512
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

from latte import Latte, LatteParams, ZeroShot


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


if __name__ == "__main__":
    main()
