"""What clients last said of themselves, and whether two devices say it under one name."""

from __future__ import annotations

import time
from collections import deque

from ..wire.messages import DeviceReport

SHARED_SECONDS = 3600.0  # for which it is said that two devices have one name, after the last time it was seen
_EARLIER = 8  # instances of a client that are remembered: a card that was copied is in a few devices at once


class Reports:
    """The latest report of every client. It is stored with the client's upload, so a restart does not lose it.

    A device that starts again has a new instance, and the earlier one is never heard of again. Where it is, two devices
    use the name.

    >>> reports = Reports()
    >>> for instance in ("one", "two", "one"):
    ...     reports.note("camera", DeviceReport(instance=instance))
    >>> reports.is_shared("camera"), reports.is_shared("gate")
    (True, False)
    """

    def __init__(self) -> None:
        self.latest: dict[str, DeviceReport] = {}
        self._earlier: dict[str, deque[str]] = {}
        self._shared: dict[str, float] = {}  # when it was last seen that two devices use a name

    def note(self, client: str, report: DeviceReport) -> None:
        """Take over the report of an upload."""
        before, now = self.latest.get(client), report.instance
        self.latest[client] = report
        if before is None or not before.instance or not now or before.instance == now:  # earlier versions send none
            return
        earlier = self._earlier.setdefault(client, deque(maxlen=_EARLIER))
        if now in earlier:
            self._shared[client] = time.monotonic()
        if before.instance not in earlier:
            earlier.append(before.instance)

    def is_shared(self, client: str) -> bool:
        """Return whether two devices have used a name lately."""
        seen = self._shared.get(client)
        return seen is not None and time.monotonic() - seen < SHARED_SECONDS

    def forget(self, client: str) -> None:
        """Forget a client."""
        for known in (self.latest, self._earlier, self._shared):
            known.pop(client, None)
