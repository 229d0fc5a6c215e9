"""The contract of an Exchange, check by check."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import partial

import numpy as np

from ..core.types import Exchange, External, Prototypes, Vectors
from .clients import filled, keeps_odd_names_apart, leaves_nothing_of_bad_names, serves_many_threads
from .material import CLASSES, DIM, SLOTS, MakeExchange, an_upload, refuses, same, same_download
from .states import Stateful, check_refusals, with_rubbish


def exchange_checks() -> dict[str, Callable[[MakeExchange], None]]:
    """Return the checks of an Exchange by name; those about states pass for one without ``state`` and ``load``."""
    return {
        "alone gets nothing": _alone_gets_nothing,
        "never returns one's own": _never_returns_ones_own,
        "returns the most similar": _returns_the_most_similar,
        "keeps the latest upload": _keeps_the_latest_upload,
        "does not depend on the order of pushes": _does_not_depend_on_order,
        "returns a copy": _returns_a_copy,
        "few clients give few slots": _few_clients_give_few_slots,
        "refuses unknown clients": _refuses_unknown_clients,
        "keeps nothing of a bad upload": _keeps_nothing_of_a_bad_upload,
        "unseen rows mean nothing": _unseen_rows_mean_nothing,
        "leaves nothing of bad names": leaves_nothing_of_bad_names,
        "keeps odd names apart": keeps_odd_names_apart,
        "serves many threads": serves_many_threads,
        "state round-trips": _state_round_trips,
        "refuses damaged states": _refuses_damaged_states,
        "refuses doubled clients": _refuses_doubled_clients,
    }


def _best(own: str, names: str, label: int) -> Vectors:
    """Return what ``own`` should get for one class: the SLOTS most similar of the others, most similar first."""
    query = an_upload(ord(own)).vectors[label]
    others = [an_upload(ord(name)).vectors[label] for name in names if name != own]
    return np.array(sorted(others, key=lambda v: -float(v @ query))[:SLOTS])


def _alone_gets_nothing(make: MakeExchange) -> None:
    exchange = make(CLASSES, DIM, SLOTS)
    exchange.push("a", an_upload(1))
    assert not exchange.pull("a").valid.any(), "with no other client the external memory is empty"


def _never_returns_ones_own(make: MakeExchange) -> None:
    exchange = filled(make)
    exchange.push("twin", an_upload(ord("a")))  # equal to a's
    for name in "abcdef":
        own, got = an_upload(ord(name)), exchange.pull(name)
        for y in range(CLASSES):
            same = (got.vectors[y][got.valid[y]] == own.vectors[y]).all(axis=1).sum()
            assert same == (name == "a"), "a client gets the prototypes of others, not its own"


def _returns_the_most_similar(make: MakeExchange) -> None:
    exchange = filled(make)
    for name in "abcdef":
        got = exchange.pull(name)
        assert got.vectors.shape == (CLASSES, SLOTS, DIM) and got.valid.all(), "k_e donors per class, where there are"
        for y in range(CLASSES):
            want = _best(name, "abcdef", y)
            assert np.allclose(got.vectors[y], want, atol=1e-3), "per class, the most similar prototypes first"


def _keeps_the_latest_upload(make: MakeExchange) -> None:
    exchange = make(CLASSES, DIM, SLOTS)
    exchange.push("a", an_upload(1))
    exchange.push("b", an_upload(2))
    exchange.push("b", an_upload(3))
    got = exchange.pull("a")
    assert np.allclose(got.vectors[:, 0], an_upload(3).vectors, atol=1e-3), "a later upload replaces an earlier one"
    assert got.valid.sum() == CLASSES, "and counts once"


def _does_not_depend_on_order(make: MakeExchange) -> None:
    one, other = filled(make, "abcdef"), filled(make, "fbdaec")
    a, b = one.pull("c"), other.pull("c")
    assert np.array_equal(a.vectors, b.vectors) and np.array_equal(a.valid, b.valid), (
        "the order of pushes must not matter"
    )


def _returns_a_copy(make: MakeExchange) -> None:
    exchange = filled(make)
    got = exchange.pull("a")
    kept = got.vectors.copy()
    for name in "bcdef":
        exchange.push(name, an_upload(100 + ord(name)))
    assert np.array_equal(got.vectors, kept), "what was pulled must not change with later pushes"


def _few_clients_give_few_slots(make: MakeExchange) -> None:
    exchange = make(CLASSES, DIM, 50)
    exchange.push("a", an_upload(1))
    exchange.push("b", an_upload(2, (True, False, True, True)))
    got = exchange.pull("a")
    assert got.valid.sum(axis=1).tolist() == [1, 0, 1, 1], "k_e above the number of donors: what there is comes back"


def _refuses_unknown_clients(make: MakeExchange) -> None:
    exchange = filled(make)
    refuses(lambda: exchange.pull("nobody"), "pull of a client that never pushed")


def _keeps_nothing_of_a_bad_upload(make: MakeExchange) -> None:
    exchange = filled(make)
    before, good = exchange.pull("a"), an_upload(ord("b"))
    bad = {
        "another C": Prototypes(good.vectors[1:], good.entropy[1:], good.seen[1:]),
        "another D": Prototypes(good.vectors[:, 1:], good.entropy, good.seen),
        "NaN": Prototypes(good.vectors * np.float32(np.nan), good.entropy, good.seen),
        "vectors of length 3": Prototypes(good.vectors * np.float32(3), good.entropy, good.seen),
        "an entropy of -1": Prototypes(good.vectors, good.entropy - 2, good.seen),
        "a mask of numbers": Prototypes(good.vectors, good.entropy, good.seen.astype(float)),
    }
    for what, upload in bad.items():
        for name in ("b", "new"):
            refuses(partial(exchange.push, name, upload), f"an upload with {what}")
        after = exchange.pull("a")
        assert np.array_equal(before.vectors, after.vectors), f"after an upload with {what} nothing may have changed"
    refuses(lambda: exchange.pull("new"), "pull of a client whose only upload was refused")


def _unseen_rows_mean_nothing(make: MakeExchange) -> None:
    clean, other = filled(make), filled(make)
    upload = an_upload(1, (True, False, True, False))
    clean.push("new", upload)
    other.push("new", Prototypes(**with_rubbish(asdict(upload))))
    for name in ("new", *"abcdef"):
        got, want = other.pull(name), clean.pull(name)
        assert np.isfinite(got.vectors).all() and np.isfinite(got.entropy).all(), "free slots of a download are finite"
        assert same_download(got, want), "NaN in a row that is not seen must not matter"


def _state_round_trips(make: MakeExchange) -> None:
    exchange, other = filled(make), filled(make, "xa")
    if not isinstance(exchange, Stateful) or not isinstance(other, Stateful):
        return
    other.load(exchange.state())
    assert same(exchange.state(), other.state()), "load(state()) restores the state bit for bit"
    for each in (exchange, other):
        each.push("new", an_upload(1))
    for name in ("new", *"abcdef"):
        assert same_download(exchange.pull(name), other.pull(name)), "and what is pulled"
    refuses(lambda: other.pull("x"), "pull of a client that was there before a state was loaded")


def _refuses_damaged_states(make: MakeExchange) -> None:
    exchange, other = filled(make), filled(make, "xa")
    if isinstance(exchange, Stateful) and isinstance(other, Stateful):
        check_refusals(other, exchange.state())


def _refuses_doubled_clients(make: MakeExchange) -> None:
    """Numbers of a state that are no longer those of the clients: two names that are one, or places in one order."""
    exchange = make(CLASSES, DIM, SLOTS)
    if not isinstance(exchange, Stateful):
        return
    for position, name in enumerate("abcdef"):
        exchange.push(name, _tied(position))
    before, good = [exchange.pull(name) for name in "abcdef"], exchange.state()
    for key, array in good.items():
        for value in (array.flat[0], 0) if array.dtype.kind in "iu" and array.size else ():
            changed = {**good, key: np.full_like(array, value)}
            restored = make(CLASSES, DIM, SLOTS)
            assert isinstance(restored, Stateful) and isinstance(restored, Exchange)
            try:
                restored.load(changed)
            except ValueError:
                continue
            assert _pulls_are(restored, before), f"a state with {key} all {value} should be refused, or change nothing"


def _pulls_are(exchange: Exchange, before: list[External]) -> bool:
    try:
        return all(same_download(one, exchange.pull(name)) for name, one in zip("abcdef", before, strict=True))
    except ValueError:  # a client is gone
        return False


def _tied(position: int) -> Prototypes:
    """Return uploads that are all equally similar to the first: the order of the clients decides which it gets."""
    vectors = np.zeros((CLASSES, DIM), np.float32)
    vectors[:, 0] = 0.6 if position else 1.0
    vectors[:, position] += 0.8 if position else 0.0
    return Prototypes(vectors, np.full(CLASSES, 0.5), np.ones(CLASSES, np.bool_))
