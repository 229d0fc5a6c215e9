"""Collaboration by addition: what sums up, who counts for what, and uploads that do no good."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from latte import ZeroShot, create, create_exchange
from latte.checks import exchange_checks, uploads_of
from latte.core.sync import sync
from latte.errors import InputError
from slow_field import stream

ADDING = ("pta-fed", "oga-fed", "dota-fed")
CHECKS = exchange_checks(uploads_of(partial(create, "pta-fed")))


def zero_shot_of(text):
    return ZeroShot(text, [f"class {y}" for y in range(len(text))])


def trained(name, zero_shot, images, **options):
    method = create(name, zero_shot, **options)
    method.predict_many(images)
    return method


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", ADDING)
def test_the_exchange_keeps_its_contract(name, check):
    exchange_checks(uploads_of(partial(create, name)))[check](partial(create_exchange, name))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("pta-fed", {"weights": "sum", "tau": 1e5}),
        ("oga-fed", {"k": 99}),
        ("dota-fed", {}),
        ("dota-fed", {"mu_init": "text"}),
    ],
)
def test_two_clients_together_are_one_that_has_seen_both(name, options):
    """Where nothing is forgotten or left out: PTA with a long memory, OGA with room for every image."""
    text, images = stream(1, 80, 6, 16, 1)
    zero_shot = zero_shot_of(text)
    one, other = (trained(name, zero_shot, part, **options) for part in (images[:30], images[30:]))
    both = trained(name, zero_shot, images, **options).summary()
    sync([("one", one), ("other", other)], create_exchange(name, zero_shot, options))
    own = one.summary()
    np.testing.assert_allclose(own.counts + one.others.counts, both.counts, rtol=1e-3)
    np.testing.assert_allclose(own.sums + one.others.sums, both.sums, atol=1e-2 if name == "pta-fed" else 1e-6)
    assert (both.counts > 1).any() and not np.allclose(own.counts, both.counts)


@pytest.mark.parametrize("name", ADDING)
def test_what_others_send_changes_the_answers_and_a_client_alone_is_local(name):
    text, images = stream(2, 90, 6, 16, 1)
    zero_shot = zero_shot_of(text)
    clients = [trained(name, zero_shot, part) for part in (images[:30], images[30:60])]
    before = [clients[0].predict(image, remember=False).scores for image in images[60:]]
    exchange = create_exchange(name, zero_shot)
    sync([("one", clients[0])], exchange)
    alone = [clients[0].predict(image, remember=False).scores for image in images[60:]]
    np.testing.assert_allclose(alone, before, atol=1e-9)
    sync([("one", clients[0]), ("other", clients[1])], exchange)
    together = [clients[0].predict(image, remember=False).scores for image in images[60:]]
    assert np.abs(np.subtract(together, before)).max() > 1e-3


def test_near_weighs_clients_by_their_means_and_cap_bounds_what_others_count():
    text, images = stream(3, 120, 4, 16, 1)
    zero_shot = zero_shot_of(text)
    turned = images @ np.linalg.qr(np.random.default_rng(0).normal(size=(16, 16)))[0].astype(np.float32)
    parts = {"one": images[:40], "alike": images[40:80], "unlike": turned[80:]}
    for weights, share in (("sum", 1.0), ("near", 0.05)):
        exchange = create_exchange("pta-fed", zero_shot, weights=weights)
        uploads = {who: trained("pta-fed", zero_shot, part).summary() for who, part in parts.items()}
        for who, upload in uploads.items():
            exchange.push(who, upload)
        rest = exchange.pull("one").counts - uploads["alike"].counts
        assert (rest <= share * uploads["unlike"].counts + 1e-9).all(), weights
    capped = trained("pta-fed", zero_shot, parts["one"], cap=2.0)
    capped.receive(exchange.pull("one"))
    assert capped.others.counts.max() == 2.0 and exchange.pull("one").counts.max() > 2


@pytest.mark.parametrize("name", ADDING)
def test_one_client_can_neither_stop_the_others_nor_make_numbers_that_are_none(name):
    text, images = stream(4, 80, 6, 16, 1)
    zero_shot = zero_shot_of(text)
    honest, victim = (trained(name, zero_shot, part) for part in (images[:40], images[40:]))
    exchange, good = create_exchange(name, zero_shot), honest.summary()
    most, square = exchange.most, np.ones((len(good.scatter), 16))
    worst = {"counts": np.full(6, most), "means": -text.astype(np.float64)}
    refused = [{"counts": -good.counts}, {"counts": good.counts * np.nan}, {"counts": worst["counts"] * 1.01}]
    refused += [{"means": 9 * good.means}, {"scatter": np.nan * square}, {"scatter": 1e9 * square}][
        : 3 if len(square) else 1
    ]
    for change in refused:
        with pytest.raises(InputError, match=next(iter(change))):
            exchange.push("evil", replace(good, **change))
    for change in (
        worst,
        {"scatter": -square},
        {"scatter": np.triu(square) * 9e3},
        {**worst, "scatter": -9e3 * square},
    ):
        for evil in ("evil", "more evil"):
            exchange.push(evil, replace(good, **change))
        sync([("honest", honest), ("victim", victim)], exchange)
        scores = np.array([victim.predict(image).scores for image in images[:20]])
        assert np.isfinite(scores).all() and np.abs(scores).max() < 1e4
