"""Variant ``paper`` equals the paper's equations written as loops in float64."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from latte import Latte, ZeroShot
from latte.methods import LatteParams
from latte.simulation.simulator import Client, Schedule, simulate
from slow_latte import slow_federation


def unit(x):
    return (x / np.linalg.norm(x, axis=-1, keepdims=True)).astype(np.float32)


@st.composite
def params(draw):
    return LatteParams(
        k_l=draw(st.integers(1, 5)),
        k_e=draw(st.integers(0, 4)),
        alpha=draw(st.floats(0, 3)),
        beta=draw(st.sampled_from([0.0, 1.0, 6.0, 35.0, 60.0])),
        gamma=draw(st.sampled_from([0.0, 1.5, 6.0, 10.0])),
        gamma_prototype=draw(st.sampled_from([None, 0.5, 4.0])),
        prototype=draw(st.sampled_from(["exp_weighted", "mean", "min_entropy"])),
        memory=draw(st.sampled_from(["both", "both", "local", "external"])),
        empty_query=draw(st.sampled_from([None, "client", "none"])),
        entropy=draw(st.sampled_from(["normalised", "nats"])),
        replace=draw(st.sampled_from(["lower", "always"])),
    )


@st.composite
def federations(draw):
    """Return (zero_shot, streams): domains with a shift of their own, classes with a direction of their own."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, C, D = draw(st.integers(1, 6)), draw(st.integers(2, 6)), draw(st.integers(4, 24))
    text, shift = unit(rng.normal(size=(C, D))), rng.normal(size=(2, D))
    streams = []
    for i in range(n):
        length = draw(st.integers(1, 14))
        centres = text[rng.integers(C, size=length)] + 0.4 * shift[i % 2]
        streams.append(unit(centres + draw(st.floats(0.1, 0.8)) * rng.normal(size=(length, D)))[:, None])
    return ZeroShot(text, tuple(map(str, range(C))), draw(st.sampled_from([5.0, 20.0, 100.0]))), streams


@settings(max_examples=300)
@given(federations(), params(), st.integers(1, 4))
def test_equals_the_equations(federation, p, period):
    zero_shot, streams = federation
    names = [f"client {i}" for i in range(len(streams))]
    clients = [Client(name, Latte(zero_shot, p), s) for name, s in zip(names, streams, strict=True)]
    logits = [[] for _ in streams]
    for step in simulate(clients, Latte.exchange_for(zero_shot, p), Schedule(period=period)):
        logits[step.client].append(step.prediction.scores)
    raw = [s[:, 0] for s in streams]
    want = slow_federation(zero_shot.text, zero_shot.scale, p, raw, period, names)
    for ours, theirs in zip(logits, want, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)


def test_the_transcription_can_fail():
    """A changed formula is noticed: the slow version with another gamma does not agree."""
    rng = np.random.default_rng(0)
    text = unit(rng.normal(size=(3, 8)))
    stream = unit(rng.normal(size=(20, 8)))
    client = Latte(ZeroShot(text, ("a", "b", "c"), 5.0), LatteParams(beta=2.0, gamma=1.0))
    ours = [client.predict(f[None]).scores for f in stream]
    other = slow_federation(text, 5.0, LatteParams(beta=2.0, gamma=1.2), [stream], 1, ["x"])[0]
    assert np.abs(np.array(ours) - other).max() > 1e-3


def test_the_letter_of_the_text_differs():
    """B6 and B7 change predictions: each switch does something, and only what it says."""
    rng = np.random.default_rng(0)
    zero_shot = ZeroShot(unit(rng.normal(size=(3, 8))), ("a", "b", "c"), 5.0)
    stream = unit(rng.normal(size=(30, 1, 8)))

    def logits(**changes):
        client = Latte(zero_shot, LatteParams(k_l=3, beta=2.0, gamma=1.0, **changes))
        return np.array([client.predict(f).scores for f in stream])

    plain = logits()
    assert np.abs(logits(entropy="nats") - plain).max() > 1e-3
    assert np.abs(logits(replace="always") - plain).max() > 1e-3


def test_always_replacing_keeps_the_newest():
    """With one slot the text's rule keeps the last sample of a class, the Lemma's the most certain."""
    zero_shot = ZeroShot(np.eye(2), ("a", "b"), 2.0)
    newest, lowest = (Latte(zero_shot, LatteParams(k_l=1, replace=rule)) for rule in ("always", "lower"))
    sure, unsure = np.array([[1.0, 0.0]]), np.array([[0.8, 0.6]])
    for client in (newest, lowest):
        client.predict(sure)
        client.predict(unsure)
    np.testing.assert_allclose(newest.local.vectors[0, 0], unsure[0], atol=1e-6)
    np.testing.assert_allclose(lowest.local.vectors[0, 0], sure[0], atol=1e-6)
