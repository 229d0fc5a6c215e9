"""The parts of the dashboard as JSON: made only while somebody watches, in a small share of the server's time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from ..coordination.hub import Hub
from ..core.contracts import Covering, Traced
from .batches import Batches
from .fleet_log import FleetLog
from .fleet_view import FleetQuery, FleetRow, FleetSource, FleetTable, fleet_table
from .help_map import MOST_MAPPED, TRACED_TOGETHER, Helper, HelpMap, Tracing, helped_by, helpers_of, map_of, trace
from .report_course import CoursePoint

PAUSE = 1.0  # seconds between two looks
SHARE = 0.05  # of the time that looking may take
MOST_WATCHERS = 16

T = TypeVar("T")


class TaskView(msgspec.Struct, frozen=True):
    """What the federation works on."""

    method: str
    classes: int
    fingerprint: str


class ClassView(msgspec.Struct, frozen=True):
    """A class, and whether the client has seen it."""

    name: str
    seen: bool


class ClientView(msgspec.Struct, frozen=True):
    """One client: its row, its classes (None: the method cannot say), its helpers, the clients it helps, its course.

    ``helped`` are the clients on the map that it helps, whether it is on the map itself or not; None: not known, or not
    yet.
    """

    row: FleetRow
    class_views: list[ClassView] | None = msgspec.field(name="classes")
    helpers: list[Helper]
    helped: list[Helper] | None
    course: list[CoursePoint]


@dataclass(frozen=True, slots=True, eq=False)
class DrawnMap:
    """The map (None: the method cannot say), and what it was made from: of each client on it, from whom it gets what.

    That takes 240 bytes per client of the fleet.
    """

    map: HelpMap | None
    tracings: list[Tracing]


@dataclass(frozen=True, slots=True)
class BoardState:
    """What a watcher sees now: ``parts`` in JSON by name, and how long it should wait for the next."""

    parts: dict[str, bytes]
    pause: float


class Paced(Generic[T]):
    """A value that is made on demand and used until it is due: the longer it takes to make, the longer it is used."""

    def __init__(self, make: Callable[[], Awaitable[T]]) -> None:
        self._make, self._lock = make, asyncio.Lock()
        self._value: T | None = None
        self._due = 0.0

    async def get(self) -> T:
        """Return the value; make it first if there is none or it is due."""
        async with self._lock:
            if self._value is None or time.monotonic() >= self._due:
                start = time.monotonic()
                self._value = await self._make()
                self._due = time.monotonic() + max(PAUSE, (time.monotonic() - start) / SHARE)
            return self._value


def _measure(make: Callable[[], T]) -> tuple[T, float]:
    """Return a value, and the processor time of this thread that it took."""
    start = time.thread_time()
    return make(), time.thread_time() - start


class Board:
    """What the dashboard of one server shows."""

    def __init__(self, hub: Hub, batches: Batches[Any, Any], log: FleetLog) -> None:
        self._hub, self._batches, self._log = hub, batches, log
        self._source = FleetSource(hub.versions, hub.updated, log.traces, hub.reports)
        self._map = Paced(self._draw_map)
        self._watchers = 0

    @property
    def full(self) -> bool:
        """Whether the number of watchers is at its limit."""
        return self._watchers >= MOST_WATCHERS

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Count a watcher."""
        self._watchers += 1
        try:
            yield
        finally:
            self._watchers -= 1

    async def picture(self, query: FleetQuery) -> BoardState:
        """Return what a watcher sees now."""
        fleet, took = await self._table(query)
        help_map = await self._map.get()
        values = {
            "task": self._task(),
            "fleet": fleet,
            "load": await asyncio.to_thread(self._log.load.summary),
            "refusals": self._log.refusals(),
            "client": await self._client(query, help_map) if query.client else None,
            "map": help_map.map,
        }
        parts = {name: msgspec.json.encode(value) for name, value in values.items()}
        return BoardState(parts, max(PAUSE, took * max(self._watchers, 1) / SHARE))

    def _task(self) -> TaskView:
        task = self._hub.task
        return TaskView(task.method, task.zero_shot.classes, task.fingerprint)

    async def _table(self, query: FleetQuery) -> tuple[FleetTable, float]:
        """Return the table, and the processor time that it took: it grows with the fleet, the rest does not."""
        table, took = await asyncio.to_thread(_measure, lambda: fleet_table(self._source, query, time.time()))
        if len(self._log.traces) > len(self._hub):
            self._log.trim(self._hub.versions)
        covered = await self._batches.call(lambda: self._coverage([row.client for row in table.rows]))
        rows = [msgspec.structs.replace(row, classes=covered.get(row.client)) for row in table.rows]
        return msgspec.structs.replace(table, rows=rows), took

    def _coverage(self, clients: list[str]) -> dict[str, int]:
        """Return how many classes each client has seen. The hub's thread calls it."""
        exchange, present = self._hub.exchange, [name for name in clients if name in self._hub.versions]
        if not isinstance(exchange, Covering) or not present:
            return {}
        counts = exchange.coverage(present).sum(axis=1).tolist()
        return dict(zip(present, counts, strict=True))

    async def _client(self, query: FleetQuery, help_map: DrawnMap) -> ClientView | None:
        client, version = query.client, self._hub.versions.get(query.client)
        if version is None:
            return None
        row, notes = self._source.row(client, version, query, time.time()), self._log.traces.get(client)
        course = notes.course.points() if notes and notes.course else []
        helped = await asyncio.to_thread(helped_by, help_map.tracings, client)
        classes, helpers = await self._batches.call(lambda: (self._classes(client), helpers_of(self._hub, client)))
        if classes is not None:
            row = msgspec.structs.replace(row, classes=sum(view.seen for view in classes))
        return ClientView(row, classes, helpers, helped, course)

    def _classes(self, client: str) -> list[ClassView] | None:
        """Return the classes, and whether a client has seen them. The hub's thread calls it."""
        exchange = self._hub.exchange
        if not isinstance(exchange, Covering) or client not in self._hub.versions:
            return None
        seen = exchange.coverage([client])[0].tolist()
        names = self._hub.task.zero_shot.classnames
        return [ClassView(name, there) for name, there in zip(names, seen, strict=True)]

    async def _draw_map(self) -> DrawnMap:
        if not isinstance(self._hub.exchange, Traced):
            return DrawnMap(None, [])
        names = await asyncio.to_thread(self._source.recent, MOST_MAPPED)
        tracings = []
        for start in range(0, len(names), TRACED_TOGETHER):
            part = names[start : start + TRACED_TOGETHER]
            tracing = await self._batches.call(lambda part=part: trace(self._hub, part))  # type: ignore[misc]
            tracings += [tracing] if tracing else []
        return DrawnMap(await asyncio.to_thread(map_of, tracings, len(self._hub)), tracings)
