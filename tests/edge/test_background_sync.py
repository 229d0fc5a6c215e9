"""Syncs in the background: the latest offer is sent, and a fleet whose server comes back spreads its calls."""

import random
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latte.edge.clients.calls import RefusedError, UnreachableError
from latte.edge.device.syncing import FIRST_PAUSE, LONGEST_PAUSE, BackgroundSync, pause_after
from latte.wire.messages import DeviceReport
from waiting import wait_until


def test_what_was_offered_meanwhile_is_sent_next_and_only_the_latest():
    sent, go = [], threading.Semaphore(0)

    def trip(upload, report):
        sent.append(upload)
        go.acquire()
        return -upload

    link = BackgroundSync(trip)
    link.offer(1, DeviceReport(images=1))
    wait_until(lambda: sent == [1], "the first trip")
    for number in (2, 3, 4):
        link.offer(number, DeviceReport(images=number))
    go.release(2)
    assert link.drain(60)
    wait_until(lambda: link.state.images == 4, "the note of the sync")
    assert sent == [1, 4] and link.take() == -4 and link.take() is None
    link.stop()


@pytest.mark.parametrize("error", [UnreachableError("away"), RefusedError("bad_upload", 422, "no"), KeyError("bug")])
def test_a_failure_is_noted_and_tried_again(monkeypatch, error):
    monkeypatch.setattr("latte.edge.device.syncing.FIRST_PAUSE", 0.01)
    failures = [error, error]

    def trip(upload, report):
        if failures:
            raise failures.pop()
        return "download"

    link = BackgroundSync(trip)
    states = []
    link._note, note = lambda state: (states.append(state), note(state)), link._note
    link.offer("upload", DeviceReport(images=7))
    wait_until(lambda: link.state.images == 7, "the sync")
    assert link.take() == "download" and not link.state.problem
    assert len(states) == 3 and str(error).strip("'") in states[0].problem
    link.stop()


def test_a_pause_is_ended_by_stop():
    link = BackgroundSync(lambda upload, report: (_ for _ in ()).throw(RefusedError("forbidden", 403, "no")))
    link.offer(1, DeviceReport())
    wait_until(lambda: link.state.problem, "the refusal")
    assert not link.drain(0)
    link.stop(60)
    assert not link._thread.is_alive()


@given(failures=st.integers(1, 10**6), seed=st.integers(0, 99), asked=st.none() | st.floats(0, 10**6))
def test_pauses_have_bounds(failures, seed, asked):
    pause = pause_after(failures, UnreachableError("away", asked), random.Random(seed))
    limit = min(FIRST_PAUSE * 2.0**failures if failures < 50 else LONGEST_PAUSE, LONGEST_PAUSE)
    least = min(asked or 0.0, LONGEST_PAUSE)
    assert least + limit / 10 <= pause <= least + limit


def test_what_only_a_person_can_mend_is_tried_rarely():
    pauses = [pause_after(1, RefusedError("unauthorized", 401, ""), random.Random(seed)) for seed in range(50)]
    assert min(pauses) >= LONGEST_PAUSE / 10


@pytest.mark.parametrize("away", [60, 600, 7200])
def test_a_hundred_devices_come_back_without_a_stampede(away):
    """All lose the server in the same second; it comes back after ``away`` seconds."""
    comes_back = []
    for device in range(100):
        rng, now, failures = random.Random(device), 0.0, 0
        while now < away:
            failures += 1
            now += pause_after(failures, UnreachableError("away"), rng)
        comes_back.append(now - away)
    busiest = max(sum(start <= moment < start + 1 for moment in comes_back) for start in comes_back)
    assert busiest <= 10, "of 100 devices in the busiest second"
    assert max(comes_back) <= LONGEST_PAUSE, "all are back after five minutes"
