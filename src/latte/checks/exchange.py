"""The contract of an Exchange, check by check, for messages of any kind."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from threading import Barrier
from types import FrameType
from typing import Any

import numpy as np

from ..core.maths import entropy
from ..core.types import Exchange, Prototypes, optional_fields
from ..errors import InputError
from .material import (
    CLASSES,
    DIM,
    MakeExchange,
    MakeUpload,
    a_zero_shot,
    an_upload,
    arrays_of,
    refuses,
    same,
    same_message,
    with_arrays,
)
from .method import check_refusals, damaged, with_rubbish

BAD_NAMES: tuple[Any, ...] = ("", "\ud800", "a\udfff", "x" * 1025, "é" * 513, None, 7, b"a", ["a"])
ODD_NAMES = ("a", "a\0", "a\0\0", "\0a", "a ", " a", "A", "a\n", "a/b", "a%2Fb", "é", "e\u0301", "😀", "x" * 1024)
THREADS, CLIENTS, ROUNDS = 8, 3, 2
Check = Callable[[MakeExchange], None]


def exchange_checks(upload: MakeUpload = an_upload) -> dict[str, Check]:
    """Return the checks of an Exchange by name; an exchange without ``state`` and ``load`` passes those of states.

    ``upload(seed)`` makes what is uploaded; by default, Latte's prototypes.
    """
    checks: dict[str, Callable[..., None]] = {
        "serves one task": _serves_one_task,
        "keeps the latest upload": _keeps_the_latest_upload,
        "does not depend on the order of pushes": _does_not_depend_on_order,
        "pull_many gives what single pulls give": _pull_many_gives_what_single_pulls_give,
        "returns a copy": _returns_a_copy,
        "keeps a copy": _keeps_a_copy,
        "refuses unknown clients": _refuses_unknown_clients,
        "keeps nothing of a bad upload": _keeps_nothing_of_a_bad_upload,
        "leaves nothing of bad names": _leaves_nothing_of_bad_names,
        "tells similar names apart": _tells_similar_names_apart,
        "serves many threads": _serves_many_threads,
        "withdrawn labels leave nothing": _withdrawn_labels_leave_nothing,
        "state round-trips": _state_round_trips,
        "refuses damaged states": _refuses_damaged_states,
        "refuses doubled clients": _refuses_doubled_clients,
    }
    of_prototypes: dict[str, Check] = {  # the exchange must return at least one per class, if there is one
        "a client alone gets nothing": _a_client_alone_gets_nothing,
        "never returns one's own": _never_returns_ones_own,
        "returns the most similar": _returns_the_most_similar,
        "few clients give few slots": _few_clients_give_few_slots,
        "calculates entropies itself": _calculates_entropies_itself,
        "unseen rows mean nothing": _unseen_rows_mean_nothing,
    }
    general: dict[str, Check] = {name: partial(check, upload=upload) for name, check in checks.items()}
    return {**general, **(of_prototypes if isinstance(upload(0), Prototypes) else {})}


def filled(make: MakeExchange, upload: MakeUpload, names: str = "abcdef") -> Any:
    """Return an exchange with some clients."""
    exchange = make(a_zero_shot())
    assert isinstance(exchange, Exchange), "an Exchange has a task, push, pull and pull_many"
    for name in names:
        exchange.push(name, upload(ord(name)))
    return exchange


# --- clients: what they may be called, and that many can call at once ------------------------------------------


def _leaves_nothing_of_bad_names(make: MakeExchange, upload: MakeUpload) -> None:
    """A name that cannot be one is refused before the client joins."""
    exchange = filled(make, upload)
    before, state = exchange.pull("a"), exchange.state() if hasattr(exchange, "state") else {}
    for name in BAD_NAMES:
        refuses(partial(exchange.push, name, upload(1)), f"an upload of {name!r:.40}")
        refuses(partial(exchange.pull, name), f"pull of {name!r:.40}")
        refuses(partial(exchange.pull_many, ["a", name]), f"pull of {name!r:.40} among others")
        unchanged = same_message(before, exchange.pull("a")) and (not state or same(state, exchange.state()))
        assert unchanged, f"after an upload of {name!r:.40} nothing may have changed"


def _tells_similar_names_apart(make: MakeExchange, upload: MakeUpload) -> None:
    """Names that differ in one odd character are different clients (or such a name is refused)."""
    exchange, plain, restored = (make(a_zero_shot()) for _ in range(3))
    plain_names = {}  # in the same order, in which an exchange may sum
    for seed, name in enumerate(ODD_NAMES):
        with suppress(InputError):
            exchange.push(name, upload(seed))
            plain_names[name] = f"client {sorted(ODD_NAMES).index(name):02}"
            plain.push(plain_names[name], upload(seed))
    assert "a" in plain_names, "'a' is a name"
    exchanges = [exchange]
    if hasattr(exchange, "state"):
        restored.load(exchange.state())
        exchanges.append(restored)
    for each, (name, known) in itertools.product(exchanges, plain_names.items()):
        assert same_message(each.pull(name), plain.pull(known)), f"{name!r:.80} is a client of its own"


def _serves_many_threads(make: MakeExchange, upload: MakeUpload) -> None:
    """Uploads of many threads are neither lost nor mixed: in the end it is as if they had come one by one."""
    exchange, quiet, start = make(a_zero_shot()), make(a_zero_shot()), Barrier(THREADS)
    calls = itertools.product(range(THREADS), range(ROUNDS), range(CLIENTS))
    uploads = {call: upload(seed) for seed, call in enumerate(calls)}

    def call(thread: int) -> list[Any]:
        downloads = []
        start.wait()
        with turns():
            for turn, client in itertools.product(range(ROUNDS), range(CLIENTS)):
                name = f"client {thread}-{client}"
                try:
                    exchange.push(name, uploads[thread, turn, client])
                    downloads += [exchange.pull(name), *exchange.pull_many([name])]
                except Exception as error:
                    raise AssertionError(f"calls of several threads must not disturb each other: {error!r}") from error
        return downloads

    with ThreadPoolExecutor(THREADS) as pool:
        downloads = [download for part in pool.map(call, range(THREADS)) for download in part]
    if all(
        isinstance(one, Prototypes) and one.labels is None for one in uploads.values()
    ):  # each comes from one of the uploads, up to the rounding of a wire
        stored = np.array([upload.vectors for upload in uploads.values()])  # (n, C, D)
        for got in downloads:
            apart = np.abs(got.vectors[None] - stored[:, :, None]).max(axis=3).min(axis=0)  # (C, E): from the nearest
            assert (apart[got.valid] < 1e-3).all(), "each prototype is one that was uploaded, as a whole"
    last = {f"client {thread}-{client}": up for (thread, turn, client), up in uploads.items() if turn == ROUNDS - 1}
    for name, latest in last.items():
        quiet.push(name, latest)
    for name in last:
        same_as_quiet = same_message(exchange.pull(name), quiet.pull(name))
        assert same_as_quiet, "after uploads of many threads, each client's latest is there"


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


# --- exchanges of Latte's prototypes: which of them a client gets ----------------------------------------------


def _a_client_alone_gets_nothing(make: MakeExchange) -> None:
    exchange = make(a_zero_shot())
    exchange.push("a", an_upload(1))
    assert not exchange.pull("a").valid.any(), "with no other client the external memory is empty"


def _never_returns_ones_own(make: MakeExchange) -> None:
    exchange = filled(make, an_upload)
    exchange.push("twin", an_upload(ord("a")))  # equal to a's
    for name in "abcdef":
        own, got = an_upload(ord(name)), exchange.pull(name)
        for y in range(CLASSES):
            same = (got.vectors[y][got.valid[y]] == own.vectors[y]).all(axis=1).sum()
            assert same == (name == "a"), "a client gets the prototypes of others, not its own"


def _returns_the_most_similar(make: MakeExchange) -> None:
    exchange = filled(make, an_upload)
    for name in "abcdef":
        got = exchange.pull(name)
        slots = got.valid.shape[1]
        assert got.vectors.shape == (CLASSES, slots, DIM) and got.valid.all(), "k_e donors per class, where there are"
        others = [an_upload(ord(other)).vectors for other in "abcdef" if other != name]
        for y, query in enumerate(an_upload(ord(name)).vectors):
            want = sorted((other[y] for other in others), key=lambda v: -float(v @ query))[:slots]
            assert np.allclose(got.vectors[y], want, atol=1e-3), "per class, the most similar prototypes first"


def _few_clients_give_few_slots(make: MakeExchange) -> None:
    exchange = make(a_zero_shot())
    exchange.push("a", an_upload(1))
    exchange.push("b", an_upload(2, (True, False, True, True)))
    got = exchange.pull("a")
    assert got.valid.sum(axis=1).tolist() == [1, 0, 1, 1], "k_e above the number of donors: what there is comes back"


def _calculates_entropies_itself(make: MakeExchange) -> None:
    exchange, zero_shot = filled(make, an_upload), a_zero_shot()
    got = exchange.pull("a")
    want = entropy(zero_shot.logits(got.vectors))
    assert np.allclose(got.entropy[got.valid], want[got.valid], atol=1e-3), "the entropy of a prototype is its own (B5)"


def _unseen_rows_mean_nothing(make: MakeExchange) -> None:
    clean, other = filled(make, an_upload), filled(make, an_upload)
    upload = an_upload(1, (True, False, True, False))
    clean.push("new", upload)
    other.push("new", with_arrays(upload, with_rubbish(arrays_of(upload))))
    for name in ("new", *"abcdef"):
        got, want = other.pull(name), clean.pull(name)
        assert np.isfinite(got.vectors).all() and np.isfinite(got.entropy).all(), "free slots of a download are finite"
        assert same_message(got, want), "NaN in a row that is not seen must not matter"


# --- messages of any kind -------------------------------------------------------------------------------------


def _serves_one_task(make: MakeExchange, upload: MakeUpload) -> None:
    exchange, other = filled(make, upload), a_zero_shot(scale=30.0)
    assert exchange.task == a_zero_shot().fingerprint, "the task of an exchange is the fingerprint of its classifier"
    before = exchange.pull("a")
    assert before.task == exchange.task, "a download names its task"
    for name in ("a", "new"):
        foreign = replace(upload(1), task=other.fingerprint)
        refuses(partial(exchange.push, name, foreign), "an upload of another task")
    assert same_message(before, exchange.pull("a")), "after an upload of another task nothing may have changed"
    refuses(lambda: exchange.pull("new"), "pull of a client whose only upload was refused")


def _keeps_the_latest_upload(make: MakeExchange, upload: MakeUpload) -> None:
    exchange, fresh = make(a_zero_shot()), make(a_zero_shot())
    exchange.push("b", upload(2))
    for each in (exchange, fresh):
        each.push("a", upload(1))
        each.push("b", upload(3))
    for name in "ab":
        assert same_message(exchange.pull(name), fresh.pull(name)), "a later upload replaces an earlier one"


def _does_not_depend_on_order(make: MakeExchange, upload: MakeUpload) -> None:
    first, second = filled(make, upload, "abcdef"), filled(make, upload, "fbdaec")
    for name in "abcdef":
        assert same_message(first.pull(name), second.pull(name)), "the order of pushes must not matter"


def _pull_many_gives_what_single_pulls_give(make: MakeExchange, upload: MakeUpload) -> None:
    exchange = filled(make, upload)
    for names in ("", "c", "abcdef", "fda", "cc"):
        downloads = exchange.pull_many(list(names))
        assert len(downloads) == len(names), "pull_many returns a download per client"
        for name, got in zip(names, downloads, strict=True):
            assert same_message(got, exchange.pull(name)), "pull_many returns what single pulls return, in order"
    refuses(lambda: exchange.pull_many(["a", "nobody"]), "pull of a client that never pushed, among others")
    if hasattr(exchange, "pull_traced"):
        downloads, amounts = exchange.pull_traced(list("ace"))
        assert all(same_message(got, exchange.pull(name)) for name, got in zip("ace", downloads, strict=True))
        assert amounts.shape == (3, len(exchange.clients)) and (amounts >= 0).all(), "amounts are (m, N), not negative"


def _returns_a_copy(make: MakeExchange, upload: MakeUpload) -> None:
    exchange = filled(make, upload)
    got = exchange.pull("a")
    before = {name: array.copy() for name, array in arrays_of(got).items()}
    for name in "bcdef":
        exchange.push(name, upload(100 + ord(name)))
    assert same(arrays_of(got), before), "what was pulled must not change with later pushes"


def _keeps_a_copy(make: MakeExchange, upload: MakeUpload) -> None:
    exchange, mine = filled(make, upload), upload(ord("b"))
    exchange.push("b", mine)
    before = exchange.pull("a")
    for array in arrays_of(mine).values():
        array[...] = array[::-1].copy() if array.ndim and len(array) > 1 else array[...] * 0
    assert same_message(before, exchange.pull("a")), "what was pushed is a copy: the client may reuse its arrays"


def _refuses_unknown_clients(make: MakeExchange, upload: MakeUpload) -> None:
    exchange = filled(make, upload)
    refuses(lambda: exchange.pull("nobody"), "pull of a client that never pushed")


def _keeps_nothing_of_a_bad_upload(make: MakeExchange, upload: MakeUpload) -> None:
    exchange = filled(make, upload)
    before, good = exchange.pull("a"), upload(ord("b"))
    for what, bad in _bad_uploads(good):
        for name in ("b", "new"):
            refuses(partial(exchange.push, name, bad), f"an upload with {what}")
        assert same_message(before, exchange.pull("a")), f"after an upload with {what} nothing may have changed"
    refuses(lambda: exchange.pull("new"), "pull of a client whose only upload was refused")


def _bad_uploads(good: Any) -> list[tuple[str, Any]]:
    arrays = arrays_of(good)
    bad = [(what, with_arrays(good, state)) for what, state in damaged(arrays) if state.keys() == arrays.keys()]
    bad += [("no arrays", replace(good, **dict.fromkeys(arrays))), ("another kind of message", object())]
    if isinstance(good, Prototypes):
        bad += [
            ("another C", replace(good, vectors=good.vectors[1:], seen=good.seen[1:])),
            ("another D", replace(good, vectors=good.vectors[:, 1:])),
            ("vectors of length 3", replace(good, vectors=good.vectors * np.float32(3))),
            ("a mask of numbers", replace(good, seen=good.seen.astype(float))),
        ]
    return bad


def _withdrawn_labels_leave_nothing(make: MakeExchange, upload: MakeUpload) -> None:
    """Uploads whose labels were withdrawn are as if they had never had any."""
    optional = dict.fromkeys(optional_fields(type(upload(0))))
    bare = partial(_without, upload, optional)
    exchange, never = filled(make, upload), filled(make, bare)
    for each, name in itertools.product((exchange, never), "abcdef"):
        each.push(name, bare(ord(name)))
    for name in "abcdef":
        got = exchange.pull(name)
        assert same_message(got, never.pull(name)), "what was withdrawn must not be in a download any more"
        assert not any(getattr(got, n) is not None for n in optional_fields(type(got))), "nor the arrays for labels"
    if hasattr(exchange, "state"):
        assert same(exchange.state(), never.state()), "nor in the state"


def _without(upload: MakeUpload, optional: dict[str, None], seed: int) -> Any:
    return replace(upload(seed), **optional)


# --- states -----------------------------------------------------------------------------------------------


def _state_round_trips(make: MakeExchange, upload: MakeUpload) -> None:
    exchange, other = filled(make, upload), filled(make, upload, "xa")
    if not hasattr(exchange, "state"):
        return
    other.load(exchange.state())
    assert same(exchange.state(), other.state()), "load(state()) restores the state bit for bit"
    for each in (exchange, other):
        each.push("new", upload(1))
    for name in ("new", *"abcdef"):
        assert same_message(exchange.pull(name), other.pull(name)), "and what is pulled"
    refuses(lambda: other.pull("x"), "pull of a client that was there before a state was loaded")


def _refuses_damaged_states(make: MakeExchange, upload: MakeUpload) -> None:
    exchange, other = filled(make, upload), filled(make, upload, "xa")
    if hasattr(exchange, "state"):
        check_refusals(other, exchange.state())
        foreign = make(a_zero_shot(scale=30.0))
        refuses(lambda: foreign.load(exchange.state()), "a state of another task")


def _refuses_doubled_clients(make: MakeExchange, upload: MakeUpload) -> None:
    """A state whose names, or places in the order of the clients, are all equal is refused or changes nothing."""
    exchange = make(a_zero_shot())
    if not hasattr(exchange, "state"):
        return
    for position, name in enumerate("abcdef"):
        exchange.push(name, _tied(position) if isinstance(upload(0), Prototypes) else upload(position))
    before, good = [exchange.pull(name) for name in "abcdef"], exchange.state()
    for key, array in good.items():
        for value in (array.flat[0], 0) if array.dtype.kind in "iu" and array.size else ():
            restored = make(a_zero_shot())
            try:
                restored.load({**good, key: np.full_like(array, value)})
            except InputError:
                continue
            try:
                kept = all(same_message(old, restored.pull(name)) for name, old in zip("abcdef", before, strict=True))
            except InputError:  # a client is gone
                kept = False
            assert kept, f"a state with {key} all {value} should be refused, or change nothing"


def _tied(position: int) -> Prototypes:
    """Return uploads that are all equally similar to the first: the order of the clients decides which it gets."""
    vectors = np.zeros((CLASSES, DIM), np.float32)
    vectors[:, 0] = 0.6 if position else 1.0
    vectors[:, position] += 0.8 if position else 0.0
    return Prototypes(vectors, np.ones(CLASSES, np.bool_), a_zero_shot().fingerprint)
