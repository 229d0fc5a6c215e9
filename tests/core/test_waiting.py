"""Signals that wait until a step is over."""

import signal
import threading

import pytest

from latte.core.waiting import signals_wait


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


@pytest.mark.parametrize("moment", ["install", "restore"])
def test_a_signal_while_handlers_are_replaced_loses_none(moment, monkeypatch):
    """Whenever a signal raises, the others still reach their own handlers afterwards."""
    heard = []

    def stop(number, frame):
        raise KeyboardInterrupt

    old = {signal.SIGINT: signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))}
    old[signal.SIGTERM] = signal.signal(signal.SIGTERM, stop)
    plain, calls = signal.signal, []

    def interrupted(number, handler):
        done = plain(number, handler)
        calls.append(number)
        if len(calls) == (1 if moment == "install" else 1 + len(expected)):
            stop(number, None)
        return done

    expected = [number for number in signal.valid_signals() if callable(signal.getsignal(number))]
    try:
        monkeypatch.setattr(signal, "signal", interrupted)
        with pytest.raises(KeyboardInterrupt), signals_wait():
            pass
        monkeypatch.undo()
        signal.raise_signal(signal.SIGINT)
        assert heard == [signal.SIGINT]
    finally:
        for number, handler in old.items():
            plain(number, handler)
