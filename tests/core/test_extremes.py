"""Extreme parameters and scales: finite predictions, in the limit that the formulas have, or a refusal."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latte import External, Latte, ZeroShot, create
from latte.core.validate import LARGEST_FACTOR
from latte.methods import LatteParams
from latte.methods.dmn import DmnParams
from latte.methods.latte.readout import MergedMemory
from latte.methods.tda import SHARPEST, TdaParams

factors = st.one_of(st.just(0.0), st.floats(1e-6, LARGEST_FACTOR), st.sampled_from([1e-300, 720.0, 1e4, 1e6, 1e9]))
betas = st.one_of(st.just(0.0), st.floats(1e-6, SHARPEST), st.sampled_from([1e-300, 720.0, 1e4, SHARPEST]))  # of TDA
scales = st.floats(1 / LARGEST_FACTOR, LARGEST_FACTOR)
seeds = st.integers(0, 2**32 - 1)


def unit(rows):
    return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)


def a_zero_shot(rng, scale, classes=4, dim=6):
    return ZeroShot(unit(rng.normal(size=(classes, dim))), tuple(map(str, range(classes))), scale)


def images(rng, zero_shot, count):
    """Return (count, 1, D): some near a class, some opposite to others, some twice."""
    rows = zero_shot.text[rng.integers(zero_shot.classes, size=count)] + rng.normal(size=(count, zero_shot.dim))
    rows[1], rows[3] = -rows[0], rows[2]
    return unit(rows)[:, None]


def assert_finite(method, rng, zero_shot, count=12):
    for image in images(rng, zero_shot, count):
        p = method.predict(image)
        assert np.isfinite(p.scores).all() and 0 <= p.entropy <= 1 and p.label == p.scores.argmax()


@given(
    seeds, scales, factors, factors, factors, st.none() | factors,
    st.sampled_from(["paper", "released"]), st.sampled_from(["both", "local", "external"]),
    st.sampled_from(["exp_weighted", "mean", "min_entropy"]), st.sampled_from(["normalised", "nats"]),
)  # fmt: skip
def test_latte_stays_finite(seed, scale, alpha, beta, gamma, gamma_prototype, variant, memory, prototype, entropy):
    rng = np.random.default_rng(seed)
    zero_shot = a_zero_shot(rng, scale)
    p = LatteParams(
        variant, 3, 2, alpha, beta, gamma, gamma_prototype, prototype, memory, entropy=entropy, replace="lower"
    )
    clients, exchange = {name: Latte(zero_shot, p) for name in "abc"}, Latte.exchange_for(zero_shot, p, "abc")
    for _ in range(3):
        for name, client in clients.items():
            assert_finite(client, rng, zero_shot, count=4)  # few: some classes stay empty
            exchange.push(name, client.summary())
        for name, client in clients.items():
            client.receive(exchange.pull(name))


@given(seeds, scales, factors, betas, factors, betas)
def test_tda_stays_finite(seed, scale, alpha, beta, alpha_negative, beta_negative):
    rng = np.random.default_rng(seed)
    zero_shot = a_zero_shot(rng, scale)
    p = TdaParams(alpha=alpha, beta=beta, alpha_negative=alpha_negative, beta_negative=beta_negative)
    assert_finite(create("tda", zero_shot, p), rng, zero_shot)


@given(seeds, scales, factors, factors)
def test_dmn_stays_finite(seed, scale, beta, weight):
    rng = np.random.default_rng(seed)
    zero_shot = a_zero_shot(rng, scale)
    assert_finite(create("dmn", zero_shot, DmnParams(k=3, beta=beta, weight=weight)), rng, zero_shot)


@given(seeds, scales, st.sampled_from(["clip", "vte", "zero"]))
def test_the_others_stay_finite(seed, scale, name):
    rng = np.random.default_rng(seed)
    zero_shot = a_zero_shot(rng, scale)
    assert_finite(create(name, zero_shot), rng, zero_shot)


def test_a_large_gamma_reads_the_most_certain_item():
    """The limit of eq. 4 to 6: the weight of every other item vanishes."""
    rng = np.random.default_rng(0)
    memory, vectors, f = MergedMemory(2, 3, 8, 1e6), unit(rng.normal(size=(2, 3, 8))), unit(rng.normal(size=8))
    entropy = np.array([[0.9, 0.8, 0.95], [0.5, 0.4, 0.3]])
    memory.replace(vectors, entropy, np.ones((2, 3), bool))
    np.testing.assert_allclose(memory.cosines(f, beta=6.0), [vectors[0, 1] @ f, vectors[1, 2] @ f], atol=1e-6)


def test_a_large_beta_reads_the_most_similar_item():
    rng = np.random.default_rng(0)
    memory, vectors, f = MergedMemory(2, 3, 8, 1.0), unit(rng.normal(size=(2, 3, 8))), unit(rng.normal(size=8))
    memory.replace(vectors, rng.random((2, 3)), np.ones((2, 3), bool))
    np.testing.assert_allclose(memory.cosines(f, beta=1e6), (vectors @ f).max(axis=1), atol=1e-6)


def test_what_cancels_has_no_direction():
    """Two opposite vectors of equal weight: their sum is 0 up to rounding, which is not a direction."""
    f = np.array([0.6, 0.8, 0.0], np.float32)
    pair = np.array([[0.0, 0.0, 1.0], [0.0, 0.0, -1.0]], np.float32)
    memory = MergedMemory(2, 2, 3, 1.0)
    memory.replace(np.stack([pair, pair]), np.full((2, 2), 0.5), np.ones((2, 2), bool))
    assert memory.cosines(f, beta=6.0).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("value", [1e308, 1.1e9, float("inf"), float("nan"), -1.0, 10**400, "1", None, True])
def test_what_no_float32_can_carry_is_refused(value):
    zero_shot = a_zero_shot(np.random.default_rng(0), 100.0)
    for name, key in [("latte", "alpha"), ("latte", "beta"), ("latte", "gamma"), ("tda", "alpha"), ("dmn", "weight")]:
        with pytest.raises(ValueError, match=rf"^{key}: got .*, want a number from 0 to 1e\+09"):
            create(name, zero_shot, {key: value})
    with pytest.raises(ValueError, match=r"^scale: got .*, want a number from 1e-09 to 1e\+09"):
        ZeroShot(zero_shot.text, zero_shot.classnames, value)


def test_a_cosine_above_one_is_one():
    """Rounding can put the cosine of a vector with itself above 1; times a large beta, the weight overflowed."""
    zero_shot = ZeroShot(np.eye(3), ("a", "b", "c"))
    image = np.array([[0.6, 0.8, 0.0]], np.float32) * np.float32(1 + 4.9e-7)
    client = Latte(zero_shot, LatteParams(variant="released", beta=1e9, gamma=0.0))
    np.testing.assert_allclose(client.predict(image).scores, [60, 180, 0], atol=1e-3)


def test_the_layout_of_the_views_does_not_matter():
    rng = np.random.default_rng(0)
    zero_shot = a_zero_shot(rng, 20.0, dim=37)
    for image in unit(rng.normal(size=(20, 4, 37))) * np.float32(1.0003):
        for name in ("clip", "vte", "latte", "zero"):
            one = create(name, zero_shot).predict(image)
            other = create(name, zero_shot).predict(np.asfortranarray(image))
            assert np.array_equal(one.scores, other.scores)


def test_an_external_memory_has_a_largest_size():
    client = Latte(a_zero_shot(np.random.default_rng(0), 20.0), LatteParams(memory="external"))
    before = client.state()
    with pytest.raises(ValueError, match="slots: got 400000, want a whole number from 0 to 1000"):
        client.receive(External.empty(client.zero_shot, slots=400_000))
    assert all(np.array_equal(before[key], value) for key, value in client.state().items())
