"""The fleet as its owner looks at it: sums over all clients, and some of them as rows."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from ..coordination.reports import Reports
from ..edge.evidence import Accuracies, Labelled, accuracies_of
from ..wire.messages import DeviceReport
from .fleet_log import ClientTrace

STATES = ("all", "fresh", "stale")
STALE_AFTER = 900.0  # seconds: a device that syncs every few images syncs more often, a sleeping device does not


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
    ``name_shared``: two devices have used the name within the last hour.
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


def has_labels(report: DeviceReport) -> bool:
    """Return whether a report has counts of labelled images that can be true."""
    return report.correct <= report.labelled > 0 and report.correct_zero_shot <= report.labelled


def pairs_of(report: DeviceReport) -> tuple[int, int] | None:
    """Return ``gained`` and ``lost``; None where a report has them not, or where they cannot be true."""
    gained, lost = report.gained, report.lost
    if not isinstance(gained, int) or not isinstance(lost, int):
        return None
    possible = gained <= report.correct and lost <= report.labelled - report.correct
    return (gained, lost) if possible and gained - lost == report.correct - report.correct_zero_shot else None


def reported_accuracies(report: DeviceReport) -> Accuracies | None:
    """Return what a report says of labelled images, with intervals as far as they are known."""
    if not has_labels(report):
        return None
    pairs = pairs_of(report)
    labelled = Labelled(report.labelled, report.correct, report.correct_zero_shot, *(pairs or ()))
    return accuracies_of(labelled, paired=pairs is not None)


class FleetSums(msgspec.Struct):
    """Sums over all clients; from ``reporting`` on, over the clients whose report the server has.

    ``differing`` answers are of ``compared`` images: clients that add noise to their uploads do not report them.
    ``gained`` and ``lost`` are of ``paired`` labelled images: clients of earlier versions do not report them.
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

    def add(self, report: DeviceReport) -> None:
        """Count the report of one client."""
        self.reporting += 1
        self.images += report.images
        if isinstance(report.differing, int):
            self.differing += report.differing
            self.compared += report.images
        if has_labels(report):
            self._add_labels(report)

    def _add_labels(self, report: DeviceReport) -> None:
        self.labelled += report.labelled
        self.correct += report.correct
        self.correct_zero_shot += report.correct_zero_shot
        if (pairs := pairs_of(report)) is not None:
            self.paired += report.labelled
            self.gained += pairs[0]
            self.lost += pairs[1]

    def accuracies(self) -> Accuracies | None:
        """Return the accuracies on the labelled images of all clients."""
        labelled = Labelled(self.labelled, self.correct, self.correct_zero_shot, self.gained, self.lost)
        return accuracies_of(labelled, paired=self.paired == self.labelled)


class FleetTable(msgspec.Struct, frozen=True):
    """The sums, the accuracies of all, how many clients match the query, and the rows of the first of them."""

    sums: FleetSums
    accuracies: Accuracies | None
    matching: int
    rows: list[FleetRow]


@dataclass(frozen=True, slots=True)
class FleetSource:
    """What is known of all clients: version, time and report of the stored upload, and the syncs with this server."""

    versions: Mapping[str, int]
    updated: Mapping[str, float]
    traces: Mapping[str, ClientTrace]
    reports: Reports = field(default_factory=Reports)

    def last_sync(self, client: str) -> float:
        """Return when a client was last heard of."""
        trace = self.traces.get(client)
        return max(self.updated.get(client, 0.0), trace.synced if trace else 0.0)

    def row(self, client: str, version: int, query: FleetQuery, now: float) -> FleetRow:
        """Return one client."""
        trace, synced = self.traces.get(client), self.last_sync(client)
        report = self.reports.latest.get(client)
        return FleetRow(
            client,
            version,
            synced,
            trace.syncs if trace else 0,
            synced < now - query.stale,
            report,
            accuracies=reported_accuracies(report) if report else None,
            name_shared=self.reports.is_shared(client),
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
            sums.add(report)
        sums.fresh += synced >= oldest
        if _is_shown(query.state, synced < oldest) and (not find or find in client.casefold()):
            matching.append((-synced, client))
    chosen = heapq.nsmallest(query.limit, matching)
    rows = [source.row(client, source.versions.get(client, 0), query, now) for _, client in chosen]
    return FleetTable(sums, sums.accuracies(), len(matching), rows)


def _is_shown(state: str, stale: bool) -> bool:
    return state == "all" or stale == (state == "stale")
