"""A server that is killed again and again, and starts again at the same address."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from latte.server.http.running import ServerOptions
from latte.wire.task import Task
from serving import UNLIMITED
from two_servers import forked_server


class MortalServer:
    """A server process with its store in the folder ``data``."""

    def __init__(self, task: Task, data: Path) -> None:
        self.task, self.options = task, ServerOptions(data, port=free_port(), access=UNLIMITED)
        self._open = ExitStack()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.options.port}"

    def start(self) -> None:
        """Start it and wait until it serves."""
        self._open.enter_context(forked_server(self.task, self.options))

    def kill(self) -> None:
        """Kill it with SIGKILL and wait for its end."""
        self._open.close()


@contextmanager
def mortal_server(task: Task, data: Path) -> Iterator[MortalServer]:
    """Yield a running server; it is killed at the end."""
    server = MortalServer(task, data)
    server.start()
    try:
        yield server
    finally:
        server.kill()


def free_port() -> int:
    """Return a port of this machine that nobody uses now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
