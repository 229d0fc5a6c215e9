"""The parts of the dashboard as JSON: made only while somebody watches, in a small share of the server's time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from ...core.types import Traced
from ..hub.batches import Batches
from ..hub.hub import Hub
from .fleet import CoursePoint, FleetLog, FleetQuery, FleetRow, FleetSource, FleetTable, fleet_table

MOST_MAPPED = 60  # clients: more could not be distinguished on a screen
TRACED_TOGETHER = 8  # clients that are traced at a time: requests wait no longer than for a small batch
MOST_HELPERS = 20  # of one client
PAUSE = 1.0  # seconds between two looks
SHARE = 0.05  # of the time that looking may take
MOST_WATCHERS = 16


class HelpMap(msgspec.Struct, frozen=True):
    """``amounts`` (m, m): what client i (row) gets from client j (column); ``others`` (m,): from clients not shown.

    The unit depends on the method: prototypes for Latte, the share of the donor's evidence for Ristretto.
    """

    clients: list[str]
    amounts: list[list[float]]
    others: list[float]
    left_out: int


class Helper(msgspec.Struct, frozen=True):
    """A client that helps another, and how much."""

    client: str
    amount: float


@dataclass(frozen=True, slots=True, eq=False)
class Tracing:
    """What some ``receivers`` get from all ``donors``: ``amounts`` (m, N), 0 from themselves."""

    receivers: list[str]
    donors: tuple[str, ...]
    amounts: NDArray[np.float32]


def trace(hub: Hub, receivers: Sequence[str]) -> Tracing | None:
    """Return what ``receivers`` get; those that have left are left out. The hub's thread calls it."""
    exchange, present = hub.exchange, [name for name in receivers if name in hub.versions]
    if not isinstance(exchange, Traced) or not present:
        return None
    amounts = np.array(exchange.pull_traced(present)[1], np.float32)
    donors = exchange.clients
    place = {name: column for column, name in enumerate(donors)}
    amounts[np.arange(len(present)), [place[name] for name in present]] = 0.0
    return Tracing(present, donors, amounts)


def helped_by(tracings: Sequence[Tracing], client: str) -> list[Helper] | None:
    """Return the receivers that a client helps, the most helped first; None if it was not there at the tracing."""
    names: list[str] = []
    columns = []
    for tracing in tracings:
        with suppress(ValueError):
            columns.append(tracing.amounts[:, tracing.donors.index(client)])
            names += tracing.receivers
    return _most(names, np.concatenate(columns)) if columns else None


def _most(names: Sequence[str], amounts: NDArray[np.float32]) -> list[Helper]:
    best = np.argsort(-amounts, kind="stable")[:MOST_HELPERS]
    return [Helper(names[i], _short(amounts[i])) for i in best if amounts[i] > 0]


def map_of(tracings: Sequence[Tracing], total: int) -> HelpMap:
    """Return the map of the receivers of all ``tracings``, of ``total`` clients."""
    clients = [name for tracing in tracings for name in tracing.receivers]
    amounts: list[list[float]] = []
    others: list[float] = []
    for tracing in tracings:
        place = {name: column for column, name in enumerate(tracing.donors)}
        columns = np.array([place.get(name, -1) for name in clients], np.int64)
        rows = np.where(columns >= 0, tracing.amounts[:, columns], 0.0).astype(np.float64)  # 0: it was not there
        rest = tracing.amounts.sum(axis=1, dtype=np.float64) - rows.sum(axis=1)
        amounts += [[_short(value) for value in row] for row in rows]
        others += [_short(value) for value in rest]
    return HelpMap(clients, amounts, others, max(total - len(clients), 0))


def _short(value: float) -> float:
    return float(f"{value:.4g}")


class ClientView(msgspec.Struct, frozen=True):
    """One client: its row, its classes (None: the method cannot say), its helpers, the clients it helps, its course.

    ``helped`` are the clients on the map that it helps, whether it is on the map itself or not; None: not known, or not
    yet.
    """

    row: FleetRow
    class_views: list[dict[str, Any]] | None = msgspec.field(name="classes")
    helpers: list[Helper]
    helped: list[Helper] | None
    course: list[CoursePoint]


class Board:
    """What the dashboard of one server shows."""

    def __init__(self, hub: Hub, batches: Batches[Any, Any], log: FleetLog) -> None:
        self._hub, self._batches, self._log = hub, batches, log
        self._source = FleetSource(
            hub.versions, hub.updated, log.traces, hub.reports, hub.limits.flag, hub.task.zero_shot.classes
        )
        self._map: tuple[HelpMap | None, list[Tracing]] = None, []
        self._map_lock, self._map_due = asyncio.Lock(), 0.0
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

    async def picture(self, query: FleetQuery) -> tuple[dict[str, bytes], float]:
        """Return what a watcher sees now, in JSON by the name of a part, and how long it should wait for the next."""
        fleet, took = await self._table(query)
        async with self._map_lock:
            if time.monotonic() >= self._map_due:  # the longer it takes to draw, the longer it is shown
                start = time.monotonic()
                self._map = await self._draw_map()
                self._map_due = time.monotonic() + max(PAUSE, (time.monotonic() - start) / SHARE)
            help_map, tracings = self._map
        task = self._hub.task
        values = {
            "task": {
                "method": task.method,
                "classes": task.zero_shot.classes,
                "flag": self._source.flag,
                "fingerprint": task.fingerprint,
            },
            "fleet": fleet,
            "load": await asyncio.to_thread(self._log.load.summary),
            "refusals": self._log.refusals(),
            "client": await self._client(query, tracings) if query.client else None,
            "map": help_map,
        }
        parts = {name: msgspec.json.encode(value) for name, value in values.items()}
        return parts, max(PAUSE, took * max(self._watchers, 1) / SHARE)

    async def _table(self, query: FleetQuery) -> tuple[FleetTable, float]:
        """Return the table, and the processor time that it took: it grows with the fleet, the rest does not."""

        def make() -> tuple[FleetTable, float]:
            start = time.thread_time()
            return fleet_table(self._source, query, time.time()), time.thread_time() - start

        table, took = await asyncio.to_thread(make)
        if len(self._log.traces) > len(self._hub):
            self._log.trim(self._hub.versions)
        covered = await self._batches.call(lambda: self._coverage([row.client for row in table.rows]))
        rows = [msgspec.structs.replace(row, classes=covered.get(row.client)) for row in table.rows]
        return msgspec.structs.replace(table, rows=rows), took

    def _coverage(self, clients: list[str]) -> dict[str, int]:
        """Return how many classes each client has seen. The hub's thread calls it."""
        exchange, present = self._hub.exchange, [name for name in clients if name in self._hub.versions]
        if not hasattr(exchange, "coverage") or not present:
            return {}
        counts = exchange.coverage(present).sum(axis=1).tolist()
        return dict(zip(present, counts, strict=True))

    async def _client(self, query: FleetQuery, tracings: list[Tracing]) -> ClientView | None:
        client, version = query.client, self._hub.versions.get(query.client)
        if version is None:
            return None
        row, notes = self._source.row(client, version, query, time.time()), self._log.traces.get(client)
        course = notes.course.points() if notes and notes.course else []
        helped = await asyncio.to_thread(helped_by, tracings, client)
        classes, traced = await self._batches.call(lambda: (self._classes(client), trace(self._hub, [client])))
        if classes is not None:
            row = msgspec.structs.replace(row, classes=sum(view["seen"] for view in classes))
        helpers = [] if traced is None else _most(traced.donors, traced.amounts[0])
        return ClientView(row, classes, helpers, helped, course)

    def _classes(self, client: str) -> list[dict[str, Any]] | None:
        """Return the classes, and whether a client has seen them. The hub's thread calls it."""
        exchange = self._hub.exchange
        if not hasattr(exchange, "coverage") or client not in self._hub.versions:
            return None
        seen = exchange.coverage([client])[0].tolist()
        names = self._hub.task.zero_shot.classnames
        return [{"name": name, "seen": there} for name, there in zip(names, seen, strict=True)]

    async def _draw_map(self) -> tuple[HelpMap | None, list[Tracing]]:
        """Return the map (None: the method cannot say), and from whom each client on it gets what: 240 bytes each."""
        if not isinstance(self._hub.exchange, Traced):
            return None, []
        names = await asyncio.to_thread(self._source.recent, MOST_MAPPED)
        tracings = []
        for start in range(0, len(names), TRACED_TOGETHER):
            part = names[start : start + TRACED_TOGETHER]
            tracing = await self._batches.call(lambda part=part: trace(self._hub, part))  # type: ignore[misc]
            tracings += [tracing] if tracing else []
        return await asyncio.to_thread(map_of, tracings, len(self._hub)), tracings
