"""The clients of an Exchange: what they may be called, and that many can call at once."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from threading import Barrier
from types import FrameType
from typing import Any

import numpy as np

from ..core.contracts import Exchange
from ..core.types import External, Prototypes, State
from ..errors import InputError
from .material import MakeExchange, MakeUpload, a_zero_shot, refuses, same, same_message
from .states import Stateful

BAD_NAMES: tuple[Any, ...] = ("", "\ud800", "a\udfff", "x" * 1025, "é" * 513, None, 7, b"a", ["a"])
ODD_NAMES = ("a", "a\0", "a\0\0", "\0a", "a ", " a", "A", "a\n", "a/b", "a%2Fb", "é", "e\u0301", "😀", "x" * 1024)
THREADS, CLIENTS, ROUNDS = 8, 3, 2


def filled(make: MakeExchange, upload: MakeUpload, names: str = "abcdef") -> Exchange[Any, Any]:
    """Return an exchange with some clients."""
    exchange = make(a_zero_shot())
    assert isinstance(exchange, Exchange), "an Exchange has a task, push, pull and pull_many"
    for name in names:
        exchange.push(name, upload(ord(name)))
    return exchange


# --- names ------------------------------------------------------------------------------------------------


def leaves_nothing_of_bad_names(make: MakeExchange, upload: MakeUpload) -> None:
    """A name that cannot be one is refused before the client joins."""
    exchange = filled(make, upload)
    before, state = exchange.pull("a"), _state(exchange)
    for name in BAD_NAMES:
        refuses(partial(exchange.push, name, upload(1)), f"an upload of {name!r:.40}")
        refuses(partial(exchange.pull, name), f"pull of {name!r:.40}")
        refuses(partial(exchange.pull_many, ["a", name]), f"pull of {name!r:.40} among others")
        unchanged = same_message(before, exchange.pull("a")) and same(state, _state(exchange))
        assert unchanged, f"after an upload of {name!r:.40} nothing may have changed"


def _state(exchange: Exchange[Any, Any]) -> State:
    return exchange.state() if isinstance(exchange, Stateful) else {}


def keeps_odd_names_apart(make: MakeExchange, upload: MakeUpload) -> None:
    """Names that differ in one odd character are different clients (or such a name is refused)."""
    exchange, plain, restored = (make(a_zero_shot()) for _ in range(3))
    names = [name for seed, name in enumerate(ODD_NAMES) if _accepts(exchange, name, upload(seed))]
    assert "a" in names, "'a' is a name"
    for name in names:
        plain.push(_plain(name), upload(ODD_NAMES.index(name)))
    _check_same_answers(exchange, names, plain)
    if isinstance(exchange, Stateful) and isinstance(restored, Stateful):
        restored.load(exchange.state())
        assert isinstance(restored, Exchange)
        _check_same_answers(restored, names, plain)


def _plain(odd: str) -> str:
    """Return a plain name; plain names are in the same order, in which an exchange may sum."""
    return f"client {sorted(ODD_NAMES).index(odd):02}"


def _check_same_answers(exchange: Exchange[Any, Any], names: list[str], plain: Exchange[Any, Any]) -> None:
    for name in names:
        assert same_message(exchange.pull(name), plain.pull(_plain(name))), f"{name!r:.80} is a client of its own"


def _accepts(exchange: Exchange[Any, Any], name: str, upload: Any) -> bool:
    try:
        exchange.push(name, upload)
    except InputError:
        return False
    return True


# --- threads ----------------------------------------------------------------------------------------------


def serves_many_threads(make: MakeExchange, upload: MakeUpload) -> None:
    """Uploads of many threads are neither lost nor mixed: in the end it is as if they had come one by one."""
    exchange, quiet, start = make(a_zero_shot()), make(a_zero_shot()), Barrier(THREADS)
    uploads = [upload(seed) for seed in range(THREADS * CLIENTS * ROUNDS)]
    with ThreadPoolExecutor(THREADS) as pool:
        calls = pool.map(partial(_client_thread, exchange, start, uploads), range(THREADS))
        downloads = [download for part in calls for download in part]
    if isinstance(uploads[0], Prototypes):
        assert all(_only_of(got, uploads) for got in downloads), "each prototype is one that was uploaded, as a whole"
    names = [(thread, client) for thread in range(THREADS) for client in range(CLIENTS)]
    for name in names:
        quiet.push(_name(*name), uploads[_number(*name, ROUNDS - 1)])
    for name in names:
        got, want = exchange.pull(_name(*name)), quiet.pull(_name(*name))
        assert same_message(got, want), "after uploads of many threads, each client's latest is there"


def _client_thread(exchange: Exchange[Any, Any], start: Barrier, uploads: list[Any], thread: int) -> list[Any]:
    numbers = [(client, _number(thread, client, turn)) for turn in range(ROUNDS) for client in range(CLIENTS)]
    downloads = []
    start.wait()
    with turns():
        for client, number in numbers:
            name = _name(thread, client)
            try:
                exchange.push(name, uploads[number])
                downloads += [exchange.pull(name), *exchange.pull_many([name])]
            except Exception as error:
                raise AssertionError(f"calls of several threads must not disturb each other: {error!r}") from error
    return downloads


def _name(thread: int, client: int) -> str:
    return f"client {thread}-{client}"


def _number(thread: int, client: int, turn: int) -> int:
    return (thread * CLIENTS + client) * ROUNDS + turn


@contextmanager
def turns() -> Iterator[None]:
    """Let another thread run after every line of what this thread calls: what can go wrong then does."""
    before = sys.gettrace()
    sys.settrace(_pause)
    try:
        yield
    finally:
        sys.settrace(before)


def _pause(frame: FrameType, event: str, argument: Any) -> Any:
    time.sleep(0)
    return _pause


def _only_of(got: External, uploads: list[Prototypes]) -> bool:
    """Does each prototype come from one of the uploads (up to the rounding of a wire)?"""
    stored = np.array([upload.vectors for upload in uploads])  # (n, C, D)
    apart = np.abs(got.vectors[None] - stored[:, :, None]).max(axis=3).min(axis=0)  # (C, E): from the nearest
    return bool((apart[got.valid] < 1e-3).all())
