"""Runs of Flower's simulation engine, in a process of their own: python tests/support/flower_simulation.py FOLDER.

One simulation does both: the bundled benchmark in step, for two methods, whose labels go to FOLDER; and every check of
an exchange, with messages that travel through Flower in both directions, whose outcome goes to FOLDER/contract.json.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from queue import SimpleQueue

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
}
RAY = {  # no third of the memory for 38 small clients
    "include_dashboard": False,
    "object_store_memory": 100 << 20,
}
NODES = 30  # fewer than the 38 clients of the bundled benchmark: some nodes have two
BENCHMARKS = {
    "latte": {"method": "latte", "sync": "every", "period": 12},
    **{name: {"method": name, "sync": "doubling"} for name in ("ristretto", "pta-fed", "oga-fed", "dota-fed")},
}
METHODS = ("latte", "ristretto", "pta-fed", "oga-fed", "dota-fed")  # whose messages the checks of an exchange send


# --- the contract of an exchange ----------------------------------------------------------------------------------


class GridExchange:
    """An exchange whose every message goes to a node and back: an upload as a reply, a download as a query.

    Each client has a folder of its own. Its offer is written there, fetched by the ClientApp of a node, and checked and
    stored by the hub; the answer goes to a node with a query, which writes it to the folder, from which it is read.
    """

    def __init__(self, grid, folder: Path, method: str, zero_shot) -> None:
        from latte.edge.joining import make_task
        from latte.server.hub.check import mended_hub

        self.grid, self.folder = grid, folder
        params = {"k_e": 2} if method == "latte" else None
        self.shared_task = make_task(zero_shot, method, params)
        self.hub = mended_hub(self.shared_task, folder / "server")
        self.task, self._lock = zero_shot.fingerprint, threading.Lock()
        self._clients: dict[str, object] = {}

    def push(self, client, upload) -> None:
        """Offer an upload and let the server fetch it."""
        from latte.core.validate import client_name

        exchange = self._client(client_name(client))
        with exchange.lock:
            exchange.offer(upload)
            answer = self._answer(client, self._trip(exchange))
            if answer.code:
                self._trip(exchange, answer)
                exchange.download_of(exchange.folder.answer())

    def pull(self, client):
        """Let the server answer, and read what arrived."""
        from latte.core.validate import client_name
        from latte.flower.records import NodeReply

        exchange = self._client(client_name(client))
        with exchange.lock:
            answer = self._answer(client, NodeReply(self.shared_task.fingerprint))
            if answer.code:
                return exchange.download_of(answer)
            self._trip(exchange, answer)
            return exchange.download_of(exchange.folder.answer())

    def pull_many(self, clients):
        return [self.pull(client) for client in clients]

    def _client(self, name: str):
        from latte.edge.clients.folder import ExchangeFolder, FolderExchange

        with self._lock:
            if name not in self._clients:
                folder = ExchangeFolder(self.folder / str(len(self._clients))).make()
                folder.put_task(self.shared_task)
                self._clients[name] = FolderExchange(folder, self.shared_task)
                self._clients[name].lock = threading.Lock()
            return self._clients[name]

    def _trip(self, exchange, answer=None):
        """Send a query to a node, and return its reply."""
        from latte.flower.records import NodeQuery, query_content, read_reply

        query = NodeQuery(self.shared_task.fingerprint, park=0.0 if answer else 5.0, answer=answer)
        content = query_content(query)
        content["check"] = config_record({"folder": str(exchange.folder.path)})
        return read_reply(self.grid.ask(content))

    def _answer(self, client: str, reply):
        """Do what the server does with a reply."""
        from latte.edge.clients.folder import FolderAnswer
        from latte.wire.messages import Problem, SyncRequest

        request = SyncRequest(
            self.shared_task.fingerprint, client, version=reply.version, key=reply.key, upload=reply.upload,
            precision="exact",
        )  # fmt: skip
        with self._lock:
            (got,) = self.hub.run([request])
        if isinstance(got, Problem):
            return FolderAnswer(self.shared_task.fingerprint, reply.version or 1, None, got.code, got.detail)
        return FolderAnswer(self.shared_task.fingerprint, got.version, got.download)


def config_record(values):
    from flwr.app import ConfigRecord

    return ConfigRecord(values)


class SharedGrid:
    """A grid for many threads: each asks a node in turn; one thread looks for the replies of all."""

    def __init__(self, grid) -> None:
        self._grid, self._lock = grid, threading.Lock()
        self._nodes = itertools.cycle(sorted(grid.get_node_ids()))
        self._open: dict[str, SimpleQueue] = {}
        self.messages = 0
        threading.Thread(target=self._look, daemon=True).start()

    def ask(self, content):
        """Send a query to the next node and return the content of its reply."""
        from flwr.app import Message

        replies: SimpleQueue = SimpleQueue()
        with self._lock:
            message = Message(content, next(self._nodes), "query.sync", ttl=600.0)
            (identity,) = self._grid.push_messages([message])
            self._open[identity] = replies
            self.messages += 1
        reply = replies.get()
        assert not reply.has_error(), reply.error.reason
        return reply.content

    def _look(self) -> None:
        while True:
            with self._lock:
                for reply in self._grid.pull_messages(list(self._open)) if self._open else ():
                    self._open.pop(reply.metadata.reply_to_message_id).put(reply)
            time.sleep(0.02)


def run_contract(grid, folder: Path) -> None:
    """Run every check of an exchange; write which failed, and how."""
    shared, numbers = SharedGrid(grid), itertools.count()
    cases = [(method, name) for method in METHODS for name in checks_of(method)]

    def run(case) -> tuple[str, str]:
        method, name = case
        make = lambda zero_shot: GridExchange(shared, folder / f"exchange-{next(numbers)}", method, zero_shot)  # noqa: E731
        try:
            checks_of(method)[name](make)
            return f"{method}: {name}", ""
        except BaseException:
            return f"{method}: {name}", traceback.format_exc()

    with ThreadPoolExecutor(len(cases)) as pool:  # Flower looks for messages ten times a second: all at once
        outcomes = dict(pool.map(run, cases))
    (folder / "contract.json").write_text(json.dumps({"outcomes": outcomes, "messages": shared.messages}))


def checks_of(method: str):
    from latte import create
    from latte.checks import exchange_checks, uploads_of

    return exchange_checks() if method == "latte" else exchange_checks(uploads_of(partial(create, method)))


def folder_mod(message, context, call_next):
    """Let the query say which client's folder the node has: in a simulation, any node may be any client."""
    if "check" in message.content:
        context.node_config["state-dir"] = message.content["check"]["folder"]
    return call_next(message, context)


# --- both in one simulation -----------------------------------------------------------------------------------------


def run_all(folder: Path) -> None:
    from flwr.serverapp import ServerApp
    from flwr.simulation import run_simulation

    from latte.flower.fleet import run_benchmark
    from latte.flower.node import make_client_app
    from latte.flower.settings import BenchmarkSettings

    app = ServerApp()

    @app.main()
    def main(grid, context) -> None:
        for name, config in BENCHMARKS.items():
            start = time.monotonic()
            run_benchmark(grid, BenchmarkSettings.of({**config, "out": str(folder / f"{name}.json")}))
            print(f"{name}: {time.monotonic() - start:.1f} s", flush=True)
        start = time.monotonic()
        run_contract(grid, folder)
        print(f"contract: {time.monotonic() - start:.1f} s", flush=True)

    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": RAY}
    run_simulation(app, make_client_app(mods=[folder_mod]), NODES, backend_config=resources)


if __name__ == "__main__":
    os.environ |= QUIET
    run_all(Path(sys.argv[1]))
