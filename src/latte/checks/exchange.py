"""The contract of an Exchange, check by check, for messages of any kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ..core.contracts import Exchange, Traced
from ..core.types import Prototypes
from ..errors import InputError
from .clients import filled, keeps_odd_names_apart, leaves_nothing_of_bad_names, serves_many_threads
from .material import (
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
from .prototypes import prototype_checks, tied
from .states import Stateful, check_refusals, damaged

Check = Callable[[MakeExchange], None]


def exchange_checks(upload: MakeUpload = an_upload) -> dict[str, Check]:
    """Return the checks of an Exchange by name; an exchange without ``state`` and ``load`` passes those of states.

    ``upload(seed)`` makes what is uploaded; by default, Latte's prototypes.
    """
    checks: dict[str, Callable[..., None]] = {
        "serves one task": _serves_one_task,
        "keeps the latest upload": _keeps_the_latest_upload,
        "does not depend on the order of pushes": _does_not_depend_on_order,
        "many pulls are as many pulls": _many_pulls_are_as_many_pulls,
        "returns a copy": _returns_a_copy,
        "keeps a copy": _keeps_a_copy,
        "refuses unknown clients": _refuses_unknown_clients,
        "keeps nothing of a bad upload": _keeps_nothing_of_a_bad_upload,
        "leaves nothing of bad names": leaves_nothing_of_bad_names,
        "keeps odd names apart": keeps_odd_names_apart,
        "serves many threads": serves_many_threads,
        "state round-trips": _state_round_trips,
        "refuses damaged states": _refuses_damaged_states,
        "refuses doubled clients": _refuses_doubled_clients,
    }
    general: dict[str, Check] = {name: partial(check, upload=upload) for name, check in checks.items()}
    return {**general, **(prototype_checks() if isinstance(upload(0), Prototypes) else {})}


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


def _many_pulls_are_as_many_pulls(make: MakeExchange, upload: MakeUpload) -> None:
    exchange = filled(make, upload)
    for names in ("", "c", "abcdef", "fda", "cc"):
        downloads = exchange.pull_many(list(names))
        assert len(downloads) == len(names), "pull_many returns a download per client"
        for name, got in zip(names, downloads, strict=True):
            assert same_message(got, exchange.pull(name)), "pull_many returns what as many pulls return, in order"
    refuses(lambda: exchange.pull_many(["a", "nobody"]), "pull of a client that never pushed, among others")
    if isinstance(exchange, Traced):
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


# --- states -----------------------------------------------------------------------------------------------


def _state_round_trips(make: MakeExchange, upload: MakeUpload) -> None:
    exchange, other = filled(make, upload), filled(make, upload, "xa")
    if not isinstance(exchange, Stateful) or not isinstance(other, Stateful):
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
    if isinstance(exchange, Stateful) and isinstance(other, Stateful):
        check_refusals(other, exchange.state())
        foreign = make(a_zero_shot(scale=30.0))
        assert isinstance(foreign, Stateful)
        refuses(lambda: foreign.load(exchange.state()), "a state of another task")


def _refuses_doubled_clients(make: MakeExchange, upload: MakeUpload) -> None:
    """A state whose names, or places in the order of the clients, are all equal is refused or changes nothing."""
    exchange = make(a_zero_shot())
    if not isinstance(exchange, Stateful):
        return
    for position, name in enumerate("abcdef"):
        exchange.push(name, tied(position) if isinstance(upload(0), Prototypes) else upload(position))
    before, good = [exchange.pull(name) for name in "abcdef"], exchange.state()
    for key, array in good.items():
        for value in (array.flat[0], 0) if array.dtype.kind in "iu" and array.size else ():
            changed = {**good, key: np.full_like(array, value)}
            restored = make(a_zero_shot())
            assert isinstance(restored, Stateful) and isinstance(restored, Exchange)
            try:
                restored.load(changed)
            except InputError:
                continue
            assert _pulls_are(restored, before), f"a state with {key} all {value} should be refused, or change nothing"


def _pulls_are(exchange: Exchange[Any, Any], before: list[Any]) -> bool:
    try:
        return all(same_message(old, exchange.pull(name)) for name, old in zip("abcdef", before, strict=True))
    except InputError:  # a client is gone
        return False
