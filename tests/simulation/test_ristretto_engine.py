"""The fast path of Ristretto gives the labels and the downloads of the readable one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latte.data.federation import generators
from latte.engine.ristretto import run_ristretto
from latte.methods.ristretto import server as sums_store
from latte.methods.ristretto.client import RistrettoParams
from latte.methods.ristretto.server import Freshness, RistrettoExchange
from latte.simulation.simulator import Schedule, run_readable
from simulation.engine_support import made_up


@st.composite
def schedules(draw, clients):
    barrier = draw(st.booleans())
    small = st.integers(1, 6)
    periods = None if barrier or draw(st.booleans()) else tuple(draw(small) for _ in range(clients))
    starts = tuple(draw(st.integers(1, 12)) for _ in range(clients)) if draw(st.booleans()) else None
    syncs = ["method", "every", "doubling", "powers"] if barrier else ["method", "every"]
    share, timing = draw(st.sampled_from([1.0, 0.7, 0.3])), draw(st.sampled_from(syncs))
    return Schedule(draw(small), share, barrier, periods, starts, timing)


@st.composite
def cases(draw):
    lengths = draw(st.lists(st.integers(0, 25), min_size=1, max_size=6).filter(any))
    seed, spread = draw(st.integers(0, 10_000)), draw(st.sampled_from([0.2, 0.6, 2.0]))
    federation = made_up(lengths, draw(st.integers(2, 6)), draw(st.integers(4, 24)), seed, spread)
    eta, nu = draw(st.sampled_from([0.0, 1.0, 4.0])), draw(st.sampled_from([0.0, 5.0, 50.0]))
    params = RistrettoParams(eta=eta, nu=nu, trust=draw(st.sampled_from(["fleet", "open"])))
    return federation, params, draw(schedules(len(lengths)))


@settings(max_examples=60)
@given(cases())
def test_both_paths_agree(case):
    federation, params, schedule = case
    fast = run_ristretto(federation, params, schedule, np.random.default_rng(7))
    slow = run_readable(federation, "ristretto", params, schedule, np.random.default_rng(7))
    for one, other in zip(fast.labels, slow.labels, strict=True):
        assert np.array_equal(one, other)
    assert np.allclose(fast.downloads, slow.downloads, atol=1e-6)


@pytest.mark.parametrize("trust", ["fleet", "open"])
@pytest.mark.parametrize("period", [1, 7])
def test_both_paths_agree_on_real_embeddings(period, trust):
    from latte.data.bundled import bundled

    federation, params = bundled(), RistrettoParams(trust=trust)
    fast = run_ristretto(federation, params, Schedule(period=period), np.random.default_rng(0))
    slow = run_readable(federation, "ristretto", params, Schedule(period=period))
    assert all(np.array_equal(one, other) for one, other in zip(fast.labels, slow.labels, strict=True))
    assert fast.engine == "fast"


def test_many_clients_go_through_an_exchange_that_samples():
    federation = made_up([12] * 20, 4, 16)
    exchange = RistrettoExchange(federation.embeddings.zero_shot, freshness=Freshness(exact=5, pushes=5))
    outcome = run_ristretto(federation, RistrettoParams(), Schedule(3), np.random.default_rng(0), exchange)
    assert len(exchange) == 20 and all((labels >= 0).all() for labels in outcome.labels)


@pytest.mark.parametrize("trust", ["fleet", "open"])
def test_beyond_the_limit_both_paths_approximate_alike_from_the_seed_and_say_so(monkeypatch, trust):
    monkeypatch.setattr(sums_store, "EXACT_TOGETHER", 5)
    federation, schedule = made_up([12] * 20, 4, 64, spread=2.0), Schedule(3)
    params = RistrettoParams(trust=trust)
    runs = {seed: run_ristretto(federation, params, schedule, generators(seed).cohort) for seed in (0, 1)}
    again = run_readable(federation, "ristretto", params, schedule, generators(1).cohort)
    assert "more than 5 clients" in runs[0].approximation == runs[1].approximation == again.approximation
    assert not np.allclose(runs[0].downloads, runs[1].downloads)  # other directions
    assert np.allclose(runs[1].downloads, again.downloads, atol=1e-3)
    assert runs[0].result(federation, "ristretto", {}, "default", 0).approximation == runs[0].approximation
    exact = run_ristretto(federation, RistrettoParams(trust=trust, approximation="off"), schedule, generators(0).cohort)
    assert exact.approximation == ""
    assert "approximation" not in exact.result(federation, "ristretto", {}, "default", 0).to_json()
