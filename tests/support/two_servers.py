"""Servers as processes of their own that start in no time, and one exchange over several of them."""

from __future__ import annotations

import itertools
import multiprocessing
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

from latte.edge.clients.calls import Calls, Connection
from latte.edge.clients.http import HttpExchange
from latte.edge.joining import make_task
from latte.server.http.running import ServerOptions, serve
from latte.wire.task import Task, parse_task
from postgres import PostgresServer
from serving import IMPATIENT, UNLIMITED
from waiting import DEADLINE

_FORKING = multiprocessing.get_context("forkserver")  # one process imports everything, and servers are copies of it
_FORKING.set_forkserver_preload(["latte.server.http.running", "latte.methods.latte.client", "psycopg", "two_servers"])


def _serve(task: bytes, options: ServerOptions, started: Pipe, ahead: float) -> None:
    if ahead:
        clock = time.time
        time.time = lambda: clock() + ahead
    serve(parse_task(task), options, started.send)


@contextmanager
def forked_server(task: Task, options: ServerOptions, ahead: float = 0.0) -> Iterator[str]:
    """Run a server in a process of its own, whose clock is ``ahead`` by so many seconds; yield its address."""
    here, there = _FORKING.Pipe(duplex=False)
    process = _FORKING.Process(target=_serve, args=(task.to_bytes(), options, there, ahead))
    process.start()
    there.close()
    try:
        assert here.poll(DEADLINE), "the server does not start"
        yield here.recv()
    finally:
        process.kill()
        process.join()
        here.close()


@contextmanager
def two_servers(task: Task, url: str, folder: Path, apart: float = 0.0) -> Iterator[tuple[str, str]]:
    """Run two server processes on one PostgreSQL, with clocks ``apart``; yield their addresses."""
    with ExitStack() as servers:
        options = [ServerOptions(folder / str(i), url, port=0, access=UNLIMITED) for i in (1, 2)]
        yield tuple(servers.enter_context(forked_server(task, one, i * apart)) for i, one in enumerate(options))


class AlternatingCalls(Calls):
    """Calls that go to one server after the other, as a balancer sends them."""

    def __init__(self, servers: tuple[str, ...], connection: Connection) -> None:
        self._servers = itertools.cycle(servers)
        super().__init__(servers[0], None, connection)

    @property
    def server(self) -> str:
        return next(self._servers)

    @server.setter
    def server(self, value: str) -> None:
        """Ignore the one that a call names."""


class BalancedExchange(HttpExchange):
    """An exchange over several servers."""

    def __init__(self, servers: tuple[str, ...], precision: str = "exact", connection: Connection = IMPATIENT) -> None:
        super().__init__(servers[0], precision=precision, connection=connection)
        self._calls.close()
        self._calls = AlternatingCalls(servers, connection)


class Pairs:
    """Makes exchanges over HTTP, each with a store and two server processes of its own, for the checks of exchanges."""

    def __init__(self, postgres: PostgresServer, folder: Path, method: str, **params: object) -> None:
        self._postgres, self._folder, self._method, self._params = postgres, folder, method, params
        self._open, self._count = ExitStack(), 0

    def __enter__(self) -> Pairs:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def make(self, zero_shot) -> BalancedExchange:
        """Return an exchange at two new servers."""
        self._count += 1
        task = make_task(zero_shot, self._method, self._params)
        pair = two_servers(task, self._postgres.new_schema(), self._folder / str(self._count))
        return self._open.enter_context(BalancedExchange(self._open.enter_context(pair)))
