"""Ristretto against recorded cases, against its formulas written once more, and the laws that follow from them."""

import copy
import importlib
import pickle
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latte import Clip, ZeroShot, create_exchange, sync
from latte.core.sync import is_due
from latte.methods import create
from latte.methods.ristretto import server as sums_store
from latte.methods.ristretto.client import BATCH, Ristretto, RistrettoParams
from latte.methods.ristretto.server import Freshness, RistrettoExchange
from latte.methods.ristretto.sums import ClassSums, Head
from slow_ristretto import SlowClient, slow_heads

CLOSE = 1e-9


def unit(rows):
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def a_task(rng, classes, dim, scale=100.0):
    text = unit(rng.normal(size=dim) + rng.normal(size=(classes, dim)))
    return ZeroShot(text, tuple(f"class {y}" for y in range(classes)), scale)


def some_images(rng, zero_shot, count, spread=0.8):
    labels = rng.integers(zero_shot.classes, size=count)
    noise = spread * unit(rng.normal(size=(count, zero_shot.dim)))
    return unit(zero_shot.precise_text[labels] + 0.3 * unit(rng.normal(size=zero_shot.dim)) + noise)


def uploads(rng, zero_shot, lengths, spread=0.8):
    """Return what clients with streams of these lengths upload before their first download."""
    result = []
    for length in lengths:
        client = Ristretto(zero_shot)
        client.predict_many(some_images(rng, zero_shot, length, spread))
        result.append(client.summary())
    return result


def filled(zero_shot, sums, params=None, names=None, freshness=None):
    exchange = RistrettoExchange(zero_shot, params, freshness=freshness)
    for name, one in zip(names or map(str, range(len(sums))), sums, strict=True):
        exchange.push(name, one)
    return exchange


def assert_close(got, want):
    size = max(1.0, np.abs(want).max())
    assert np.abs(got - want).max() <= CLOSE * size


# --- recorded cases -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", ["alone", "three_clients"])
def test_recorded_cases(shared, case):
    path = shared / "golden" / "ristretto" / f"{case}.npz"
    if not path.is_file():
        pytest.skip("needs golden/ristretto of the shared material")
    with np.load(path, allow_pickle=False) as file:
        replay({name: file[name] for name in file.files})


def replay(case):
    *constants, scale = case["params"].tolist()
    zero_shot = ZeroShot(case["text"], tuple(map(str, range(len(case["text"])))), scale)
    params = RistrettoParams(*constants)
    clients = [Ristretto(zero_shot, params) for _ in case["lens"]]
    exchange = Ristretto.exchange_for(zero_shot, params)
    syncs = {int(number): k for k, number in enumerate(case["sync_after"])}
    for t in range(max(case["lens"])):
        live = [i for i, length in enumerate(case["lens"]) if t < length]
        for i in live:
            assert_close(clients[i].predict(case[f"stream_{i}"][t]).scores, case[f"logits_{i}"][t])
        if t + 1 in syncs:
            recorded_sync(case, syncs[t + 1], {f"{i:06d}": clients[i] for i in live}, exchange)


def recorded_sync(case, k, clients, exchange):
    for name, client in clients.items():
        upload = client.summary()
        assert_close(upload.counts, case[f"up_count_{k}_{int(name)}"])
        assert_close(upload.means, case[f"up_mean_{k}_{int(name)}"])
    sync(clients.items(), exchange)
    for name, client in clients.items():
        assert_close(client.head.weights, case[f"down_head_{k}_{int(name)}"])
        assert_close(client.head.bias, case[f"down_bias_{k}_{int(name)}"])
        assert_close(client.head.trust, case[f"down_trust_{k}_{int(name)}"])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_recorded_case_of_an_open_task(shared, dtype):
    path = shared / "golden" / "ristretto-open" / "twelve_clients.npz"
    if not path.is_file():
        pytest.skip("needs golden/ristretto-open of the shared material")
    with np.load(path, allow_pickle=False) as file:
        case = {name: file[name] for name in file.files}
    streams, zero_shot = case["streams"].astype(dtype), ZeroShot(case["text"].astype(dtype), tuple("abcdefg"))
    clients = [create("ristretto", zero_shot, trust="open") for _ in streams]
    exchange = create_exchange("ristretto", zero_shot, trust="open")
    for t in range(streams.shape[1]):
        for client, stream, scores in zip(clients, streams, case["scores"], strict=True):
            assert_close(client.predict(stream[t]).scores, scores[t])
        if is_due("doubling", t + 1) and t + 1 < streams.shape[1]:
            sync([(f"{i:06d}", client) for i, client in enumerate(clients)], exchange)
    for client, *want in zip(clients, case["head"], case["bias"], case["trust"], strict=True):
        for got, expected in zip((client.head.weights, client.head.bias, client.head.trust), want, strict=True):
            assert_close(got, expected)


def goes_as_the_reference(shared, name, zero_shot, streams, **params):
    """Compare all scores of a federation with those of a slow version in the shared material; return the exchange."""
    path = shared / "spec" / f"{name}.py"
    if not path.is_file():
        pytest.skip(f"needs spec/{name}.py of the shared material")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(path.parent)
        module = importlib.import_module(name)
    plain, constants = [np.asarray(stream, np.float64) for stream in streams], module.Params(scale=zero_shot.scale)
    want = module.simulate(plain, zero_shot.precise_text, constants)[0]
    clients = [create("ristretto", zero_shot, **params) for _ in streams]
    exchange, longest = create_exchange("ristretto", zero_shot, **params), max(map(len, streams))
    for t in range(longest):
        live = [i for i, stream in enumerate(streams) if t < len(stream)]
        for i in live:
            assert_close(clients[i].predict(streams[i][t]).scores, want[i][t])
        if is_due("doubling", t + 1) and t + 1 < longest:
            sync([(f"{i:06d}", clients[i]) for i in live], exchange)
    return exchange


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("trust", "name"), [("fleet", "ristretto_reference"), ("open", "ristretto_open_reference")])
@pytest.mark.parametrize(("n", "classes", "seen"), [(1, 2, 2), (2, 2, 1), (5, 3, 1), (5, 7, 3), (9, 7, 7)])
def test_federations_with_missing_classes_go_as_the_references_say(shared, n, classes, seen, trust, name, dtype):
    """An open task finds directions of rounding errors there, so that the order of all operations counts."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        zero_shot = a_task(rng, classes, 16, scale=[100.0, 20.0][seed % 2])
        some = ZeroShot(zero_shot.precise_text[:seen].repeat(2, axis=0), tuple(map(str, range(2 * seen))))
        streams = [some_images(rng, some, rng.integers(1, 36)).astype(dtype) for _ in range(n)]
        goes_as_the_reference(shared, name, zero_shot, streams, trust=trust)


# --- the formulas -------------------------------------------------------------------------------------------

constants = st.builds(
    RistrettoParams,
    kappa=st.sampled_from([0.1, 1.0, 5.0]),
    rho=st.sampled_from([0.1, 1.0, 10.0]),
    eta=st.sampled_from([0.0, 1.0, 4.0]),
    nu=st.sampled_from([0.0, 5.0, 50.0]),
    routing=st.sampled_from(["evidence", "raw", "everyone", "alone"]),
)
lengths = st.lists(st.integers(1, 40), min_size=1, max_size=6)


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), lengths, st.integers(2, 6), st.integers(2, 16), constants)
def test_heads_are_those_of_the_formulas(seed, sizes, classes, dim, params):
    rng = np.random.default_rng(seed)
    zero_shot = a_task(rng, classes, dim)
    sums = uploads(rng, zero_shot, sizes)
    exchange = filled(zero_shot, sums, params)
    heads = exchange.pull_many([str(i) for i in range(len(sums))])
    counts, means = np.array([one.counts for one in sums]), np.array([one.means for one in sums])
    want = slow_heads(counts, means, zero_shot.precise_text, zero_shot.scale, params)
    for i, head in enumerate(heads):
        for got, expected in zip((head.weights, head.bias, head.trust), want, strict=True):
            assert_close(got, expected[i])


@settings(max_examples=15)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.lists(st.integers(1, 90), min_size=1, max_size=4))
def test_a_federation_goes_as_the_formulas_say(seed, n, stretches):
    rng = np.random.default_rng(seed)
    zero_shot, params = a_task(rng, 4, 9), RistrettoParams()
    clients, exchange = [Ristretto(zero_shot) for _ in range(n)], Ristretto.exchange_for(zero_shot)
    slow = [SlowClient(zero_shot.precise_text, zero_shot.scale) for _ in range(n)]
    for stretch in stretches:
        for client, other in zip(clients, slow, strict=True):
            for image in some_images(rng, zero_shot, stretch):
                assert_close(client.predict(image).scores, other.predict(image))
        sync(enumerated(clients), exchange)
        sums = [np.array(part) for part in zip(*(one.upload() for one in slow), strict=True)]
        heads = slow_heads(*sums, zero_shot.precise_text, zero_shot.scale, params)
        for one, *head in zip(slow, *heads, strict=True):
            one.A, one.b, one.w = head


open_constants = st.builds(
    RistrettoParams,
    rho=st.sampled_from([0.1, 1.0, 10.0]),
    eta=st.sampled_from([1.0, 4.0]),
    count_cap=st.sampled_from([None, 2.0]),
    trust=st.just("open"),
)


@settings(max_examples=25)
@given(
    st.integers(0, 2**32 - 1),
    st.lists(st.integers(12, 60), min_size=2, max_size=6),  # enough that all directions of the span mean something
    st.integers(2, 6),
    st.integers(6, 16),
    open_constants,
)
def test_heads_of_an_open_task_are_those_of_the_formulas(seed, sizes, classes, dim, params):
    rng = np.random.default_rng(seed)
    zero_shot = a_task(rng, classes, dim, scale=20.0)
    sums = uploads(rng, zero_shot, sizes)
    heads = filled(zero_shot, sums, params).pull_many([str(i) for i in range(len(sums))])
    counts, means = np.array([one.counts for one in sums]), np.array([one.means for one in sums])
    if params.count_cap:
        totals = counts.sum(axis=1, keepdims=True)
        counts = counts * np.minimum(1, params.count_cap * np.median(totals) / totals)
    want = slow_heads(counts, means, zero_shot.precise_text, zero_shot.scale, params)
    for i, head in enumerate(heads):
        for got, expected in zip((head.weights, head.bias, head.trust), want, strict=True):
            assert np.abs(got - expected[i]).max() <= 1e-7 * max(1.0, np.abs(expected[i]).max())


@settings(max_examples=10)
@given(st.integers(0, 2**32 - 1), st.integers(2, 4), st.lists(st.integers(12, 70), min_size=1, max_size=3))
def test_an_open_federation_goes_as_the_formulas_say(seed, n, stretches):
    rng = np.random.default_rng(seed)
    zero_shot, params = a_task(rng, 4, 9, scale=20.0), RistrettoParams(trust="open")
    clients, exchange = [Ristretto(zero_shot, params) for _ in range(n)], Ristretto.exchange_for(zero_shot, params)
    slow = [SlowClient(zero_shot.precise_text, zero_shot.scale, "open") for _ in range(n)]
    for stretch in stretches:
        for client, other in zip(clients, slow, strict=True):
            for image in some_images(rng, zero_shot, stretch):
                got, want = client.predict(image).scores, other.predict(image)
                assert np.abs(got - want).max() <= 1e-7 * max(1.0, np.abs(want).max())
        sync(enumerated(clients), exchange)
        sums = [np.array(part) for part in zip(*(one.upload() for one in slow), strict=True)]
        heads = slow_heads(*sums, zero_shot.precise_text, zero_shot.scale, params)
        for one, *head in zip(slow, *heads, strict=True):
            one.A, one.b, one.w = head


def enumerated(clients):
    return [(str(i), client) for i, client in enumerate(clients)]


# --- laws -----------------------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.integers(2, 8), st.integers(2, 20))
def test_without_evidence_the_answer_is_that_of_zero_shot(seed, classes, dim):
    rng = np.random.default_rng(seed)
    zero_shot = a_task(rng, classes, dim)
    client, clip = Ristretto(zero_shot), Clip(zero_shot)
    for image in some_images(rng, zero_shot, 5).astype(np.float32):
        got, want = client.predict(image), clip.predict(image)
        assert np.allclose(got.scores, want.scores, atol=1e-4) and abs(got.entropy - want.entropy) < 1e-4
        assert got.temperature == 1.0


def test_a_weight_of_zero_is_zero_shot():
    rng = np.random.default_rng(0)
    zero_shot = a_task(rng, 5, 12)
    client = Ristretto(zero_shot, eta=0.0)
    client.predict_many(some_images(rng, zero_shot, 20))
    sync([("a", client)], Ristretto.exchange_for(zero_shot, client.params))
    assert not client.head.weights.any() and not client.head.bias.any() and client.head.trust > 0


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.lists(st.integers(1, 30), min_size=2, max_size=6))
def test_names_and_their_order_do_not_matter(seed, sizes):
    rng = np.random.default_rng(seed)
    zero_shot = a_task(rng, 4, 10)
    sums = uploads(rng, zero_shot, sizes)
    order = rng.permutation(len(sums))
    plain = filled(zero_shot, sums)
    other = filled(zero_shot, [sums[i] for i in order], names=[f"{len(sums) - i} x" for i in order])
    for i in range(len(sums)):
        one, two = plain.pull(str(i)), other.pull(f"{len(sums) - i} x")
        for field in ("weights", "bias", "trust"):
            assert np.array_equal(getattr(one, field), getattr(two, field))


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.lists(st.integers(1, 30), min_size=1, max_size=4))
def test_the_order_of_the_classes_does_not_matter(seed, sizes):
    rng = np.random.default_rng(seed)
    zero_shot = a_task(rng, 5, 10)
    order = rng.permutation(5)
    turned = ZeroShot(zero_shot.precise_text[order], tuple(np.array(zero_shot.classnames)[order]), zero_shot.scale)
    sums = uploads(rng, zero_shot, sizes)
    other = [ClassSums(one.counts[order], one.means[order], turned.fingerprint) for one in sums]
    plain, changed = filled(zero_shot, sums), filled(turned, other)
    for name in plain.clients:
        one, two = plain.pull(name), changed.pull(name)
        assert_close(two.weights, one.weights[order])
        assert_close(two.bias, one.bias[order])
        assert_close(two.trust, one.trust)


def test_a_client_that_is_far_away_counts_for_little():
    rng = np.random.default_rng(3)
    zero_shot = a_task(rng, 4, 32)
    images = some_images(rng, zero_shot, 1200, 0.3)
    far = unit(images[800:] - 3 * unit(rng.normal(size=32)))
    members = [Ristretto(zero_shot) for _ in range(3)]
    for client, stream in zip(members, (images[:400], images[400:800], far), strict=True):
        client.predict_many(stream)
    exchange = filled(zero_shot, [client.summary() for client in members])
    _, routes = exchange.pull_traced(["0"])
    assert exchange.clients == ("0", "1", "2")
    assert routes[0, 0] == 1.0 and routes[0, 1] > 0.5 and routes[0, 2] < 0.05


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_twins_have_one_head(seed, copies):
    rng = np.random.default_rng(seed)
    zero_shot = a_task(rng, 3, 8)
    (sums,) = uploads(rng, zero_shot, [12])
    exchange = filled(zero_shot, [sums] * (copies + 1))
    heads, routes = exchange.pull_traced([str(i) for i in range(copies + 1)])
    assert np.allclose(routes, 1.0)
    assert all(np.allclose(head.weights, heads[0].weights, atol=1e-9) for head in heads)
    total = (copies + 1) * 12
    assert abs(float(heads[0].trust) - total / (total + 50 * 3)) < 1e-9


def test_probabilities_spread_no_more_than_zero_shot_does():
    rng = np.random.default_rng(0)
    zero_shot = a_task(rng, 5, 24)
    client, exchange = Ristretto(zero_shot), Ristretto.exchange_for(zero_shot)
    for image in some_images(rng, zero_shot, 300):
        client.predict(image)
    sync([("a", client)], exchange)
    prediction = client.predict(some_images(rng, zero_shot, 1)[0])
    assert prediction.temperature == 1 + 4 * float(client.head.trust) > 2
    assert int(prediction.probabilities.argmax()) == prediction.label


# --- the client -----------------------------------------------------------------------------------------------


def test_what_comes_as_float64_is_not_rounded():
    rng = np.random.default_rng(0)
    zero_shot = a_task(rng, 3, 16)
    image = some_images(rng, zero_shot, 1)[0]
    exact, rounded = (Ristretto(zero_shot).predict(one).scores for one in (image, image.astype(np.float32)))
    assert np.abs(exact - 100 * zero_shot.precise_text @ image).max() < 1e-12
    assert 0 < np.abs(exact - rounded).max() < 1e-4


def test_a_classifier_has_its_texts_as_they_came():
    text = unit(np.random.default_rng(0).normal(size=(3, 16)))
    for zero_shot in (one := ZeroShot(text, tuple("abc")), pickle.loads(pickle.dumps(one))):
        assert np.array_equal(zero_shot.precise_text, text) and not zero_shot.precise_text.flags.writeable
        assert zero_shot.text.dtype == np.float32 and zero_shot.fingerprint == one.fingerprint
    narrow = ZeroShot(text.astype(np.float32), tuple("abc"))
    assert np.array_equal(narrow.precise_text, narrow.text) and narrow.fingerprint == one.fingerprint
    long = ZeroShot(1.0005 * text, tuple("abc")).precise_text
    assert np.abs(np.linalg.norm(long, axis=1) - 1).max() < 1e-15


@pytest.mark.parametrize("count", [0, 1, BATCH - 1, BATCH, BATCH + 1, 3 * BATCH + 5])
def test_a_state_taken_at_any_moment_goes_on_bit_for_bit(count):
    rng = np.random.default_rng(count)
    zero_shot = a_task(rng, 4, 10)
    images = some_images(rng, zero_shot, 2 * count + 70)
    plain, restored, exchange = Ristretto(zero_shot), Ristretto(zero_shot), Ristretto.exchange_for(zero_shot)
    plain.predict_many(images[:50])
    sync([("a", plain)], exchange)
    for image in images[50 : 50 + count]:
        plain.predict(image)
    untouched = copy.deepcopy(plain)
    restored.load(plain.state())
    for image in images[50 + count :]:
        scores = [client.predict(image).scores for client in (plain, restored, untouched)]
        assert np.array_equal(scores[0], scores[1]) and np.array_equal(scores[0], scores[2])
    for one in (restored, untouched):
        assert np.array_equal(one.summary().means, plain.summary().means)


def test_a_summary_changes_nothing():
    rng = np.random.default_rng(0)
    zero_shot = a_task(rng, 4, 10)
    client = Ristretto(zero_shot)
    client.predict_many(some_images(rng, zero_shot, BATCH + 3))
    before = client.state()
    client.summary()
    assert all(np.array_equal(before[name], array) for name, array in client.state().items())


def test_bad_constants_are_refused():
    for change in ({"kappa": 0.0}, {"rho": 0.0}, {"eta": -1.0}, {"nu": float("nan")}, {"kappa": "1"}, {"eta": 1e10}):
        with pytest.raises(ValueError, match=next(iter(change))):
            RistrettoParams(**change)


def test_bad_heads_are_refused():
    zero_shot = a_task(np.random.default_rng(0), 3, 4)
    client = Ristretto(zero_shot)
    good = client.head
    for change in ({"trust": np.array(1.5)}, {"trust": np.array(-0.1)}, {"weights": np.full((3, 4), 1e101)}):
        with pytest.raises(ValueError, match=next(iter(change))):
            client.receive(replace(good, **change))


# --- the exchange -----------------------------------------------------------------------------------------------


def test_uploads_that_no_client_can_have_made_are_refused():
    rng = np.random.default_rng(0)
    zero_shot = a_task(rng, 3, 8)
    (good,) = uploads(rng, zero_shot, [10])
    exchange = filled(zero_shot, [good])
    bad = {
        "negative": replace(good, counts=good.counts * [1, 1, -1]),
        "images": replace(good, counts=good.counts * 1e300),
        "length": replace(good, means=good.means * 3),
        "shape": replace(good, means=good.means[:, 1:]),
        "NaN": replace(good, counts=good.counts * np.nan),
        "0 images": Ristretto(zero_shot).summary(),
        "an array": replace(good, counts=good.counts.tolist()),
    }
    for what, upload in bad.items():
        with pytest.raises(ValueError, match=what):
            exchange.push("b", upload)
    assert exchange.clients == ("0",)


def test_a_client_without_images_is_left_out_of_a_sync():
    rng = np.random.default_rng(0)
    zero_shot = a_task(rng, 3, 8)
    members = [Ristretto(zero_shot) for _ in range(2)]
    members[0].predict_many(some_images(rng, zero_shot, 5))
    exchange = Ristretto.exchange_for(zero_shot)
    assert members[1].summary().empty and not members[0].summary().empty
    sync(enumerated(members), exchange)
    assert exchange.clients == ("0",) and members[0].head.trust > 0 and members[1].head.trust == 0


def test_a_client_can_leave():
    rng = np.random.default_rng(0)
    zero_shot = a_task(rng, 3, 8)
    sums = uploads(rng, zero_shot, [10, 20, 30])
    exchange = filled(zero_shot, sums)
    exchange.forget("0")
    assert exchange.clients == ("2", "1")
    rest = filled(zero_shot, sums[1:], names=["1", "2"])
    assert np.array_equal(exchange.pull("2").weights, rest.pull("2").weights)
    for call in (exchange.pull, exchange.forget):
        with pytest.raises(ValueError, match="'0'"):
            call("0")


# --- more clients than the covariance is calculated from ----------------------------------------------------------


def crowd(seed=0, n=30, exact=6, pushes=10):
    rng = np.random.default_rng(seed)
    zero_shot = a_task(rng, 4, 12)
    sums = uploads(rng, zero_shot, rng.integers(1, 60, n).tolist())
    return filled(zero_shot, sums, freshness=Freshness(exact, pushes)), filled(zero_shot, sums), sums


def test_in_a_crowd_a_head_is_about_that_of_everyone():
    some, everyone, sums = crowd(exact=20)
    names = [str(i) for i in range(len(sums))]
    heads, routes = some.pull_traced(names)
    exact, all_routes = everyone.pull_traced(names)
    assert np.abs(routes - all_routes).max() < 1e-4  # single precision
    for got, want in zip(heads, exact, strict=True):
        cosine = (got.weights * want.weights).sum() / np.sqrt((got.weights**2).sum() * (want.weights**2).sum())
        assert cosine > 0.97 and abs(got.trust - want.trust) < 1e-5


@pytest.mark.parametrize("routing", ["raw", "everyone", "alone"])
def test_in_a_crowd_other_routes_are_those_of_a_small_one(routing):
    rng = np.random.default_rng(4)
    zero_shot = a_task(rng, 3, 8)
    sums, params = uploads(rng, zero_shot, range(1, 12)), RistrettoParams(routing=routing)
    names = [str(i) for i in range(len(sums))]
    routes = [filled(zero_shot, sums, params, freshness=f).pull_traced(names)[1] for f in (None, Freshness(4, 4))]
    np.testing.assert_allclose(routes[1], routes[0], atol=1e-4)  # the means of a crowd are in single precision


def test_in_a_crowd_many_pulls_are_as_many_pulls_up_to_rounding():
    some, _, sums = crowd()
    names = [str(i) for i in range(len(sums))]
    for name, got in zip(names, some.pull_many(names), strict=True):
        want = some.pull(name)
        assert np.allclose(got.weights, want.weights, atol=1e-3) and np.allclose(got.bias, want.bias, atol=1e-3)
    assert some.pull_many([]) == []


def test_in_a_crowd_the_covariance_is_used_for_some_uploads():
    some, _, sums = crowd(pushes=3)
    some.pull("0")
    seen = [some.state()["covariance"]]
    for i in range(7):
        some.push(str(i), sums[-i - 1])
        some.pull("0")
        seen.append(some.state()["covariance"])
    changes = [not np.array_equal(one, other) for one, other in pairwise(seen)]
    assert changes == [False, False, True, False, False, True, False]


def test_in_a_crowd_a_restart_goes_on_bit_for_bit():
    some, _, sums = crowd()
    some.pull("0")
    restored = RistrettoExchange(some.zero_shot, freshness=some.freshness)
    restored.load(some.state())
    for i in range(25):
        for exchange in (some, restored):
            exchange.push(str(i), sums[-1 - i % 30])
        one, other = some.pull("3"), restored.pull("3")
        assert np.array_equal(one.weights, other.weights) and np.array_equal(one.bias, other.bias)
    for name in [str(i) for i in range(26)]:  # and when so many leave that everyone is solved for again
        for exchange in (some, restored):
            exchange.forget(name)
    assert np.array_equal(some.pull("28").weights, restored.pull("28").weights)


def test_a_bad_covariance_is_refused():
    some, _, _ = crowd()
    some.pull("0")
    state = some.state()
    for bad in (state["covariance"] * np.nan, state["covariance"] + np.triu(np.ones((12, 12)))):
        with pytest.raises(ValueError, match="covariance"):
            some.load({**state, "covariance": bad})


def test_in_a_crowd_distances_along_directions_are_about_those_of_everyone():
    rng = np.random.default_rng(1)
    zero_shot = a_task(rng, 6, 256)
    sums = uploads(rng, zero_shot, [200] * 12, 0.4)
    names = [str(i) for i in range(len(sums))]
    _, exact = filled(zero_shot, sums).pull_traced(names)
    errors = {}
    for directions in (16, 64, 256):
        some = filled(zero_shot, sums, freshness=Freshness(4, 4, directions))
        errors[directions] = np.abs(some.pull_traced(names)[1] - exact).mean()
    assert errors[256] < 1e-4 < errors[64] < errors[16] < 0.2  # 256 are all dimensions


def test_in_a_crowd_a_secret_decides_the_directions():
    rng = np.random.default_rng(1)
    zero_shot = a_task(rng, 3, 100)
    sums = uploads(rng, zero_shot, [30] * 6)
    routes = [
        filled(zero_shot, sums, freshness=Freshness(2, 2, 10, secret)).pull_traced(["0"])[1] for secret in (5, 5, 6)
    ]
    assert np.array_equal(routes[0], routes[1]) and not np.allclose(routes[0], routes[2])


# --- a cap on what clients claim ------------------------------------------------------------------------------


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.sampled_from([None, Freshness(2, 2)]), st.integers(0, 4))
def test_with_a_cap_a_client_counts_for_no_more_than_that_many_images(seed, freshness, liar):
    rng = np.random.default_rng(seed)
    zero_shot = a_task(rng, 4, 10)
    sums = uploads(rng, zero_shot, [20, 20, 20, 20, 20])
    lying, held = list(sums), list(sums)
    lying[liar] = replace(sums[liar], counts=1000 * sums[liar].counts)
    held[liar] = replace(sums[liar], counts=3 * sums[liar].counts)
    capped = filled(zero_shot, lying, RistrettoParams(count_cap=3.0), freshness=freshness)
    honest = filled(zero_shot, held, freshness=freshness)
    close = {"rtol": 1e-6, "atol": 1e-6} if freshness is None else {"rtol": 0.02, "atol": 0.02}  # single precision
    for name in capped.clients:
        one, two = capped.pull(name), honest.pull(name)
        np.testing.assert_allclose(
            one.weights / np.abs(two.weights).max(), two.weights / np.abs(two.weights).max(), **close
        )
        np.testing.assert_allclose(one.trust, two.trust, **close)


def test_a_cap_that_nobody_reaches_changes_nothing():
    rng = np.random.default_rng(0)
    zero_shot = a_task(rng, 4, 10)
    sums = uploads(rng, zero_shot, [20, 30, 10, 40])
    plain, capped = filled(zero_shot, sums), filled(zero_shot, sums, RistrettoParams(count_cap=2.0))
    for name in plain.clients:
        assert np.array_equal(plain.pull(name).weights, capped.pull(name).weights)


@pytest.mark.parametrize("cap", [0.5, 0.0, float("nan"), "2", True])
def test_a_bad_cap_is_refused(cap):
    with pytest.raises(ValueError, match="count_cap"):
        RistrettoParams(count_cap=cap)


# --- clients that are not all trusted -------------------------------------------------------------------------


def test_nobody_can_change_what_an_open_client_uploads_nor_make_it_answer_nonsense():
    rng = np.random.default_rng(0)
    zero_shot = a_task(rng, 5, 12, scale=30.0)
    worst = Head(1e4 * rng.normal(size=(5, 12)), 1e4 * rng.normal(size=5), np.array(1.0), zero_shot.fingerprint)
    plain, poisoned = (Ristretto(zero_shot, trust="open") for _ in range(2))
    poisoned.receive(worst)
    answers = set()
    for image in some_images(rng, zero_shot, 60, spread=1.5):
        logits, prediction = plain.predict(image).scores, poisoned.predict(image)
        assert logits[prediction.label] >= logits.max() - 2
        assert prediction.label == int(prediction.scores.argmax()) == int(prediction.probabilities.argmax())
        answers.add(prediction.label == int(logits.argmax()))
    assert answers == {True, False}  # a head still decides where zero-shot does not
    assert np.array_equal(plain.summary().means, poisoned.summary().means)
    assert np.array_equal(plain.summary().counts, poisoned.summary().counts)


def test_in_an_open_task_no_donor_counts_for_more_images_than_the_receiver_has():
    rng = np.random.default_rng(0)
    zero_shot = a_task(rng, 4, 10)
    sums = uploads(rng, zero_shot, [20, 30, 40, 50])
    sums[3] = replace(sums[2], counts=1e9 * sums[2].counts)  # the same means, and a lie about counts
    exchange = filled(zero_shot, sums, RistrettoParams(trust="open"))
    _, routes = exchange.pull_traced(["0", "1", "2"])
    images = np.array([one.counts.sum() for one in sums])
    assert (routes * images <= images[:3, None] * (1 + 1e-9)).all()
    assert routes[2, 3] > 0


@pytest.mark.parametrize("count_cap", [None, 2.0])
def test_in_a_crowd_an_open_task_has_the_routes_of_a_small_one(count_cap):
    rng = np.random.default_rng(2)
    zero_shot, params = a_task(rng, 4, 12), RistrettoParams(trust="open", count_cap=count_cap)
    sums = uploads(rng, zero_shot, rng.integers(10, 60, 30).tolist())
    names = [str(i) for i in range(30)]
    exact, everyone = filled(zero_shot, sums, params), filled(zero_shot, sums, params, freshness=Freshness(29, 30))
    heads, routes = everyone.pull_traced(names)
    want, all_routes = exact.pull_traced(names)
    assert np.abs(routes - all_routes).max() < 0.05 and np.corrcoef(routes.ravel(), all_routes.ravel())[0, 1] > 0.99
    for got, head in zip(heads, want, strict=True):
        cosine = (got.weights * head.weights).sum() / np.sqrt((got.weights**2).sum() * (head.weights**2).sum())
        assert cosine > 0.97


def test_in_a_crowd_an_open_task_goes_on_bit_for_bit_after_a_restart():
    rng = np.random.default_rng(3)
    zero_shot, params = a_task(rng, 4, 12), RistrettoParams(trust="open")
    sums = uploads(rng, zero_shot, rng.integers(10, 60, 30).tolist())
    some = filled(zero_shot, sums, params, freshness=Freshness(6, 10))
    some.pull("0")
    restored = RistrettoExchange(zero_shot, params, freshness=some.freshness)
    restored.load(some.state())
    for i in range(25):
        for exchange in (some, restored):
            exchange.push(str(i), sums[-1 - i])
        one, other = some.pull("3"), restored.pull("3")
        assert np.array_equal(one.weights, other.weights) and np.array_equal(one.bias, other.bias)
    state = some.state()
    with pytest.raises(ValueError, match="span"):
        some.load({**state, "span": np.full_like(state["span"], np.nan)})


def test_who_leaves_and_comes_back_to_a_crowd_meets_a_new_span():
    rng = np.random.default_rng(3)
    zero_shot, params = a_task(rng, 4, 12), RistrettoParams(trust="open")
    sums = uploads(rng, zero_shot, [20] * 8)
    some = filled(zero_shot, sums, params, freshness=Freshness(7, 1000))
    some.pull("1")
    some.forget("7")  # everyone fits into the exact form again
    some.push("7", sums[7])
    fresh = filled(zero_shot, sums, params, freshness=Freshness(7, 1000))
    want = fresh.pull("1")
    assert np.allclose(some.pull("1").weights, want.weights, rtol=1e-3, atol=1e-3 * np.abs(want.weights).max())


@pytest.mark.parametrize(
    "change",
    [{"trust": "closed"}, {"trust": True}, {"trust": "open", "routing": "everyone"}, {"approximation": "on"}],
)
def test_bad_words_are_refused(change):
    with pytest.raises(ValueError, match=r"trust|routing|approximation"):
        RistrettoParams(**change)


# --- how many clients are answered exactly --------------------------------------------------------------------


def test_a_run_of_320_clients_is_the_reference(shared):
    rng = np.random.default_rng(0)
    zero_shot = a_task(rng, 3, 16)
    streams = [some_images(rng, zero_shot, 5) for _ in range(320)]
    exchange = goes_as_the_reference(shared, "ristretto_reference", zero_shot, streams)
    assert exchange.approximation == ""


def test_the_approximation_can_be_turned_off_and_says_that_it_was_used(monkeypatch):
    monkeypatch.setattr(sums_store, "EXACT_TOGETHER", 5)
    monkeypatch.setattr(sums_store, "EXACT_ALONE", 3)
    rng = np.random.default_rng(0)
    zero_shot = a_task(rng, 3, 100)
    sums = uploads(rng, zero_shot, [20] * 6)
    few, many = (filled(zero_shot, sums[:n]) for n in (5, 6))
    off = filled(zero_shot, sums, RistrettoParams(approximation="off"))
    served = RistrettoExchange(zero_shot)
    served.use_secret(1, served=True)
    for i in range(4):
        served.push(str(i), sums[i])
    assert many.approximation == ""  # nobody has pulled yet
    for exchange in (few, many, off, served):
        exchange.pull("0")
    assert few.approximation == off.approximation == ""
    assert "more than 5 clients" in many.approximation and "48 random directions" in many.approximation
    assert "more than 3 clients" in served.approximation
