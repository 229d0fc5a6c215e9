"""The contract of an exchange of Latte's prototypes, beyond that of any exchange: which of them a client gets."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..core.maths import entropy
from ..core.types import Prototypes, Vectors
from .clients import filled
from .material import CLASSES, DIM, MakeExchange, a_zero_shot, an_upload, arrays_of, same_message, with_arrays
from .states import with_rubbish


def prototype_checks() -> dict[str, Callable[[MakeExchange], None]]:
    """Return the checks by name. The exchange must return at least one prototype per class, if there is one."""
    return {
        "alone gets nothing": _alone_gets_nothing,
        "never returns one's own": _never_returns_ones_own,
        "returns the most similar": _returns_the_most_similar,
        "few clients give few slots": _few_clients_give_few_slots,
        "calculates entropies itself": _calculates_entropies_itself,
        "unseen rows mean nothing": _unseen_rows_mean_nothing,
    }


def tied(position: int) -> Prototypes:
    """Return uploads that are all equally similar to the first: the order of the clients decides which it gets."""
    vectors = np.zeros((CLASSES, DIM), np.float32)
    vectors[:, 0] = 0.6 if position else 1.0
    vectors[:, position] += 0.8 if position else 0.0
    return Prototypes(vectors, np.ones(CLASSES, np.bool_), a_zero_shot().fingerprint)


def _best(own: str, names: str, label: int, slots: int) -> Vectors:
    """Return what ``own`` should get for one class: the most similar of the others, most similar first."""
    query = an_upload(ord(own)).vectors[label]
    others = [an_upload(ord(name)).vectors[label] for name in names if name != own]
    return np.array(sorted(others, key=lambda v: -float(v @ query))[:slots])


def _alone_gets_nothing(make: MakeExchange) -> None:
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
        for y in range(CLASSES):
            want = _best(name, "abcdef", y, slots)
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
