"""What a device says of itself: its status, for the machine it runs on, and its report, for the owner of the fleet."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import NamedTuple

from ..core.types import MemoryFill
from ..version import __version__
from ..wire.messages import DeviceReport
from .background_sync import SyncState
from .device_file import DeviceStatus
from .evidence import Labelled
from .tally import Tally


class FeedState(NamedTuple):
    """What is known of where pictures come from."""

    waiting: int = 0
    dropped: int = 0
    problem: str = ""


def status_now(before: DeviceStatus, feed: FeedState, sync: SyncState) -> DeviceStatus:
    """Return the status at this moment; of syncs, what an earlier run knew until there is a new one."""
    return replace(
        before,
        updated=time.time(),
        waiting=feed.waiting,
        dropped=feed.dropped,
        problem=feed.problem,
        synced=sync.synced or before.synced,
        sync_images=sync.images or before.sync_images,
        sync_problem=sync.problem,
    )


def report_of(
    tally: Tally, labelled: Labelled, fill: MemoryFill | None, feed: FeedState, exact: bool = True
) -> DeviceReport:
    """Return what the owner of the fleet gets to know with a sync.

    Unless it may be ``exact``, it only counts pictures: what they show is in the noisy upload, and nowhere else.
    """
    counts, recent = tally.counts(), tally.recent()
    if not exact:
        return DeviceReport(
            images=counts.answered,
            unreadable=counts.unreadable,
            waiting=feed.waiting,
            dropped=feed.dropped,
            software=f"latte {__version__}",
        )
    return DeviceReport(
        images=counts.answered,
        differing=counts.changed,
        agreement=recent.agreement,
        entropy=min(1.0, max(0.0, recent.entropy)),
        classes=fill.classes if fill else 0,
        unreadable=counts.unreadable,
        waiting=feed.waiting,
        dropped=feed.dropped,
        labelled=labelled.labelled,
        correct=labelled.correct,
        correct_zero_shot=labelled.correct_zero_shot,
        gained=labelled.gained,
        lost=labelled.lost,
        software=f"latte {__version__}",
    )
