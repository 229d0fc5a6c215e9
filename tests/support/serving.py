"""Servers for tests: in a thread of this process, or as a process of its own."""

from __future__ import annotations

import asyncio
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import uvicorn

from latte.edge.clients.calls import Connection
from latte.edge.clients.http import HttpExchange
from latte.edge.joining import make_task
from latte.server.http.running import ServerOptions, listen, loaded_config, open_service
from latte.server.http.service import Access, RequestRate, Service
from latte.wire.task import Task, write_task
from waiting import Running, running, wait_until

UNLIMITED = Access(rate=RequestRate(0))
IMPATIENT = Connection(attempts=1)  # a failure is what the test looks at


@dataclass(frozen=True)
class ThreadServer:
    """A server in a thread: its address, the service behind it, and what runs it."""

    address: str
    service: Service
    server: uvicorn.Server


@contextmanager
def serving(task: Task, folder: Path, **options: object) -> Iterator[ThreadServer]:
    """Serve ``task`` in a thread until the block ends; without limits of rate, unless ``options`` have some."""
    chosen = replace(ServerOptions(folder, port=0, access=UNLIMITED), **options)
    service, listener = open_service(task, chosen), listen(chosen.host, chosen.port)
    server = uvicorn.Server(loaded_config(service, chosen))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])))
    thread.start()
    try:
        wait_until(lambda: server.started or not thread.is_alive(), "the start of the server")
        yield ThreadServer(f"http://127.0.0.1:{listener.getsockname()[1]}", service, server)
    finally:
        service.ready = False  # streams of events end
        server.should_exit = True
        thread.join()
        listener.close()


@contextmanager
def server_process(task: Path, data: Path, *options: object, **environment: str) -> Iterator[tuple[str, Running]]:
    """Run ``latte serve`` as a process; yield its address and the process."""
    port = () if "--port" in options else ("--port", "0")
    command = (sys.executable, "-m", "latte", "serve", task, "--folder", data, *port, *options)
    with running(*command, **environment) as process:
        match = wait_until(
            lambda: re.search(r"latte serves (\S+)", process.so_far().stdout), "the address of the server", process
        )
        yield match[1], process


class Servers:
    """Makes exchanges over HTTP, each with a server of its own, for the checks of exchanges."""

    def __init__(self, folder: Path, method: str, precision: str = "exact", **params: object) -> None:
        self._folder, self._method, self._precision, self._params = folder, method, precision, params
        self._open, self._count = ExitStack(), 0

    def __enter__(self) -> Servers:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def make(self, zero_shot) -> HttpExchange:
        """Return an exchange at a new server."""
        self._count += 1
        task = make_task(zero_shot, self._method, self._params)
        server = self._open.enter_context(serving(task, self._folder / str(self._count)))
        exchange = HttpExchange(server.address, precision=self._precision, connection=IMPATIENT)
        return self._open.enter_context(exchange)


def task_file(folder: Path, zero_shot, method: str = "latte", **params: object) -> Path:
    """Write a task file and return its path."""
    path = folder / "federation.task"
    write_task(path, make_task(zero_shot, method, params))
    return path
