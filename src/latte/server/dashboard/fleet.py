"""The fleet as its owner looks at it: sums over all clients, some of them as rows, who helps whom; all as JSON.

It is made only while somebody watches, in a small share of the server's time.
"""

from __future__ import annotations

import asyncio
import heapq
import random
import time
from array import array
from collections import OrderedDict, deque
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from ...core.evidence import Pairs
from ...core.types import Mask, Traced
from ...core.unknown import share_below, threshold_of, unpack_counts
from ...edge.classify.evidence import Accuracies, Help, Labelled, accuracies_of, help_of
from ...wire.messages import DeviceReport, Problem, pairs_of, shorten_detail
from ..hub.batches import Batches
from ..hub.hub import Hub, Reports

STEP = 2.0  # seconds
STEPS = 150
MINUTE = 30  # steps
MOST_TIMES = 512  # of one step that are remembered, chosen at random: the p99 of 256 syncs per second and more
MOST_POINTS = 48  # as many as a small chart can show; less than 800 bytes per client
_WIDTH = 3  # numbers of a point
MOST_REFUSALS = 100  # kinds and clients; the oldest goes first
STATES = ("all", "fresh", "stale")
STALE_AFTER = 900.0  # seconds: a device that syncs every few images syncs more often, a sleeping device does not


class LoadSummary(msgspec.Struct, frozen=True):
    """Syncs per second and latencies in seconds: of the last minute, and per step (oldest first; None: no syncs)."""

    step: float
    rate: float
    p50: float | None
    p99: float | None
    rates: list[float]
    p50s: list[float | None]
    p99s: list[float | None]


@dataclass(slots=True)
class LoadStep:
    """The syncs of one step."""

    number: int
    count: int = 0
    times: array[float] = field(default_factory=lambda: array("f"))


class SyncLoad:
    """The latest steps. One thread adds to it; any thread may read."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._steps: deque[LoadStep] = deque(maxlen=STEPS + 1)
        self._first = int(clock() / STEP)

    def add(self, seconds: float) -> None:
        """Count a sync that took ``seconds``."""
        number = int(self._clock() / STEP)
        if not self._steps or self._steps[-1].number != number:
            self._steps.append(LoadStep(number))
        step = self._steps[-1]
        step.count += 1
        if len(step.times) < MOST_TIMES:
            step.times.append(seconds)
        elif (place := random.randrange(step.count)) < MOST_TIMES:
            step.times[place] = seconds

    def summary(self) -> LoadSummary:
        """Return the last five minutes; the step that is under way is left out."""
        last = int(self._clock() / STEP)
        known = {step.number: step for step in list(self._steps)}
        steps = [known.get(number) for number in range(max(self._first, last - STEPS), last)]
        minute = steps[-MINUTE:]
        p50, p99 = _percentiles([time for step in minute if step for time in step.times])
        pairs = [_percentiles(step.times if step else ()) for step in steps]
        return LoadSummary(
            step=STEP,
            rate=_rate(sum(step.count for step in minute if step), len(minute)),
            p50=p50,
            p99=p99,
            rates=[_rate(step.count if step else 0, 1) for step in steps],
            p50s=[pair[0] for pair in pairs],
            p99s=[pair[1] for pair in pairs],
        )


def _rate(count: int, steps: int) -> float:
    return round(count / (STEP * steps), 3) if steps else 0.0


def _percentiles(times: Sequence[float]) -> tuple[float | None, float | None]:
    if not len(times):
        return None, None
    p50, p99 = np.percentile(times, (50, 99))
    return round(float(p50), 6), round(float(p99), 6)


class CoursePoint(msgspec.Struct, frozen=True):
    """Agreement and entropy when a client had classified so many ``images``."""

    images: float
    agreement: float
    entropy: float


class ReportCourse:
    """At most 48 points, each the mean of equally many reports; the last one may still grow.

    When there is no room, neighbours are joined, and a point stands for twice as many reports.

    >>> course = ReportCourse()
    >>> for images in range(1, 101):
    ...     course.add(DeviceReport(images=images, agreement=0.5, entropy=images / 100))
    >>> points = course.points()
    >>> len(points), points[0].images, points[-1].images, points[0].agreement
    (25, 4.0, 100.0, 0.5)
    """

    __slots__ = ("_images", "_in_last", "_length", "_values")

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._values = array("f")  # images, agreement and entropy of each point in turn
        self._length, self._in_last = 1, 0  # reports of a point, and of the last point
        self._images = 0

    def add(self, report: DeviceReport) -> None:
        """Add a report, unless it is of the same images as the last; of fewer images, the client has begun anew.

        A client that adds noise to its uploads says neither agreement nor entropy.
        """
        agreement, entropy = report.agreement, report.entropy
        if isinstance(agreement, msgspec.UnsetType) or isinstance(entropy, msgspec.UnsetType):
            return
        if report.images < self._images:
            self._begin()
        if report.images == self._images:
            return
        self._images = report.images
        if not self._values or self._in_last == self._length:
            if len(self._values) == _WIDTH * MOST_POINTS:  # join neighbours: of images, the later number
                pairs = np.array(self._values, np.float64).reshape(-1, 2, _WIDTH)
                joined = np.where([True, False, False], pairs[:, 1], pairs.mean(axis=1))
                self._values, self._length = array("f", joined.reshape(-1).tolist()), 2 * self._length
            self._values.extend((0.0, 0.0, 0.0))
            self._in_last = 0
        self._in_last += 1
        values, share = self._values, 1.0 / self._in_last
        values[-3] = report.images
        values[-2] += (agreement - values[-2]) * share
        values[-1] += (entropy - values[-1]) * share

    def points(self) -> list[CoursePoint]:
        """Return the points, the oldest first."""
        values = self._values.tolist()
        return [CoursePoint(*values[start : start + _WIDTH]) for start in range(0, len(values), _WIDTH)]


@dataclass(slots=True)
class ClientTrace:
    """The syncs of one client since the server started: the time of the last, their number, the course of reports."""

    synced: float = 0.0
    syncs: int = 0
    course: ReportCourse | None = None


class Refusal(msgspec.Struct, frozen=True):
    """The latest of ``count`` refused requests of one client with one code; ``client`` is "" if it is not known."""

    time: float
    client: str
    code: str
    detail: str
    count: int


class FleetLog:
    """Notes syncs and refusals. The event loop writes; any thread may read."""

    def __init__(self) -> None:
        self.traces: dict[str, ClientTrace] = {}
        self.load = SyncLoad()
        self._refusals: OrderedDict[tuple[str, str], Refusal] = OrderedDict()

    def note_sync(self, client: str, report: DeviceReport | None, seconds: float) -> None:
        """Note a sync of a client that has uploaded, which took ``seconds`` to answer."""
        trace = self.traces.get(client)
        if trace is None:
            trace = self.traces[client] = ClientTrace()
        trace.synced = time.time()
        trace.syncs += 1
        if report is not None:
            if trace.course is None:
                trace.course = ReportCourse()
            trace.course.add(report)
        self.load.add(seconds)

    def note_refusal(self, client: str, problem: Problem) -> None:
        """Note a refusal; repetitions are counted."""
        key = client, problem.code
        before = self._refusals.pop(key, None)
        count = before.count + 1 if before else 1
        self._refusals[key] = Refusal(time.time(), client, problem.code, shorten_detail(problem.detail), count)
        if len(self._refusals) > MOST_REFUSALS:
            self._refusals.popitem(last=False)

    def refusals(self) -> list[Refusal]:
        """Return the latest refusals, the newest first."""
        return list(self._refusals.values())[::-1]

    def forget(self, client: str) -> None:
        """Forget the syncs of a client."""
        self.traces.pop(client, None)

    def trim(self, known: Container[str]) -> None:
        """Forget clients that are not ``known`` any more: another server may have removed them."""
        for client in [name for name in list(self.traces) if name not in known]:
            self.traces.pop(client, None)


@dataclass(frozen=True, slots=True)
class FleetQuery:
    """Which rows to show: at most ``limit`` clients whose names contain ``find`` and which are in a ``state``.

    The clients that synced last come first. A client is stale if it has not synced for ``stale`` seconds. ``client`` is
    the client to show in detail.
    """

    find: str = ""
    state: str = "all"
    stale: float = STALE_AFTER
    limit: int = 100
    client: str = ""


class FleetRow(msgspec.Struct, frozen=True):
    """A client: its last sync (seconds since 1970), the syncs since the server started, and its latest report.

    ``accuracies`` are what the report says of labelled images, None where it says nothing that can be true.
    ``name_shared``: two devices have used the name within the last hour. ``help`` is there for clients with labels.
    ``unlike`` is the share of its images that are unlike the known classes, where the owner wants some flagged.
    """

    client: str
    version: int
    synced: float
    syncs: int
    stale: bool
    report: DeviceReport | None
    classes: int | None = None
    accuracies: Accuracies | None = None
    name_shared: bool = False
    help: Help | None = None
    unlike: float | None = None


class FleetSums(msgspec.Struct):
    """Sums over all clients; from ``reporting`` on, over the clients whose report the server has.

    ``differing`` answers are of ``compared`` images: clients that add noise to their uploads do not report them.
    ``gained`` and ``lost`` are of ``paired`` labelled images: clients of earlier versions do not report them.
    ``helped``, ``harmed`` and ``neither`` are of all labelled images on which the two answers differ, also
    of those that were chosen for it.
    """

    clients: int = 0
    fresh: int = 0
    reporting: int = 0
    images: int = 0
    differing: int = 0
    compared: int = 0
    labelled: int = 0
    correct: int = 0
    correct_zero_shot: int = 0
    paired: int = 0
    gained: int = 0
    lost: int = 0
    helped: int = 0
    harmed: int = 0
    neither: int = 0

    def add(self, report: DeviceReport, believed: bool = True) -> None:
        """Count the report of one client; only labels that are ``believed`` say whether adapting helps."""
        self.reporting += 1
        self.images += report.images
        if isinstance(report.differing, int):
            self.differing += report.differing
            self.compared += report.images
        if believed and (compared := pairs_of(report)) is not None:
            self.helped += compared.helped
            self.harmed += compared.harmed
            self.neither += compared.neither
        if not (report.correct <= report.labelled > 0 and report.correct_zero_shot <= report.labelled):
            return  # nothing is labelled, or these counts cannot be true
        self.labelled += report.labelled
        self.correct += report.correct
        self.correct_zero_shot += report.correct_zero_shot
        gained, lost = report.gained, report.lost
        if not isinstance(gained, int) or not isinstance(lost, int):
            return
        possible = gained <= report.correct and lost <= report.labelled - report.correct
        if possible and gained - lost == report.correct - report.correct_zero_shot:
            self.paired += report.labelled
            self.gained += gained
            self.lost += lost

    def help(self) -> Help:
        """Return whether adapting helps, as far as the labels of these clients can say."""
        differing = self.differing / self.compared if self.compared else 0.0
        return help_of(Pairs(self.helped, self.harmed, self.neither), differing)

    def accuracies(self) -> Accuracies | None:
        """Return the accuracies on the labelled images that were added."""
        labelled = Labelled(self.labelled, self.correct, self.correct_zero_shot, self.gained, self.lost)
        return accuracies_of(labelled, paired=self.paired == self.labelled)


class FleetTable(msgspec.Struct, frozen=True):
    """The sums, the accuracies of all, how many clients match the query, and the rows of the first of them."""

    sums: FleetSums
    accuracies: Accuracies | None
    help: Help
    matching: int
    rows: list[FleetRow]


@dataclass(frozen=True, slots=True)
class FleetSource:
    """What is known of all clients: version, time and report of the stored upload, and the syncs with this server."""

    versions: Mapping[str, int]
    updated: Mapping[str, float]
    traces: Mapping[str, ClientTrace]
    reports: Reports = field(default_factory=Reports)
    flag: float = 0.0
    classes: int = 2

    def last_sync(self, client: str) -> float:
        """Return when a client was last heard of."""
        trace = self.traces.get(client)
        return max(self.updated.get(client, 0.0), trace.synced if trace else 0.0)

    def row(self, client: str, version: int, query: FleetQuery, now: float) -> FleetRow:
        """Return one client."""
        trace, synced = self.traces.get(client), self.last_sync(client)
        report, sums = self.reports.latest.get(client), FleetSums()
        unlike = None
        if report is not None:
            sums.add(report)
            if self.flag and isinstance(report.mcm, bytes) and (counts := unpack_counts(report.mcm)) is not None:
                threshold = threshold_of(self.reports.mcm, self.classes, self.flag)
                unlike = share_below(counts, self.classes, threshold)
            report = msgspec.structs.replace(report, mcm=msgspec.UNSET)  # nobody reads 256 numbers
        return FleetRow(
            client,
            version,
            synced,
            trace.syncs if trace else 0,
            synced < now - query.stale,
            report,
            accuracies=sums.accuracies() if sums.labelled else None,
            name_shared=self.reports.is_shared(client),
            help=sums.help() if sums.helped + sums.harmed + sums.neither else None,
            unlike=unlike,
        )

    def recent(self, most: int) -> list[str]:
        """Return the clients that synced last, by name."""
        return sorted(heapq.nlargest(most, list(self.versions), key=self.last_sync))


def fleet_table(source: FleetSource, query: FleetQuery, now: float) -> FleetTable:
    """Return the table for a query; the rows are the clients that synced last, the latest first.

    Clients may join and leave meanwhile. The loop goes through all clients, so it does little for each.
    """
    clients, find = list(source.versions), query.find.casefold()
    sums, matching, oldest = FleetSums(len(clients)), [], now - query.stale
    for client in clients:
        trace, synced = source.traces.get(client), source.updated.get(client, 0.0)
        if trace is not None:
            synced = max(synced, trace.synced)
        if (report := source.reports.latest.get(client)) is not None:
            sums.add(report, source.reports.believes(client))
        sums.fresh += synced >= oldest
        shown = query.state == "all" or (synced < oldest) == (query.state == "stale")
        if shown and (not find or find in client.casefold()):
            matching.append((-synced, client))
    chosen = heapq.nsmallest(query.limit, matching)
    rows = [source.row(client, source.versions.get(client, 0), query, now) for _, client in chosen]
    return FleetTable(sums, sums.accuracies(), sums.help(), len(matching), rows)


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
        seen = await self._batches.call(lambda: self._seen([row.client for row in table.rows]))
        counts = {client: int(classes.sum()) for client, classes in seen.items()}
        rows = [msgspec.structs.replace(row, classes=counts.get(row.client)) for row in table.rows]
        return msgspec.structs.replace(table, rows=rows), took

    def _seen(self, clients: list[str]) -> dict[str, Mask]:
        """Return which classes clients have seen; none where the method cannot say. The hub's thread calls it."""
        exchange, present = self._hub.exchange, [name for name in clients if name in self._hub.versions]
        if not hasattr(exchange, "coverage") or not present:
            return {}
        return dict(zip(present, exchange.coverage(present), strict=True))

    async def _client(self, query: FleetQuery, tracings: list[Tracing]) -> ClientView | None:
        client, version = query.client, self._hub.versions.get(query.client)
        if version is None:
            return None
        row, notes = self._source.row(client, version, query, time.time()), self._log.traces.get(client)
        course = notes.course.points() if notes and notes.course else []
        helped = await asyncio.to_thread(helped_by, tracings, client)
        seen, traced = await self._batches.call(lambda: (self._seen([client]), trace(self._hub, [client])))
        classes = None
        if client in seen:
            names = self._hub.task.zero_shot.classnames
            classes = [{"name": name, "seen": there} for name, there in zip(names, seen[client].tolist(), strict=True)]
            row = msgspec.structs.replace(row, classes=int(seen[client].sum()))
        helpers = [] if traced is None else _most(traced.donors, traced.amounts[0])
        return ClientView(row, classes, helpers, helped, course)

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
