"""Signals that wait until a step is done, for steps that an exception in the middle would leave half done."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def signals_wait() -> Iterator[None]:
    """Let the Python handlers of signals wait until the block is over.

    Python runs handlers in the main thread only, so in another thread there is nothing to do.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    present = {int(number): signal.getsignal(number) for number in signal.valid_signals()}
    hold = _Hold({number: handler for number, handler in present.items() if callable(handler)})
    try:
        for number in hold.handlers:
            signal.signal(number, hold)
        yield
    finally:
        hold.release()
        for number in hold.arrived:
            signal.raise_signal(number)


class _Hold:
    """A handler that notes signals while they wait, and passes them to their own ``handlers`` afterwards.

    A signal may raise an exception while the old handlers are being put back. A hold that has not been replaced by then
    calls the old handler.
    """

    def __init__(self, handlers: dict[int, Callable[[int, FrameType | None], Any]]) -> None:
        self.handlers, self.arrived, self.waiting = handlers, list[int](), True

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.waiting:
            self.arrived.append(number)
        else:
            self.handlers[number](number, frame)

    def release(self) -> None:
        """Put the old handlers back."""
        try:
            for number, handler in self.handlers.items():
                signal.signal(number, handler)
        finally:
            self.waiting = False
