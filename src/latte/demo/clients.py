"""Clients of a benchmark that talk to a real server: they predict, count what is right, and sync over HTTP.

Run as a program, this module is a device of the fleet demo: a process with some clients of the bundled benchmark.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from typing import TypeVar

import numpy as np

from ..core.sync import is_due, upload_of
from ..core.types import Collaborative
from ..data.bundled import demo_embeddings
from ..data.federation import Federation, federate
from ..edge.classify.classify import EmbeddedPicture, answer_picture
from ..edge.classify.evidence import Labelled, Tally, compare_answers
from ..edge.clients.calls import Calls, Connection
from ..edge.clients.http import HttpExchange
from ..edge.device.device import report_of
from ..errors import refuse
from ..files.documents import parse_json, structure
from ..methods import create
from ..simulation.simulator import Schedule, rounds
from ..version import __version__
from ..wire.messages import DeviceReport
from ..wire.task import Task

T = TypeVar("T")

CLIENTS_PER_DOMAIN = 10
SEED = 1000  # of the split that a guest is a client of, which is not that of the demo
_EVERY = 0.5  # seconds between two tallies


def demo_federation(seed: int) -> Federation:
    """Return PACS, split among forty clients."""
    return federate(demo_embeddings(), CLIENTS_PER_DOMAIN, seed)


class FleetClient:
    """One client: its ``place`` in the federation, its stream, its method, and how it did so far.

    The true labels are for the counts only.
    """

    def __init__(self, federation: Federation, place: int, task: Task, name: str = "") -> None:
        self.place, self.task, stream = place, task, federation.clients[place]
        self.name, self.domain = name or stream.name, federation.embeddings.domains[stream.domain]
        self.rows = federation.stream(stream)[:, 0]  # (n, D)
        self._truth = [task.zero_shot.classnames[label] for label in federation.labels(stream)]
        method = create(task.method, task.zero_shot, task.params)
        if not isinstance(method, Collaborative):
            raise refuse("method", repr(task.method), "one that collaborates, such as latte or ristretto")
        self.method, self.tally, self.counts, self.labels = method, Tally(), Labelled(), list[int]()

    def classify(self) -> None:
        """Classify the next image."""
        place = len(self.labels)
        zero_shot, name = self.task.zero_shot, str(place)
        answer = answer_picture(EmbeddedPicture(name, self.rows[place]), zero_shot, self.method)
        self.tally.count(answer)
        self.counts += compare_answers([answer], {name: self._truth[place]})
        self.labels.append(zero_shot.classnames.index(str(answer.label)))

    def sync(self, exchange: HttpExchange) -> None:
        """Upload and download in one round trip."""
        if (upload := upload_of(self.method)) is not None:
            self.method.receive(exchange.push_pull(self.name, upload, self.report()))

    def report(self) -> DeviceReport:
        """Return what it says of itself; labels are known here, so it says how often it was right."""
        return report_of(self.tally, self.counts, software=f"latte {__version__}, demo")


def sync_together(clients: Sequence[FleetClient], exchange: HttpExchange, wait: Callable[[], None]) -> None:
    """Let everyone upload before anyone downloads, on all devices: ``wait`` returns when all others are as far."""
    uploading = [(client, upload) for client in clients if (upload := upload_of(client.method)) is not None]
    for client, upload in uploading:
        exchange.push(client.name, upload, client.report())
    wait()
    downloads = exchange.pull_many([client.name for client, _ in uploading])
    wait()
    for (client, _), download in zip(uploading, downloads, strict=True):
        client.method.receive(download)


def paced(steps: Iterable[T], seconds: float) -> Iterator[T]:
    """Yield steps no faster than one per so many seconds."""
    start = time.monotonic()
    for number, step in enumerate(steps):
        time.sleep(max(start + number * seconds - time.monotonic(), 0.0))
        yield step


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


def main() -> None:
    """Do what the first line of the input says, and end with the program that writes it."""
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def listen() -> None:
        for line in sys.stdin:
            lines.put(line)
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    orders = structure(parse_json(lines.get(), "orders"), DeviceOrders, "orders")
    federation = demo_federation(orders.seed)
    names = [federation.clients[place].name for place in orders.places]
    tokens = dict(zip(names, orders.tokens, strict=True))

    def tell(waiting: bool = False, labels: bool = False) -> float:
        counts = sum((client.counts for client in clients), Labelled())
        tally = DeviceTally(counts.labelled, counts.correct, counts.correct_zero_shot, waiting)
        if labels:
            tally = replace(tally, labels={client.name: client.labels for client in clients})
        print(json.dumps(asdict(tally)), flush=True)
        return time.monotonic()

    def wait() -> None:
        tell(waiting=True)
        lines.get()

    with HttpExchange(orders.server, tokens=tokens, precision=orders.precision) as exchange:
        task = exchange.shared_task
        clients = [FleetClient(federation, place, task) for place in orders.places]
        wait()
        told = time.monotonic()
        schedule = Schedule(period=task.period, sync=task.sync)
        turns = rounds([len(client) for client in federation.clients], schedule, np.random.default_rng(0))
        for turn in paced(turns, orders.pace):
            for client in clients:
                if client.place in turn.active:
                    client.classify()
            due = [client for client in clients if client.place in turn.members]
            if turn.members and orders.lock_step:  # a device without such clients waits for the others, too
                sync_together(due, exchange, wait)
            for client in due if not orders.lock_step else ():
                client.sync(exchange)
            if time.monotonic() - told > _EVERY:
                told = tell()
        for client in clients:  # the dashboard ends at the last image, not at the last sync; nobody downloads any more
            if (upload := upload_of(client.method)) is not None:
                exchange.push(client.name, upload, client.report())
    tell(labels=True)


def guest_clients(server: str, token: str, precision: str, seconds: float) -> Iterator[FleetClient]:
    """Join a running demo from elsewhere, with a stream that nobody else has; yield the client after every image.

    It classifies and syncs by itself for about ``seconds``.
    """
    with closing(Calls(server, token, Connection())) as calls:
        name = parse_json(calls.get("/v1/whoami"), f"{server}/v1/whoami").get("client")
    if not isinstance(name, str):
        raise refuse("token", "the token of an admin", "the one that `latte demo --fleet` prints for guests")
    federation = demo_federation(SEED)
    with HttpExchange(server, tokens=token, precision=precision) as exchange:
        task = exchange.shared_task
        if task.zero_shot.fingerprint != federation.embeddings.zero_shot.fingerprint:
            raise refuse("server", f"{server}, which serves another task", "the address of a `latte demo --fleet`")
        client = FleetClient(federation, len(federation) - 1, task, name)
        for images in paced(range(1, len(client.rows) + 1), seconds / len(client.rows)):
            client.classify()
            if is_due(task.sync, images, task.period):
                client.sync(exchange)
            yield client


if __name__ == "__main__":
    main()
