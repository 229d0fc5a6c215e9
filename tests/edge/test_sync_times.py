"""When a device syncs: pictures, seconds and the pause between two syncs."""

from contextlib import closing
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devices import RowEncoder, rows, small_task
from latte.core.sync import SYNC_TIMES, is_due
from latte.edge.device import syncing as sync_times
from latte.edge.device.device import DeviceLoop
from latte.edge.device.record import DeviceRecord, Source
from latte.edge.device.syncing import BackgroundSync, SyncClock, SyncTimes
from latte.edge.joining import new_member

MOMENTS = st.lists(st.floats(0, 3), min_size=1, max_size=60)  # seconds from one picture to the next


class SetTime:
    """Stands for the module ``time``."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now


def synced_at(times, moments):
    """Return when a device syncs that gets a picture after each of these times, as (seconds, images)."""
    clock, syncs, set_time = SyncClock(times), [], sync_times.time
    for images, seconds in enumerate(moments, start=1):
        set_time.now += seconds
        clock.count()
        if clock.is_time():
            syncs.append((set_time.now, images))
            clock.restart()
    return syncs


@given(st.sampled_from(SYNC_TIMES), st.integers(1, 5), MOMENTS)
def test_without_a_pause_only_pictures_count(kind, period, moments):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sync_times, "time", SetTime())
        times = SyncTimes(kind, period, seconds=0, pause=0)
        due = [images for images in range(1, len(moments) + 1) if is_due(kind, images, period)]
        assert [images for _, images in synced_at(times, moments)] == due


@given(st.sampled_from(SYNC_TIMES), st.integers(1, 5), st.floats(0.1, 5), MOMENTS)
def test_a_pause_delays_syncs_and_loses_none(kind, period, pause, moments):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sync_times, "time", SetTime())
        start = sync_times.time.now
        syncs = synced_at(SyncTimes(kind, period, seconds=0, pause=pause), moments)
    seconds = [second for second, _ in syncs]
    assert all(later - earlier >= pause * (1 - 1e-9) for earlier, later in pairwise(seconds))
    earliest = now = start
    expected, waits = [], False
    for images, step in enumerate(moments, start=1):  # the same, said once more
        now += step
        waits = waits or is_due(kind, images, period)
        if waits and now >= earliest:
            expected.append(images)
            earliest, waits = now + pause, False
    assert [images for _, images in syncs] == expected


def test_something_new_is_shared_after_some_seconds():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sync_times, "time", SetTime())
        syncs = synced_at(SyncTimes("every", 100, seconds=10, pause=1), [4.0] * 8)
    assert [images for _, images in syncs] == [3, 6]


def test_a_fast_device_sends_one_summary_and_the_rest_at_its_end(tmp_path):
    sent, task = [], small_task()

    def trip(upload, report):
        sent.append(report.images)

    record = DeviceRecord(tmp_path, task.fingerprint)
    with closing(record):
        times = SyncTimes("every", 2, seconds=0, pause=3600)
        device = DeviceLoop(RowEncoder(task.zero_shot.dim), task, new_member(task), record, BackgroundSync(trip), times)
        for number, row in enumerate(rows(11)):
            device.answer(Source(f"{number}"), row)
            device.link.drain(10)
        assert sent == [2]
        device.close()
    assert sent == [2, 11]
