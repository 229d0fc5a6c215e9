"""Clients of a benchmark that talk to a real server: they predict, count what is right, and sync over HTTP."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from ..core.contracts import Collaborative
from ..core.sync import sync
from ..data.benchmark import ClientStream, Federation
from ..data.bundled import demo_embeddings
from ..data.partition import federate
from ..edge.http_exchange import HttpExchange
from ..errors import refuse
from ..methods import create
from ..version import __version__
from ..wire.messages import DeviceReport
from ..wire.task_file import Task
from .schedule import Schedule, rounds

T = TypeVar("T")

CLIENTS_PER_DOMAIN = 10
_LATEST = 100  # images over which a report averages, as that of a device does


def demo_federation(seed: int) -> Federation:
    """Return PACS, dealt to forty clients."""
    return federate(demo_embeddings(), CLIENTS_PER_DOMAIN, seed)


@dataclass(slots=True)
class FleetClient:
    """One client: its ``place`` in the federation, its stream, its method, and how it did so far.

    The true labels are for the counts only.
    """

    place: int
    stream: ClientStream
    views: Any  # (n, V, D)
    truth: Any  # (n,)
    method: Collaborative[Any, Any]
    zero_shot: Any  # the method without a memory
    labels: list[int] = field(default_factory=list)
    differing: int = 0
    correct: int = 0
    correct_zero_shot: int = 0
    gained: int = 0
    lost: int = 0
    entropies: deque[float] = field(default_factory=lambda: deque(maxlen=_LATEST))
    agreements: deque[bool] = field(default_factory=lambda: deque(maxlen=_LATEST))

    def classify(self) -> None:
        """Classify the next image."""
        place = len(self.labels)
        prediction, plain = self.method.predict(self.views[place]), self.zero_shot.predict(self.views[place])
        self.labels.append(int(prediction.label))
        self.differing += prediction.label != plain.label
        self._compare(prediction.label == self.truth[place], plain.label == self.truth[place])
        self.entropies.append(float(prediction.entropy))
        self.agreements.append(bool(prediction.label == plain.label))

    def _compare(self, right: bool, plain: bool) -> None:
        """Count whether the answer is right, and whether that of zero-shot is."""
        self.correct += int(right)
        self.correct_zero_shot += int(plain)
        self.gained += int(right and not plain)
        self.lost += int(plain and not right)

    def report(self) -> DeviceReport:
        """Return what it says of itself; labels are known here, so it says how often it was right."""
        images = len(self.labels)
        return DeviceReport(
            images=images,
            differing=int(self.differing),
            agreement=float(np.mean(self.agreements)) if images else 1.0,
            entropy=float(np.clip(np.mean(self.entropies), 0, 1)) if images else 0.0,
            labelled=images,
            correct=self.correct,
            correct_zero_shot=self.correct_zero_shot,
            gained=self.gained,
            lost=self.lost,
            software=f"latte {__version__}, demo",
        )


class ReportedSyncs:
    """An exchange over HTTP whose uploads have reports: a client syncs by itself, in one round trip."""

    def __init__(self, exchange: HttpExchange, clients: Mapping[str, FleetClient]) -> None:
        self.exchange, self.by_name = exchange, clients

    @property
    def task(self) -> str:
        """The fingerprint of the classifier that all clients share."""
        return self.exchange.task

    def push(self, client: str, upload: Any) -> None:
        """Upload a summary and a report."""
        self.exchange.push(client, upload, self.by_name[client].report())

    def pull(self, client: str) -> Any:
        """Download what a client gets."""
        return self.exchange.pull(client)

    def pull_many(self, clients: Sequence[str]) -> Sequence[Any]:
        """Download what many clients get."""
        return self.exchange.pull_many(clients)


class SingleTrips(ReportedSyncs):
    """Uploads and downloads in one round trip."""

    def push_pull(self, client: str, upload: Any) -> Any:
        """Upload a summary and a report, and download."""
        return self.exchange.push_pull(client, upload, self.by_name[client].report())


class LockStep(ReportedSyncs):
    """Everyone uploads before anyone downloads, on all devices: ``wait`` returns when all others have come as far."""

    def __init__(self, exchange: HttpExchange, clients: Mapping[str, FleetClient], wait: Callable[[], None]) -> None:
        super().__init__(exchange, clients)
        self._wait = wait

    def pull_many(self, clients: Sequence[str]) -> Sequence[Any]:
        """Download when all have uploaded, and go on when all have downloaded."""
        self._wait()
        downloads = self.exchange.pull_many(clients)
        self._wait()
        return downloads


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a device goes: ``seconds`` per round, and together with all others (``wait``) or by itself (None)."""

    seconds: float = 0.0
    wait: Callable[[], None] | None = None


def open_client(federation: Federation, place: int, task: Task) -> FleetClient:
    """Return a client of a federation with a new method."""
    stream, method = federation.clients[place], create(task.method, task.zero_shot, task.params)
    if not isinstance(method, Collaborative):
        raise refuse("method", repr(task.method), "one that collaborates, such as latte or ristretto")
    plain = create("clip", task.zero_shot)
    return FleetClient(place, stream, federation.stream(stream), federation.labels(stream), method, plain)


def run_clients(
    clients: Sequence[FleetClient],
    lengths: Sequence[int],
    exchange: HttpExchange,
    pace: Pace,
    tell: Callable[[], None],
) -> None:
    """Walk the streams of ``clients``, those of a device, as the simulator does: ``lengths`` are of all clients.

    ``tell`` is called after every round.
    """
    task = exchange.shared_task
    schedule = Schedule(period=task.period, sync=task.sync)
    for turn in paced(rounds(lengths, schedule, np.random.default_rng(0)), pace):
        for client in clients:
            if client.place in turn.active:
                client.classify()
        if turn.members:
            _sync_some([client for client in clients if client.place in turn.members], exchange, pace)
        tell()


def _sync_some(due: Sequence[FleetClient], exchange: HttpExchange, pace: Pace) -> None:
    """Sync the clients that are due; in lock step, a device without such clients waits for the others, too."""
    clients = {client.stream.name: client for client in due}
    members = [(name, client.method) for name, client in clients.items()]
    if pace.wait is not None:
        sync(members, LockStep(exchange, clients, pace.wait))
        return
    for member in members:
        sync([member], SingleTrips(exchange, clients))


def paced(steps: Iterable[T], pace: Pace) -> Iterator[T]:
    """Yield steps no faster than the pace."""
    start = time.monotonic()
    for number, step in enumerate(steps):
        time.sleep(max(start + number * pace.seconds - time.monotonic(), 0.0))
        yield step
