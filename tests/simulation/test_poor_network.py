"""A lossy and an eight-bit exchange carry messages of Latte and of Ristretto."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latte.core.types import External
from latte.engine.ristretto import run_ristretto
from latte.methods import create_exchange
from latte.methods.ristretto.client import Ristretto, RistrettoParams
from latte.methods.ristretto.sums import Head
from latte.simulation.simulator import Schedule, run_readable, set_up, simulate
from simulation.engine_support import made_up

pytest.importorskip("poor_network", reason="benchmarks are not part of this distribution")
from poor_network import LossyExchange, QuantisedExchange, in_eight_bits, quantised

EMPTY = {"latte": External.empty, "ristretto": Head.empty}
FEDERATION = made_up([15] * 5, 4, 16)
ZERO_SHOT = FEDERATION.embeddings.zero_shot
SCHEDULE = Schedule(sync="doubling")


def labels(method, wrap):
    clients, _ = set_up(FEDERATION, method)
    exchange = wrap(create_exchange(method, ZERO_SHOT, None))
    return [step.prediction.label for step in simulate(clients, exchange, SCHEDULE)]


def lossy(method, missing, seed=0):
    return lambda exchange: LossyExchange(
        exchange, missing, lambda: EMPTY[method](ZERO_SHOT), np.random.default_rng(seed)
    )


@pytest.mark.parametrize("method", ["latte", "ristretto"])
def test_a_network_without_losses_changes_nothing(method):
    plain = run_readable(FEDERATION, method, schedule=SCHEDULE)
    clients, _ = set_up(FEDERATION, method)
    exchange = lossy(method, 0.0)(create_exchange(method, ZERO_SHOT, None))
    for step in simulate(clients, exchange, SCHEDULE):
        assert step.prediction.label == plain.labels[step.client][step.sample]


@pytest.mark.parametrize("method", ["latte", "ristretto"])
def test_a_network_that_loses_nearly_everything_leaves_clients_alone(method):
    clients, _ = set_up(FEDERATION, method)
    alone = [step.prediction.label for step in simulate(clients)]
    assert labels(method, lossy(method, 1 - 1e-12)) == alone


def test_who_misses_a_sync_keeps_its_download():
    client = Ristretto(ZERO_SHOT)
    for views in FEDERATION.stream(FEDERATION.clients[0])[:4]:
        client.predict(views)
    exchange = lossy("ristretto", 0.5, seed=5)(Ristretto.exchange_for(ZERO_SHOT))
    trusts, last = [], 0.0
    for views in FEDERATION.stream(FEDERATION.clients[0])[4:14]:
        exchange.push("me", client.summary())
        here = "me" not in exchange._away
        (head,), routes = exchange.pull_traced(["me"])
        assert routes.sum() == here
        assert (float(head.trust) > last) == here
        trusts.append(last := float(head.trust))
        client.predict(views)
    assert len(set(trusts)) > 2


def test_both_paths_lose_the_same_syncs():
    rng, wrap = np.random.default_rng(0), lossy("ristretto", 0.5)
    fast = run_ristretto(FEDERATION, RistrettoParams(), SCHEDULE, rng, wrap(Ristretto.exchange_for(ZERO_SHOT)))
    clients, _ = set_up(FEDERATION, "ristretto")
    for step in simulate(clients, wrap(Ristretto.exchange_for(ZERO_SHOT)), SCHEDULE):
        assert step.prediction.label == fast.labels[step.client][step.sample]


@pytest.mark.parametrize("method", ["latte", "ristretto"])
def test_eight_bits_are_accepted_and_change_little(method):
    plain, eight = labels(method, lambda exchange: exchange), labels(method, QuantisedExchange)
    assert np.mean(np.array(plain) != np.array(eight)) < 0.05


@given(st.integers(0, 1000), st.floats(1e-6, 1e6))
def test_eight_bits_are_within_half_a_step(seed, size):
    rows = size * np.random.default_rng(seed).normal(size=(3, 8))
    rows[1] = 0
    step = np.abs(rows).max(axis=1, keepdims=True) / 127
    assert (np.abs(in_eight_bits(rows) - rows) <= step * 0.5000001).all()


def test_refusals():
    with pytest.raises(ValueError, match="message"):
        quantised(object())
    with pytest.raises(ValueError, match="missing"):
        lossy("latte", 1.0)(Ristretto.exchange_for(ZERO_SHOT))
