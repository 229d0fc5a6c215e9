"""What a server remembers of its clients for the owner of the fleet, at next to no cost per sync.

It is in memory only: refusals, latencies and the course of reports are not stored, and a restart begins with none. The
latest report of a client is stored with its upload (``latte.coordination.reports``).
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Container
from dataclasses import dataclass

import msgspec

from ..coordination.problems import Problem, shorten_detail
from ..wire.messages import DeviceReport
from .report_course import ReportCourse
from .sync_load import SyncLoad

MOST_REFUSALS = 100  # kinds and clients; the oldest goes first


@dataclass(slots=True)
class ClientTrace:
    """The syncs of one client since the server started: the time of the last, their number, the course of reports."""

    synced: float
    syncs: int = 0
    course: ReportCourse | None = None

    def note_report(self, report: DeviceReport) -> None:
        """Note what a client says of itself."""
        if self.course is None:
            self.course = ReportCourse()
        self.course.add(report)


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
            trace = self.traces[client] = ClientTrace(0.0)
        trace.synced = time.time()
        trace.syncs += 1
        if report is not None:
            trace.note_report(report)
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
            self.forget(client)
