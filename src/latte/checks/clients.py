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

from ..core.types import Exchange, External, Prototypes, State
from .material import CLASSES, DIM, SLOTS, MakeExchange, an_upload, refuses, same, same_download
from .states import Stateful

BAD_NAMES: tuple[Any, ...] = ("", "\ud800", "a\udfff", "x" * 1025, "é" * 513, None, 7, b"a", ["a"])
ODD_NAMES = ("a", "a\0", "a\0\0", "\0a", "a ", " a", "A", "a\n", "a/b", "a%2Fb", "é", "e\u0301", "😀", "x" * 1024)
THREADS, CLIENTS, ROUNDS = 8, 3, 2


def filled(make: MakeExchange, names: str = "abcdef") -> Exchange:
    """Return an exchange with some clients."""
    exchange = make(CLASSES, DIM, SLOTS)
    assert isinstance(exchange, Exchange), "an Exchange has push and pull"
    for name in names:
        exchange.push(name, an_upload(ord(name)))
    return exchange


# --- names ------------------------------------------------------------------------------------------------


def leaves_nothing_of_bad_names(make: MakeExchange) -> None:
    """A name that cannot be one is refused before the client joins."""
    exchange = filled(make)
    before, state = exchange.pull("a"), _state(exchange)
    for name in BAD_NAMES:
        refuses(partial(exchange.push, name, an_upload(1)), f"an upload of {name!r:.40}")
        refuses(partial(exchange.pull, name), f"pull of {name!r:.40}")
        unchanged = same_download(before, exchange.pull("a")) and same(state, _state(exchange))
        assert unchanged, f"after an upload of {name!r:.40} nothing may have changed"


def _state(exchange: Exchange) -> State:
    return exchange.state() if isinstance(exchange, Stateful) else {}


def keeps_odd_names_apart(make: MakeExchange) -> None:
    """Two names that differ in one odd character are two clients (or such a name is refused)."""
    exchange, restored = make(CLASSES, DIM, 50), make(CLASSES, DIM, 50)
    names = [name for seed, name in enumerate(ODD_NAMES) if _accepts(exchange, name, an_upload(seed))]
    assert "a" in names, "'a' is a name"
    _check_odd_names(exchange, names)
    if isinstance(exchange, Stateful) and isinstance(restored, Stateful):
        restored.load(exchange.state())
        _check_odd_names(restored, names)


def _check_odd_names(exchange: Exchange, names: list[str]) -> None:
    for name in names:
        got = exchange.pull(name)
        assert (got.valid.sum(axis=1) == len(names) - 1).all(), f"each of {names} is a client of its own"
        others = [an_upload(ODD_NAMES.index(other)) for other in names if other != name]
        assert _only_of(got, others), f"{name!r:.40} gets what the others uploaded"


def _accepts(exchange: Exchange, name: str, upload: Prototypes) -> bool:
    try:
        exchange.push(name, upload)
    except ValueError:
        return False
    return True


# --- threads ----------------------------------------------------------------------------------------------


def serves_many_threads(make: MakeExchange) -> None:
    """Uploads of many threads are neither lost nor mixed: in the end it is as if they had come one by one."""
    exchange, quiet, start = make(CLASSES, DIM, SLOTS), make(CLASSES, DIM, SLOTS), Barrier(THREADS)
    with ThreadPoolExecutor(THREADS) as pool:
        downloads = [x for part in pool.map(partial(_client_thread, exchange, start), range(THREADS)) for x in part]
    names = [(thread, client) for thread in range(THREADS) for client in range(CLIENTS)]
    uploads = [_upload(*name, count) for name in names for count in range(ROUNDS)]
    assert all(_only_of(got, uploads) for got in downloads), "each prototype is one that somebody uploaded, as a whole"
    for name in names:
        quiet.push(_name(*name), _upload(*name, ROUNDS - 1))
    for name in names:
        got, want = exchange.pull(_name(*name)), quiet.pull(_name(*name))
        assert same_download(got, want), "after uploads of many threads, each client's latest is there"


def _client_thread(exchange: Exchange, start: Barrier, thread: int) -> list[External]:
    calls = [(_name(thread, client), _upload(thread, client, n)) for n in range(ROUNDS) for client in range(CLIENTS)]
    downloads = []
    start.wait()
    with turns():
        for name, upload in calls:
            try:
                exchange.push(name, upload)
                downloads.append(exchange.pull(name))
            except Exception as error:
                raise AssertionError(f"calls of several threads must not disturb each other: {error!r}") from error
    return downloads


def _name(thread: int, client: int) -> str:
    return f"client {thread}-{client}"


def _upload(thread: int, client: int, count: int) -> Prototypes:
    return an_upload((thread * CLIENTS + client) * ROUNDS + count)


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
    """Does each prototype, with its entropy, come from one of the uploads (up to the rounding of a wire)?"""
    stored = np.array([np.column_stack([upload.vectors, upload.entropy]) for upload in uploads])  # (n, C, D + 1)
    rows = np.concatenate([got.vectors, got.entropy[:, :, None]], axis=2)  # (C, E, D + 1)
    apart = np.abs(rows[None] - stored[:, :, None]).max(axis=3).min(axis=0)  # (C, E): from the nearest
    return bool((apart[got.valid] < 1e-3).all())
