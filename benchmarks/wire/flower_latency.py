"""How long a sync takes through Flower and through the project's own service, both with TLS on 127.0.0.1.

python benchmarks/wire/flower_latency.py --nodes 3 --syncs 10

A sync is an upload and the download that answers it, as a device sees it. Through Flower it goes from the folder of a
node to its ClientApp, the SuperLink, the ServerApp, and back; through the service it is one request. Clients sync one
after the other as fast as they get answers. Needs the extras flower and serve, openssl and ssh-keygen.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from latte.data.bundled import bundled
from latte.edge.clients.calls import Connection, UnreachableError
from latte.edge.clients.folder import ExchangeFolder, FolderExchange
from latte.edge.clients.http import HttpExchange
from latte.edge.joining import make_task, new_member
from latte.wire.task import Task, write_task

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "flower_app"))
from loopback import Loopback, Processes, call

Trip = Callable[[Any], Any]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def member_of(task: Task, node: int) -> Any:
    """Return a client that has seen the stream of one client of the bundled benchmark."""
    federation, method = bundled(), new_member(task)
    for views in federation.stream(federation.clients[node]):
        method.predict(views)
    return method


def measure(task: Task, trips: list[Trip], syncs: int) -> list[float]:
    """Let clients sync at the same time, each one after the other; return the seconds of every sync but the first."""

    def client(node: int) -> list[float]:
        method, seconds = member_of(task, node), []
        for _ in range(syncs + 1):
            start = time.perf_counter()
            method.receive(trips[node](method.summary()))
            seconds.append(time.perf_counter() - start)
        return seconds[1:]

    with ThreadPoolExecutor(len(trips)) as pool:
        return [second for part in pool.map(client, range(len(trips))) for second in part]


@contextmanager
def flower(task: Task, folder: Path, nodes: int) -> Iterator[list[Trip]]:
    """Yield a way to sync for each node of a deployment."""
    deployment = Loopback(folder, free_port())
    deployment.prepare()
    write_task(folder / "federation.task", task)
    processes = Processes(deployment)
    try:
        processes.start("superlink", deployment.superlink())
        for node in range(nodes):
            call(processes, deployment.register(node))
            processes.start(f"supernode{node}", deployment.supernode(node, free_port()))
        call(processes, deployment.run(task=str(folder / "federation.task")))
        folders = [ExchangeFolder(deployment.node_folder(node)) for node in range(nodes)]
        yield [FolderExchange(each, task, "int8", patience=600.0).push_pull for each in folders]
    finally:
        processes.end_all()


@contextmanager
def service(task: Task, folder: Path, nodes: int) -> Iterator[list[Trip]]:
    """Yield a way to sync for each client of a server."""
    deployment, port = Loopback(folder, 0), free_port()
    deployment.prepare()
    write_task(folder / "federation.task", task)
    words = ("--port", str(port), "--folder", str(folder / "data"), "--cert", str(folder / "server.pem"))
    command = [sys.executable, "-m", "latte", "serve", str(folder / "federation.task"), *words]
    with (folder / "serve.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--key", str(folder / "server.key")], stdout=log, stderr=log, start_new_session=True
        )
    try:
        with _connected(f"https://127.0.0.1:{port}", deployment.authority) as exchange:
            yield [lambda upload, node=node: exchange.push_pull(f"node {node}", upload) for node in range(nodes)]
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.wait(120)


def _connected(address: str, authority: Path) -> HttpExchange:
    while True:
        with suppress(UnreachableError):
            return HttpExchange(address, precision="int8", connection=Connection(attempts=1, authority=authority))
        time.sleep(0.2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--syncs", type=int, default=10)
    a = parser.parse_args()
    task = make_task(bundled().embeddings.zero_shot, "latte")
    print("| carrier | clients | syncs | median | 95th of 100 | longest |\n|:--|--:|--:|--:|--:|--:|")
    for name, carrier in (("service", service), ("Flower", flower)):
        with tempfile.TemporaryDirectory() as folder, carrier(task, Path(folder), a.nodes) as trips:
            seconds = np.array(measure(task, trips, a.syncs))
        shown = " | ".join(f"{1000 * value:,.0f} ms" for value in np.quantile(seconds, (0.5, 0.95, 1.0)))
        print(f"| {name} | {a.nodes} | {len(seconds)} | {shown} |", flush=True)


if __name__ == "__main__":
    main()
