"""A device of the fleet demo: a process with some clients of the bundled benchmark.

``python -m latte.simulation.fleet_device`` reads a line of JSON, its :class:`DeviceOrders`, and prints lines of JSON,
each a :class:`DeviceTally`. In lock step it goes on when it reads an empty line. It ends when its input does: no device
outlives the program that started it.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from ..edge.http_exchange import HttpExchange
from ..files.documents import parse_json
from ..files.schema import structure
from .fleet_client import FleetClient, Pace, demo_federation, open_client, run_clients

_EVERY = 0.5  # seconds between two tallies


@dataclass(frozen=True, slots=True)
class DeviceOrders:
    """What a device is to do: ``tokens`` by the ``places`` of its clients, ``pace`` in seconds per round."""

    server: str
    places: tuple[int, ...]
    tokens: tuple[str, ...]
    precision: str = "fp32"
    seed: int = 0
    pace: float = 0.0
    lock_step: bool = True


@dataclass(frozen=True, slots=True)
class DeviceTally:
    """How the clients of a device did so far. ``waiting``: for the other devices. ``labels`` by client, at the end."""

    images: int = 0
    correct: int = 0
    correct_zero_shot: int = 0
    waiting: bool = False
    labels: dict[str, list[int]] = field(default_factory=dict)


class DeviceProcess:
    """The way to the program that started the device."""

    def __init__(self) -> None:
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._clients: Sequence[FleetClient] = ()
        self._reported_at = 0.0
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in sys.stdin:
            self._lines.put(line)
        os._exit(0)

    def run(self) -> None:
        """Do what the first line says."""
        orders = structure(parse_json(self._lines.get(), "orders"), DeviceOrders, "orders")
        federation = demo_federation(orders.seed)
        names = [federation.clients[place].name for place in orders.places]
        tokens = dict(zip(names, orders.tokens, strict=True))
        with HttpExchange(orders.server, tokens=tokens, precision=orders.precision) as exchange:
            self._clients = [open_client(federation, place, exchange.shared_task) for place in orders.places]
            self._wait()
            pace = Pace(orders.pace, self._wait if orders.lock_step else None)
            run_clients(
                self._clients, [len(client) for client in federation.clients], exchange, pace, self._tell_rarely
            )
        self._tell(labels={client.stream.name: client.labels for client in self._clients})

    def _wait(self) -> None:
        self._tell(waiting=True)
        self._lines.get()

    def _tell_rarely(self) -> None:
        if time.monotonic() - self._reported_at > _EVERY:
            self._tell()

    def _tell(self, waiting: bool = False, labels: dict[str, list[int]] | None = None) -> None:
        self._reported_at = time.monotonic()
        clients = self._clients
        images, correct = sum(len(client.labels) for client in clients), sum(client.correct for client in clients)
        plain = sum(client.correct_zero_shot for client in clients)
        tally = DeviceTally(images, correct, plain, waiting, labels or {})
        print(json.dumps(asdict(tally)), flush=True)


if __name__ == "__main__":
    DeviceProcess().run()
