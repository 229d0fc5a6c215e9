"""Signals that wait until a step is over."""

import signal
import threading

import pytest

from latte.runtime import signals_wait


def test_a_signal_comes_after_the_block_and_the_handler_is_the_old_one():
    before = signal.getsignal(signal.SIGINT)
    steps = []
    with pytest.raises(KeyboardInterrupt):  # noqa: SIM117  it is raised when the inner block ends
        with signals_wait():
            signal.raise_signal(signal.SIGINT)
            steps.append("whole")
    assert steps == ["whole"] and signal.getsignal(signal.SIGINT) is before


def test_it_changes_nothing_in_another_thread_and_lets_exceptions_pass():
    problems = []

    def work():
        try:
            with signals_wait():
                raise KeyError("mine")
        except KeyError as error:
            problems.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len(problems) == 1
    with pytest.raises(KeyError), signals_wait():
        raise KeyError


def test_ignored_signals_stay_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with signals_wait():
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
