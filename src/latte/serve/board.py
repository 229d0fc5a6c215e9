"""The parts of the dashboard as JSON: made only while somebody looks, in a small share of the server's time."""

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
from .help_map import MOST_MAPPED, TOGETHER, Helper, HelpMap, assemble, helpers_of, trace_rows

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
    """One client: its row, its classes (None: the method cannot say), and who helps it."""

    row: FleetRow
    class_views: list[ClassView] | None = msgspec.field(name="classes")
    helpers: list[Helper]


@dataclass(frozen=True, slots=True)
class BoardState:
    """What a watcher sees now: ``parts`` in JSON by name, and how long it should wait for the next."""

    parts: dict[str, bytes]
    pause: float


class Paced(Generic[T]):
    """A value that is made when somebody wants it, and again when it is old: older where making it took longer."""

    def __init__(self, make: Callable[[], Awaitable[T]]) -> None:
        self._make, self._lock = make, asyncio.Lock()
        self._value: T | None = None
        self._due = 0.0

    async def get(self) -> T:
        """Return the value."""
        async with self._lock:
            if self._value is None or time.monotonic() >= self._due:
                start = time.monotonic()
                self._value = await self._make()
                self._due = time.monotonic() + max(PAUSE, (time.monotonic() - start) / SHARE)
            return self._value


def _timed(make: Callable[[], T]) -> tuple[T, float]:
    """Return a value, and the processor time of this thread that it took."""
    start = time.thread_time()
    return make(), time.thread_time() - start


class Board:
    """What the dashboard of one server shows."""

    def __init__(self, hub: Hub, batches: Batches[Any, Any], log: FleetLog) -> None:
        self._hub, self._batches, self._log = hub, batches, log
        self._source = FleetSource(hub.versions, hub.updated, log.traces)
        self._map = Paced(self._draw_map)
        self._watchers = 0

    @property
    def full(self) -> bool:
        """Whether as many watch as may."""
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
        values = {
            "task": self._task(),
            "fleet": fleet,
            "load": await asyncio.to_thread(self._log.load.summary),
            "refusals": self._log.refusals(),
            "client": await self._client(query) if query.client else None,
        }
        values["map"] = await self._map.get()
        parts = {name: msgspec.json.encode(value) for name, value in values.items()}
        return BoardState(parts, max(PAUSE, took * max(self._watchers, 1) / SHARE))

    def _task(self) -> TaskView:
        task = self._hub.task
        return TaskView(task.method, task.zero_shot.classes, task.fingerprint)

    async def _table(self, query: FleetQuery) -> tuple[FleetTable, float]:
        """Return the table, and the processor time that it took: it grows with the fleet, the rest does not."""
        table, took = await asyncio.to_thread(_timed, lambda: fleet_table(self._source, query, time.time()))
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

    async def _client(self, query: FleetQuery) -> ClientView | None:
        version = self._hub.versions.get(query.client)
        if version is None:
            return None
        row = self._source.row(query.client, version, query, time.time())
        return await self._batches.call(lambda: self._closely(row))

    def _closely(self, row: FleetRow) -> ClientView:
        exchange, class_views = self._hub.exchange, None
        if isinstance(exchange, Covering) and row.client in self._hub.versions:
            seen = exchange.coverage([row.client])[0].tolist()
            names = self._hub.task.zero_shot.classnames
            class_views = [ClassView(name, there) for name, there in zip(names, seen, strict=True)]
            row = msgspec.structs.replace(row, classes=sum(seen))
        return ClientView(row, class_views, helpers_of(self._hub, row.client))

    async def _draw_map(self) -> HelpMap | None:
        if not isinstance(self._hub.exchange, Traced):
            return None
        names = await asyncio.to_thread(self._source.recent, MOST_MAPPED)
        rows = []
        for start in range(0, len(names), TOGETHER):
            part = names[start : start + TOGETHER]
            rows += await self._batches.call(lambda part=part: trace_rows(self._hub, part, names))  # type: ignore[misc]
        return assemble(rows, names, len(self._hub))
