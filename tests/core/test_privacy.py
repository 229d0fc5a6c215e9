"""Privacy at the client: classes with few images stay away, noise has the epsilon that is printed."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latte import Latte, Privacy, PrivateClient, ZeroShot, create_exchange
from latte.core.privacy import epsilon, without_noise
from latte.errors import InputError
from latte.methods.ristretto.client import Ristretto


def unit(rows):
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def task(rng, classes=4, dim=16):
    return ZeroShot(unit(rng.normal(size=(classes, dim))).astype(np.float32), [f"class {y}" for y in range(classes)])


def stream(rng, zero_shot, count):
    labels = rng.integers(0, zero_shot.classes, count)
    return unit(zero_shot.text[labels] + 0.3 * rng.normal(size=(count, zero_shot.dim))).astype(np.float32)


def test_classes_with_few_images_stay_on_the_device():
    rng = np.random.default_rng(0)
    zero_shot = task(rng)
    for kind in (Latte, Ristretto):
        client = PrivateClient(kind(zero_shot), Privacy(least_images=3))
        plain = kind(zero_shot)
        for image in stream(rng, zero_shot, 12):
            assert client.predict(image).label == plain.predict(image).label
        upload, all_of_it = client.summary(), plain.summary()
        if kind is Latte:
            shared = plain.local.valid.sum(axis=1) >= 3
            np.testing.assert_array_equal(upload.seen, shared)
            np.testing.assert_array_equal(upload.vectors[shared], all_of_it.vectors[shared])
            assert not upload.vectors[~shared].any()
        else:
            shared = all_of_it.counts >= 3
            np.testing.assert_array_equal(upload.counts, np.where(shared, all_of_it.counts, 0))
            np.testing.assert_array_equal(upload.means[shared], all_of_it.means[shared])
            assert not upload.means[~shared].any()


@pytest.mark.parametrize("kind", [Latte, Ristretto])
@pytest.mark.parametrize("noise", [0.1, 1.0, 20.0])
def test_an_exchange_accepts_noise_of_any_length(kind, noise):
    rng = np.random.default_rng(1)
    zero_shot = task(rng)
    exchange = create_exchange(kind.__name__.lower(), zero_shot)
    client = PrivateClient(kind(zero_shot), Privacy(2, noise), rng)
    for image in stream(rng, zero_shot, 40):
        client.predict(image)
    for _ in range(20):
        upload = client.summary()
        if not getattr(upload, "empty", False):
            exchange.push("a", upload)
            client.receive(exchange.pull("a"))


# --- one image moves no more than the sensitivity -----------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(3, 40), st.floats(0, 8), st.sampled_from(["exp_weighted", "mean"]))
def test_one_image_moves_the_means_of_latte_by_no_more_than_is_stated(seed, count, gamma, kind):
    rng = np.random.default_rng(seed)
    zero_shot = task(rng)
    images = stream(rng, zero_shot, count)
    other = images.copy()
    other[rng.integers(count)] = stream(rng, zero_shot, 1)[0]
    clients = [Latte(zero_shot, gamma=gamma, prototype=kind, k_l=4) for _ in range(2)]
    for client, rows in zip(clients, (images, other), strict=True):
        client.predict_many(rows)
    counts = [client.local.valid.sum(axis=1) for client in clients]
    least = max(1, int(np.min([c[c > 0].min() for c in counts])))
    means = [c.local.means(kind, c.params.prototype_rate(4)) for c in clients]
    both = (counts[0] >= least) & (counts[1] >= least)
    moved = np.linalg.norm((means[0] - means[1])[both])
    assert moved <= clients[0].sensitivity(Privacy(least)) + 1e-5


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 100))
def test_one_image_moves_the_sums_of_ristretto_by_no_more_than_is_stated(seed, count):
    rng = np.random.default_rng(seed)
    zero_shot = task(rng)
    images = stream(rng, zero_shot, count)
    other = images.copy()
    other[rng.integers(count)] = -images[0]  # as far away as can be
    sums = []
    for rows in (images, other):
        client = Ristretto(zero_shot)
        client.predict_many(rows)
        upload = client.summary()
        sums.append(np.column_stack([upload.counts[:, None] * upload.means, upload.counts]))
    assert np.linalg.norm(sums[0] - sums[1]) <= Ristretto(zero_shot).sensitivity(Privacy()) + 1e-6  # float32


def test_the_bound_of_ristretto_is_reached():
    zero_shot = ZeroShot(np.eye(2), ("cat", "dog"))
    cat, dog = Ristretto(zero_shot), Ristretto(zero_shot)
    cat.predict([1.0, 0.0])
    dog.predict([0.0, 1.0])
    moved = [np.column_stack([u.counts[:, None] * u.means, u.counts]) for u in (cat.summary(), dog.summary())]
    assert np.linalg.norm(moved[0] - moved[1]) == pytest.approx(2.0, abs=1e-3)


# --- epsilon ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ratio", [0.1, 1.0, 3.0, 30.0])
def test_epsilon_against_an_integral(ratio):
    """The privacy loss of two normal distributions, ``ratio`` apart, integrated by hand."""
    value = epsilon(ratio, 1.0, delta=1e-3)
    x = np.linspace(-12, ratio + 12, 2_000_001)
    p, q = (np.exp(-((x - m) ** 2) / 2) / math.sqrt(2 * math.pi) for m in (ratio, 0.0))
    with np.errstate(over="ignore"):
        scaled = np.exp(np.minimum(value - x**2 / 2, 700)) / math.sqrt(2 * math.pi)  # exp(value) q, without overflow
    assert np.maximum(p - scaled, 0).sum() * (x[1] - x[0]) == pytest.approx(1e-3, rel=1e-3)
    assert (q >= 0).all()


def test_epsilon_grows_with_uploads_and_shrinks_with_noise():
    assert epsilon(1, 0.0) == math.inf
    values = [epsilon(1, 0.5, n) for n in (1, 4, 100)]
    assert values == sorted(values)
    assert epsilon(1, 0.5, 4) == pytest.approx(epsilon(2, 0.5))
    assert epsilon(1, 1.0) < epsilon(1, 0.5) < epsilon(1, 1e-4)


def test_the_line_for_people_has_both_numbers():
    rng = np.random.default_rng(0)
    zero_shot = task(rng)
    client = PrivateClient(Latte(zero_shot), Privacy(4, 2.0))
    assert f"epsilon {client.epsilon(16):.3g} for one upload" in client.guarantee(16)
    assert "no epsilon" in PrivateClient(Latte(zero_shot), Privacy(4)).guarantee(16)


def test_what_has_no_sensitivity_is_refused():
    zero_shot = task(np.random.default_rng(0))
    for method in (Latte(zero_shot, near_copy=0.99), Ristretto(zero_shot, near_copy=0.99)):
        PrivateClient(method, Privacy(least_images=3))
        with pytest.raises(ValueError, match="near_copy=0"):
            PrivateClient(method, Privacy(noise=1.0))
    with pytest.raises(ValueError, match="replace='lower'"):
        PrivateClient(Latte(zero_shot, replace="always"), Privacy(noise=1.0))
    with pytest.raises(ValueError, match="private_summary"):
        PrivateClient(object(), Privacy())


# --- noise cannot be averaged away ----------------------------------------------------------------------------


def rows_of(upload):
    return upload.vectors if hasattr(upload, "vectors") else np.column_stack([upload.counts, upload.means])


@pytest.mark.parametrize("kind", [Latte, Ristretto])
def test_a_class_that_did_not_change_is_sent_with_the_same_noise(kind):
    """Two hundred uploads, while pictures of other classes come, tell no more of a class than one."""
    rng = np.random.default_rng(0)
    zero_shot = task(rng, dim=64)
    client = PrivateClient(kind(zero_shot), Privacy(noise=1.0), np.random.default_rng(1))
    for image in unit(zero_shot.text[0] + 0.1 * rng.normal(size=(12, 64))).astype(np.float32):
        client.predict(image)
    exact = rows_of(client.method.summary())[0]
    first, sent = rows_of(client.summary())[0], []
    for _ in range(200):
        client.predict(unit(zero_shot.text[rng.integers(1, 4)] + 0.1 * rng.normal(size=64)).astype(np.float32))
        sent.append(rows_of(client.summary())[0])
    assert all((row == first).all() for row in sent)
    assert not np.allclose(first, exact, atol=1e-3), "there is noise"
    others = rows_of(client.summary())[1:]
    client.predict(zero_shot.text[1])
    assert not (rows_of(client.summary())[1:] == others).all(), "and what changes has other noise"


@pytest.mark.parametrize("kind", [Latte, Ristretto])
def test_after_a_restart_the_noise_is_the_same(kind):
    rng = np.random.default_rng(0)
    zero_shot = task(rng)
    privacy = Privacy(noise=0.5)
    client = PrivateClient(kind(zero_shot), privacy)
    for image in stream(rng, zero_shot, 30):
        client.predict(image)
    before = rows_of(client.summary())
    assert client.unsaved_noise
    saved = client.state()
    assert not client.unsaved_noise
    again = PrivateClient(kind(zero_shot), privacy)
    again.load(saved)
    np.testing.assert_array_equal(rows_of(again.summary()), before)
    assert not again.unsaved_noise
    other = PrivateClient(kind(zero_shot), Privacy(noise=0.6))
    other.load(saved)
    assert not (rows_of(other.summary()) == before).all(), "noise of another length is drawn anew"
    plain = kind(zero_shot)
    plain.load(without_noise(saved))
    quiet = PrivateClient(kind(zero_shot), Privacy(least_images=2))
    quiet.load(saved)
    older = PrivateClient(kind(zero_shot), privacy)
    older.load(plain.state())
    assert not (rows_of(older.summary()) == before).all(), "a state without noise is that of an earlier version"
    client.reset()
    assert client.state().keys() == saved.keys() and not client.state()["private.noisy"].size


def test_a_damaged_state_of_noise_changes_nothing():
    zero_shot = task(np.random.default_rng(0))
    client = PrivateClient(Latte(zero_shot), Privacy(noise=0.5))
    client.predict(zero_shot.text[0])
    before, good = rows_of(client.summary()), client.state()
    for name, value in (("noisy", np.full((4, 16), np.nan)), ("exact", np.zeros(3)), ("deviation", np.zeros(2))):
        with pytest.raises(InputError, match="private"):
            client.load({**good, f"private.{name}": value})
    with pytest.raises(InputError, match="no deviation"):
        client.load({name: array for name, array in good.items() if name != "private.deviation"})
    with pytest.raises(InputError, match="mapping"):
        client.load([])
    np.testing.assert_array_equal(rows_of(client.summary()), before)


def test_more_images_than_a_class_can_have_are_refused():
    """Otherwise nothing would ever be shared, and nobody would know why."""
    zero_shot = task(np.random.default_rng(0))
    PrivateClient(Latte(zero_shot, k_l=4), Privacy(least_images=4))
    with pytest.raises(InputError, match=r"least_images: got 5, want at most 4.* nothing would ever be shared"):
        PrivateClient(Latte(zero_shot, k_l=4), Privacy(least_images=5))
    PrivateClient(Ristretto(zero_shot), Privacy(least_images=500))


def test_the_line_for_people_says_what_is_not_covered():
    client = PrivateClient(Latte(task(np.random.default_rng(0))), Privacy(4, 2.0))
    assert "Not covered: which classes are shared and when they change" in client.guarantee(16)
