"""Labels that teach: the recorded case, an independent slow version, privacy, rights, and what does not change."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latte import InputError, Latte, Privacy, PrivateClient, ZeroShot, create, create_exchange, sync
from latte.core.types import Prototypes, TeachingRights
from latte.methods import LatteParams
from latte.methods.ristretto.client import Ristretto
from latte.methods.ristretto.server import Freshness, RistrettoExchange
from latte.simulation.simulator import Client, Schedule, simulate
from slow_labels import slow_taught_federation


def unit(x):
    return (x / np.linalg.norm(x, axis=-1, keepdims=True)).astype(np.float32)


def a_fleet(rng, n=4, classes=3, dim=12, length=40, shift=0.5):
    """Return a classifier, streams (n, length, 1, D) of clients with a shift of their own, and the true classes."""
    text = unit(rng.normal(size=(classes, dim)))
    truth = rng.integers(classes, size=(n, length))
    noise = 0.5 * rng.normal(size=(n, length, dim)) / np.sqrt(dim) * 3
    streams = unit(text[truth] + shift * rng.normal(size=(n, 1, dim)) + noise)[:, :, None]
    return ZeroShot(text, tuple(map(str, range(classes))), 20.0), streams, truth


def logits_of(clients, exchange, schedule):
    logits = [[] for _ in clients]
    for step in simulate(clients, exchange, schedule):
        logits[step.client].append(step.prediction.scores)
    return [np.array(rows) for rows in logits]


def test_ristretto_equals_the_recorded_case(shared):
    golden = np.load(shared / "golden" / "labels" / "thirteen_clients.npz")
    text, streams = golden["text"], golden["streams"].astype(np.float64)
    zero_shot = ZeroShot(text, tuple(map(str, range(len(text)))))
    told = np.where(golden["labelled"], golden["truth"], -1)
    clients = [
        Client(f"{i:06d}", Ristretto(zero_shot), stream[:, None], labels)
        for i, (stream, labels) in enumerate(zip(streams, told, strict=True))
    ]
    logits = logits_of(clients, Ristretto.exchange_for(zero_shot), Schedule(sync="doubling"))
    np.testing.assert_allclose(np.array(logits), golden["logits"], atol=1e-9)
    for i, client in enumerate(clients):
        head = client.method.head
        np.testing.assert_allclose(head.weights, golden["head"][i], atol=1e-9)
        np.testing.assert_allclose(head.bias, golden["bias"][i], atol=1e-9)
        np.testing.assert_allclose(head.trust, golden["trust"][i], atol=1e-9)
        assert client.method.labels == golden["labels"][i]
        if client.method.labels:
            upload = client.method.summary()
            np.testing.assert_allclose(upload.residual_sums, golden["residual_sums"][i], atol=1e-9)
            np.testing.assert_allclose(upload.residual_counts, golden["residual_counts"][i], atol=1e-9)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.sampled_from(["both", "both", "local", "external"]))
def test_latte_equals_the_slow_version(seed, period, memory):
    rng = np.random.default_rng(seed)
    zero_shot, streams, truth = a_fleet(rng, rng.integers(1, 5), rng.integers(2, 5), 8, 12)
    told = np.where(rng.random(truth.shape) < 0.2, truth, -1)
    p = LatteParams(k_l=3, k_e=2, alpha=0.7, beta=6.0, memory=memory)
    names = [f"client {i}" for i in range(len(streams))]
    members = zip(names, streams, told, strict=True)
    clients = [Client(name, Latte(zero_shot, p), stream, labels) for name, stream, labels in members]
    ours = logits_of(clients, Latte.exchange_for(zero_shot, p), Schedule(period=period))
    raw = [stream[:, 0] for stream in streams]
    theirs = slow_taught_federation(zero_shot.text, zero_shot.scale, p, raw, told, period, names)
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("name", ["latte", "ristretto"])
def test_withdrawn_labels_leave_no_trace(name):
    """Bit for bit, not only up to rounding: the images are stored, not their sums; the same holds for their order."""
    zero_shot, streams, truth = a_fleet(np.random.default_rng(0))
    method, never, back = (create(name, zero_shot) for _ in range(3))
    for views, label in zip(streams[0], truth[0], strict=True):
        method.correct(views, label, method.predict(views).learnt)
        back.predict(views)
        never.predict(views)
    learnt = [create(name, zero_shot).predict(views).learnt for views in streams[0]]
    for views, label in list(zip(streams[0], truth[0], strict=True))[::-1]:
        back.correct(views, label)
        back.withdraw(views)
    assert all(soft is None or abs(soft.sum() - 1) < 1e-9 for soft in learnt)
    for views in streams[0]:
        method.withdraw(views)
    for one in (method, back):
        assert one.state().keys() == never.state().keys()
        for key, array in never.state().items():
            np.testing.assert_array_equal(one.state()[key], array)


@pytest.mark.parametrize("name", ["latte", "ristretto"])
def test_sums_of_labels_stay_on_the_device_until_there_are_enough(name):
    zero_shot, streams, truth = a_fleet(np.random.default_rng(1))

    def upload(given, **privacy):
        client = PrivateClient(create(name, zero_shot), Privacy(**privacy), np.random.default_rng(0))
        for views in streams[0]:
            client.predict(views)
        for views, label in list(zip(streams[0], truth[0], strict=True))[:given]:
            client.correct(views, label)
        return client.summary()

    assert upload(2, least_images=3).labels is None
    assert upload(3, least_images=3).labels == 3
    assert upload(5, noise=0.3).labels is None
    assert upload(5, noise=0.3, labels=True).labels == 5
    if name == "latte":  # a sum of fewer embeddings of one class does not leave either
        counts = upload(5, least_images=3).label_counts
        assert ((counts == 0) | (counts >= 3)).all()
    hidden, without = upload(2, least_images=3), upload(0, least_images=3)
    for field in ("vectors", "seen") if name == "latte" else ("counts", "means"):
        np.testing.assert_array_equal(getattr(hidden, field), getattr(without, field))


@pytest.mark.parametrize("name", ["latte", "ristretto"])
def test_rights_to_teach(name):
    """Without the right, labels count for three, or a tenth of all; muted ones not at all."""
    zero_shot, streams, truth = a_fleet(np.random.default_rng(2))
    clients = [(f"client {i}", create(name, zero_shot)) for i in range(4)]
    for (_, method), stream in zip(clients, streams, strict=True):
        for views in stream:
            method.predict(views)
    exchange = create_exchange(name, zero_shot)
    sync(clients, exchange)
    plain = exchange.pull("client 0")
    for views, label in zip(streams[1], truth[1], strict=True):
        clients[1][1].correct(views, (label + 1) % 3)
    for _ in range(2):  # Latte counts images once the fleet has a label
        sync(clients, exchange)
    assert exchange.labels == {"client 1": 40}

    def added():
        got = exchange.pull("client 0")
        base = 0.0 if plain.weights is None else plain.weights
        return float(np.linalg.norm(got.weights - base)) if got.weights is not None else 0.0

    free = added()
    exchange.grant(TeachingRights(frozenset({"client 1"})))
    assert added() == free
    exchange.grant(TeachingRights(frozenset({"client 2"})))
    assert 0 < added() < free / 3
    exchange.grant(TeachingRights(None, frozenset({"client 1"})))
    assert added() == 0


@pytest.mark.parametrize("name", ["latte", "ristretto"])
def test_uploads_that_no_labels_can_have_given(name):
    zero_shot, streams, truth = a_fleet(np.random.default_rng(4))
    client, exchange = create(name, zero_shot), create_exchange(name, zero_shot)
    for views, label in list(zip(streams[0], truth[0], strict=True))[:6]:
        client.predict(views)
        client.correct(views, label)
    good = client.summary()
    exchange.push("ann", good)
    bad = {
        "longer": {"residual_sums": 1000 * good.residual_sums},
        "rows that do not cancel": {"residual_sums": good.residual_sums + 0.1},
        "counts that do not cancel": {"residual_counts": good.residual_counts + 0.1},
        "large counts": {"residual_counts": 1000 * good.residual_counts},
        "half a label": {"labels": np.array(5.5)},
        "no labels": {"labels": np.array(0.0)},
        "a part": {"labels": None},
        "NaN": {"residual_sums": good.residual_sums * np.nan},
    }
    if isinstance(good, Prototypes):
        bad["more per class"] = {"label_counts": good.label_counts + 1}
        bad["longer sums"] = {"label_sums": 20 * good.label_sums}
        bad["images without a number"] = {"image_sum": np.zeros(12)}
    for what, changes in bad.items():
        with pytest.raises(InputError):
            exchange.push("ann", replace(good, **changes))
            pytest.fail(what)


def test_a_client_all_of_whose_images_have_labels():
    zero_shot, streams, truth = a_fleet(np.random.default_rng(5))
    ann, bob = Ristretto(zero_shot), Ristretto(zero_shot)
    for views, label in list(zip(streams[0], truth[0], strict=True))[:3]:
        ann.correct(views, label, ann.predict(views).learnt)
    assert not ann.summary().empty and not ann.summary().counts.any()
    exchange = Ristretto.exchange_for(zero_shot)
    sync([("ann", ann)], exchange)
    assert not ann.head.weights.any(), "nobody has an image without a label"
    for views in streams[1]:
        bob.predict(views)
    sync([("ann", ann), ("bob", bob)], exchange)
    assert np.isfinite(ann.head.weights).all() and ann.head.weights.any()


def test_many_clients_are_taught_approximately_as_few():
    """The crowd's way gives nearly the heads of the exact one."""
    zero_shot, streams, truth = a_fleet(np.random.default_rng(6), n=12)
    exact = RistrettoExchange(zero_shot)
    crowd = RistrettoExchange(zero_shot, None, (), Freshness(exact=11, pushes=1, directions=12))
    for i, (stream, labels) in enumerate(zip(streams, truth, strict=True)):
        client = Ristretto(zero_shot)
        for k, (views, label) in enumerate(zip(stream, labels, strict=True)):
            client.predict(views)
            if i % 4 == 0 and k < 8:
                client.correct(views, label)
        for exchange in (exact, crowd):
            exchange.push(f"client {i}", client.summary())
    restored = RistrettoExchange(zero_shot, None, (), Freshness(exact=11, pushes=1, directions=12))
    crowd.pull("client 0")
    restored.load(crowd.state())
    for i in range(12):
        want, got = exact.pull(f"client {i}"), crowd.pull(f"client {i}")
        apart = np.linalg.norm(got.weights - want.weights) / np.linalg.norm(want.weights)
        assert apart < 0.15, apart
        np.testing.assert_array_equal(restored.pull(f"client {i}").weights, got.weights)
