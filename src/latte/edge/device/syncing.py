"""Syncs in the background: a thread that sends the latest summary and brings back the latest download."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ...core.sync import is_due
from ...core.types import Collaborative
from ...errors import InputError
from ...wire.messages import DeviceReport, FleetWord
from ...wire.task import Task
from ..clients.calls import RefusedError, UnreachableError

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 300.0  # seconds after a failure; the longest pause doubles from one to the other
LOOK_SECONDS = 2.0  # between two looks, in a pause, at whether somebody has mended what is wrong
FINAL = ("other_task", "unauthorized", "forbidden", "unsupported_protocol")  # only a person can mend these
SYNC_SECONDS = 60.0  # after which something new is shared even if the task's number of pictures has not come
SYNC_PAUSE = 1.0  # a folder of photos, a hundred per second, is no reason for six syncs per second

log = logging.getLogger("latte.sync")

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
    ``tell`` is called with every new problem, and with "" when it is over. ``fleet`` is what the server says of the
    whole fleet, which is in ``word`` after a trip. Where the server refuses the task, ``newer`` returns the version of
    it that the server has by now, if there is one, and ``follow`` is called when the device works on it.
    """

    def __init__(
        self,
        trip: Trip,
        rng: random.Random | None = None,
        close: Callable[[], object] = lambda: None,
        notice: Callable[[], str] = str,
        mended: Callable[[], bool] = bool,
        tell: Callable[[str], object] = lambda problem: None,
        fleet: Callable[[], FleetWord | None] = lambda: None,
        newer: Callable[[], Task | None] = lambda: None,
        follow: Callable[[Task], object] = lambda task: None,
    ) -> None:
        self._trip, self._rng, self._close = trip, rng or random.Random(), close
        self._notice, self._mended, self._tell, self._fleet = notice, mended, tell, fleet
        self.newer, self.follow = newer, follow
        self.word: FleetWord | None = None
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

    def deliver(self, method: Collaborative[Any, Any]) -> bool:
        """Let ``method`` take over the latest download; return whether there was one that it could use.

        One that it refuses changes nothing: the device goes on with what it has, and says so.
        """
        download = self.take()
        if download is None:
            return False
        try:
            method.receive(download)
        except InputError as error:
            self.complain(f"the server sent what cannot be used: {error}")
            return False
        return True

    def complain(self, problem: str) -> None:
        """Take note that the last download cannot be used; the next sync that succeeds makes it good."""
        self._note(replace(self.state, problem=problem))

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
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._offer is not None or self._stopping)
                offer = self._offer
            if offer is None or self._stopping:
                break
            try:
                download = self._trip(*offer)
            except Exception as error:  # whatever it is: the device goes on, and says what is wrong
                failures += 1
                expected = isinstance(error, (OSError, ValueError)) and str(error)
                self.complain(str(error) if expected else f"{type(error).__name__}: {error}")
                end = time.monotonic() + pause_after(failures, error, self._rng)
                while (left := end - time.monotonic()) > 0 and not self._mended():
                    with self._wake:
                        if self._wake.wait_for(lambda: self._stopping, min(left, LOOK_SECONDS)):
                            break
            else:
                failures = 0
                self.word = self._fleet()
                with self._wake:
                    self._download = download
                    if self._offer is offer:
                        self._offer = None
                self._note(SyncState(time.time(), offer[1].images, self._notice()))
        self._close()

    def _note(self, state: SyncState) -> None:
        with self._wake:
            news, self.state = state.problem != self.state.problem, state
            self._wake.notify_all()
        if news:
            self._tell(state.problem)


def log_problem(problem: str) -> None:
    """Log what is wrong with the syncs of a program that has no other place for it, and when it is over."""
    if problem:
        log.warning("no sync: %s", problem)
    else:
        log.info("syncs again")


def pause_after(failures: int, error: Exception, rng: random.Random) -> float:
    """Return the seconds to wait after so many failures in a row: random, and at least what the server asked for."""
    final = isinstance(error, RefusedError) and error.code in FINAL
    limit = LONGEST_PAUSE if final else min(FIRST_PAUSE * 2.0 ** min(failures, 20), LONGEST_PAUSE)
    request = error.pause or 0.0 if isinstance(error, UnreachableError) else 0.0
    return min(request, LONGEST_PAUSE) + rng.uniform(limit / 10, limit)


@dataclass(frozen=True, slots=True)
class SyncTimes:
    """When a device syncs: after so many pictures of its own (see ``latte.core.sync``), or after so many seconds.

    With ``seconds`` 0, only pictures count. A sync that is due less than ``pause`` seconds after the last one waits,
    and then sends all that was learnt up to that moment.
    """

    kind: str = "every"
    period: int = 16
    seconds: float = SYNC_SECONDS
    pause: float = SYNC_PAUSE


class SyncClock:
    """Counts the pictures of a device, and says when it is time to share what was learnt from them.

    ``images`` are those of an earlier run: whether their summary arrived, nobody knows.

    >>> clock = SyncClock(SyncTimes("every", period=2, pause=3600.0))
    >>> clock.count(), clock.count()
    (None, None)
    >>> clock.is_time()
    True
    >>> clock.restart()
    >>> clock.count(), clock.count()
    (None, None)
    >>> clock.is_time(), clock.unshared                        # it waits for the end of the pause
    (False, 2)
    """

    def __init__(self, times: SyncTimes, images: int = 0) -> None:
        self.times, self.images, self.unshared = times, images, images
        self._last = self._earliest = time.monotonic()  # the last sync (or the start), and when the next may come
        self._due = False

    def count(self) -> None:
        """Count a picture that can be learnt from."""
        self.images += 1
        self.unshared += 1
        self._due = self._due or is_due(self.times.kind, self.images, self.times.period)

    def is_time(self) -> bool:
        """Return whether to sync now."""
        now = time.monotonic()
        late = 0 < self.times.seconds <= now - self._last
        return self.unshared > 0 and (self._due or late) and now >= self._earliest

    def restart(self) -> None:
        """Begin anew: everything has been shared."""
        self._last, self.unshared, self._due = time.monotonic(), 0, False
        self._earliest = self._last + self.times.pause
