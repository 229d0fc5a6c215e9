"""From thread to thread: everything arrives once and in order, and no signal stops it."""

import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latte.edge.handover import Handover, NothingYetError
from waiting import run

SIGNALS = """
import signal, time
from latte.edge.handover import Handover, NothingYetError

arrived = []
signal.signal(signal.SIGALRM, lambda *_: arrived.append(1))
signal.setitimer(signal.ITIMER_REAL, 0.0007, 0.0007)
handover, end, empty = Handover(1), time.monotonic() + 1.5, 0
while time.monotonic() < end:  # with queue.SimpleQueue this loop hangs
    try:
        handover.get(0.001)
    except NothingYetError:
        empty += 1
signal.setitimer(signal.ITIMER_REAL, 0)
assert empty > 100 and len(arrived) > 100
"""


@given(room=st.integers(1, 5), count=st.integers(0, 300))
def test_everything_arrives_once_and_in_order(room, count):
    handover = Handover(room)
    sender = threading.Thread(target=lambda: [handover.put(number, 60) for number in range(count)])
    sender.start()
    received = []
    for _ in range(count):
        received.append(handover.get(60))
        assert len(handover) <= room
    sender.join()
    assert received == list(range(count)) and len(handover) == 0


def test_who_waits_in_vain_is_told_so():
    handover = Handover(2)
    with pytest.raises(NothingYetError):
        handover.get(0.01)
    assert [handover.put(number, 0.01) for number in range(3)] == [True, True, False]
    assert [handover.get(0), handover.get(0)] == [0, 1]


def test_a_signal_at_the_end_of_a_wait_does_not_make_it_endless():
    run(sys.executable, "-c", SIGNALS, check=True)
