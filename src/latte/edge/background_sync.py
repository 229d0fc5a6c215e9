"""Syncs that nobody waits for: a thread that sends the latest summary and brings back the latest download."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..wire.messages import DeviceReport
from .http_calls import RefusedError, UnreachableError

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 300.0  # seconds after a failure; the longest pause doubles from one to the other
LOOK_SECONDS = 2.0  # between two looks, in a pause, at whether somebody has mended what is wrong
FINAL = (
    "other_task",
    "unauthorized",
    "forbidden",
    "unsupported_protocol",
)  # refusals that only a person can mend: tried again rarely

Trip = Callable[[Any, DeviceReport], Any]  # upload and report to download


@dataclass(frozen=True, slots=True)
class SyncState:
    """When the last sync succeeded (seconds since 1970, 0: never), after how many images, and what is wrong if any."""

    synced: float = 0.0
    images: int = 0
    problem: str = ""


class BackgroundSync:
    """Sends what is offered through ``trip``, one at a time; what is offered meanwhile replaces what was waiting.

    After a failure it waits for a random time below a limit that doubles with every failure: a fleet whose server comes
    back does not come back all at once. ``close`` is called when it has been stopped. ``notice`` says what is wrong
    although a trip succeeded; ``mended`` says that what was refused may be accepted now, which ends a pause.
    """

    def __init__(
        self,
        trip: Trip,
        rng: random.Random | None = None,
        close: Callable[[], object] = lambda: None,
        notice: Callable[[], str] = str,
        mended: Callable[[], bool] = bool,
    ) -> None:
        self._trip, self._rng, self._close = trip, rng or random.Random(), close
        self._notice, self._mended = notice, mended
        self._offer: tuple[Any, DeviceReport] | None = None
        self._download: Any = None
        self._wake = threading.Condition()
        self._stopping = False
        self.state = SyncState()
        self._thread = threading.Thread(target=self._work, name="latte-sync", daemon=True)
        self._thread.start()

    def offer(self, upload: Any, report: DeviceReport) -> None:
        """Send this next; it returns at once."""
        with self._wake:
            self._offer = upload, report
            self._wake.notify_all()

    def take(self) -> Any:
        """Return the latest download that has not been taken; None if there is none."""
        if self._download is None:  # no lock for the usual case
            return None
        with self._wake:
            download, self._download = self._download, None
            return download

    def complain(self, problem: str) -> None:
        """Take note that the last download cannot be used; the next sync that succeeds makes it good."""
        self._note(SyncState(self.state.synced, self.state.images, problem))

    def drain(self, patience: float) -> bool:
        """Wait until everything that was offered has been sent, or something is wrong; return whether it was sent."""
        with self._wake:
            self._wake.wait_for(lambda: self._offer is None or self.state.problem, patience)
            return self._offer is None

    def stop(self, patience: float = 2.0) -> None:
        """End the thread; a request under way gets ``patience`` seconds."""
        with self._wake:
            self._stopping = True
            self._wake.notify_all()
        self._thread.join(patience)

    def _work(self) -> None:
        failures = 0
        while (offer := self._next()) is not None:
            try:
                download = self._trip(*offer)
            except Exception as error:  # whatever it is: the device goes on, and says what is wrong
                failures += 1
                self._note(SyncState(self.state.synced, self.state.images, _text(error)))
                self._pause(pause_after(failures, error, self._rng))
            else:
                failures = 0
                self._accept(offer, download)
        self._close()

    def _next(self) -> tuple[Any, DeviceReport] | None:
        """Wait for something to send; None at the end."""
        with self._wake:
            self._wake.wait_for(lambda: self._offer is not None or self._stopping)
            return None if self._stopping else self._offer

    def _accept(self, offer: tuple[Any, DeviceReport], download: Any) -> None:
        with self._wake:
            self._download = download
            if self._offer is offer:
                self._offer = None
        self._note(SyncState(time.time(), offer[1].images, self._notice()))

    def _note(self, state: SyncState) -> None:
        with self._wake:
            self.state = state
            self._wake.notify_all()

    def _pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and not self._mended():
            with self._wake:
                if self._wake.wait_for(lambda: self._stopping, min(left, LOOK_SECONDS)):
                    return


def pause_after(failures: int, error: Exception, rng: random.Random) -> float:
    """Return the seconds to wait after so many failures in a row: random, and at least what the server asked for."""
    final = isinstance(error, RefusedError) and error.code in FINAL
    limit = LONGEST_PAUSE if final else min(FIRST_PAUSE * 2.0 ** min(failures, 20), LONGEST_PAUSE)
    request = error.pause or 0.0 if isinstance(error, UnreachableError) else 0.0
    return min(request, LONGEST_PAUSE) + rng.uniform(limit / 10, limit)


def _text(error: Exception) -> str:
    expected = isinstance(error, (OSError, ValueError))
    return str(error) if expected and str(error) else f"{type(error).__name__}: {error}"
