"""The engine and the readable simulator predict the same, in every variant and under every schedule."""

import sys
from dataclasses import replace

import numpy as np
import pytest

from latte.data.federation import Federation
from latte.engine import has_engine, has_loops, run_fast, run_grid
from latte.simulation.simulator import Schedule
from simulation.engine_support import compare, made_up

LENGTHS = (30, 25, 0, 30, 12, 30, 1, 28)
STARTS = (1, 1, 5, 9, 1, 1, 1, 20)
SCHEDULES = [
    Schedule(),
    Schedule(5),
    Schedule(2, participation=0.4),
    Schedule(3, barrier=False),
    Schedule(barrier=False, periods=(1, 2, 3, 4, 5, 1, 1, 2)),
    Schedule(starts=STARTS),
    Schedule(sync="doubling"),
    Schedule(3, sync="doubling", participation=0.7, starts=STARTS),
    Schedule(sync="powers"),
    Schedule(4, participation=0.6, starts=STARTS),
    Schedule(2, barrier=False, participation=0.5, starts=STARTS),
]
every_schedule = pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
compiled = pytest.mark.skipif(not has_loops(), reason="Latte's loops need numba")


@every_schedule
@compiled
@pytest.mark.parametrize("variant", ["paper", "released"])
def test_schedules(schedule, variant):
    federation = made_up(LENGTHS, 5, 16, absent=1)
    outcome = compare(federation, "latte", {"variant": variant, "k_l": 3, "k_e": 3}, schedule)
    assert outcome.ties == 0
    assert outcome.downloads_equal


@compiled
@pytest.mark.parametrize("memory", ["both", "local", "external"])
@pytest.mark.parametrize(
    ("variant", "empty"),
    [("paper", "client"), ("paper", "none"), ("paper", "released"), ("released", "none"), ("released", "released")],
)
def test_variants(memory, variant, empty):
    params = {"variant": variant, "empty_query": empty, "memory": memory, "k_l": 3, "k_e": 4}
    outcome = compare(made_up(LENGTHS, 6, 16, absent=2), "latte", params, Schedule(2))
    assert outcome.ties == 0
    assert outcome.downloads_equal


@compiled
@pytest.mark.parametrize(
    "params",
    [
        {"prototype": "mean"},
        {"prototype": "min_entropy"},
        {"gamma_prototype": 7.0},
        {"beta": 0.0},
        {"gamma": 0.0},
        {"alpha": 0.0},
        {"k_l": 1, "k_e": 1},
        {"k_l": 2, "k_e": 20},
        {"k_e": 0},
        {"variant": "released", "beta": 200.0},
    ],
    ids=str,
)
def test_parameters(params):
    outcome = compare(made_up((20, 22, 18, 20), 4, 12), "latte", params)
    assert outcome.ties == 0
    assert outcome.downloads_equal


@pytest.mark.parametrize("name", ["clip", "tda", "tda-global", "dmn", "dmn-global"])
@pytest.mark.parametrize("schedule", [SCHEDULES[0], SCHEDULES[6]], ids=str)
def test_other_methods(name, schedule):
    params = {} if name == "clip" else {"k": 2}
    assert compare(made_up(LENGTHS, 5, 16), name, params, schedule).ties == 0


@compiled
@pytest.mark.parametrize("variant", ["paper", "released"])
def test_the_same_images_at_every_client(variant):
    """Exact ties everywhere: prototypes, similarities and entropies of several clients are equal."""
    federation = made_up((15,) * 6, 4, 12)
    clients = tuple(type(c)(c.name, c.domain, federation.clients[0].samples) for c in federation.clients[:4])
    twins = type(federation)(federation.embeddings, clients + federation.clients[4:])
    outcome = compare(twins, "latte", {"variant": variant, "k_l": 2, "k_e": 2})
    assert outcome.ties == 0
    assert outcome.downloads_equal


@compiled
def test_one_client_and_one_sample():
    assert compare(made_up((1,), 2, 3), "latte").ties == 0


@compiled
def test_many_windows():
    federation = made_up((150, 140, 150), 3, 8)
    assert compare(federation, "latte", {"k_l": 2, "k_e": 2}, Schedule(7)).ties == 0


@compiled
def test_rows_that_are_not_quite_of_unit_length():
    federation = made_up((40, 35, 40, 30), 4, 24)
    stretch = np.random.default_rng(0).uniform(0.9995, 1.0005, len(federation.embeddings.views))
    views = federation.embeddings.views * stretch[:, None, None].astype(np.float32)
    stretched = Federation(replace(federation.embeddings, views=views), federation.clients)
    for name in ("latte", "tda", "dmn"):
        assert compare(stretched, name).ties == 0


def test_no_engine():
    federation = made_up((3, 3), 3, 4)
    assert run_fast(federation, "vte") is None
    assert run_fast(federation, "tda", {"views": "confident"}) is None
    assert not has_engine("zero")


def test_without_numba(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    federation = made_up((3, 3), 3, 4)
    assert not has_engine("latte") and run_fast(federation, "latte") is None
    assert run_fast(federation, "tda").engine == "fast"
    with pytest.raises(ModuleNotFoundError, match="pip install"):
        run_grid(federation, "latte", None, ([1], [1]))


def test_refusals():
    federation = made_up((3, 3), 3, 4)
    with pytest.raises(ValueError, match="rng"):
        run_fast(federation, "tda", schedule=Schedule(participation=0.5))
    with pytest.raises(ValueError, match="readout"):
        run_grid(federation, "clip", None, ([1], [1]))
    with pytest.raises(ValueError, match="empty axis"):
        run_grid(federation, "tda", None, ([], [1]))
    with pytest.raises(ValueError, match="threads"):
        run_fast(federation, "tda", threads=0)


@compiled
def test_half_precision_and_several_views():
    """Rows that are not float32, and views beside the plain one, give what the readable path makes of them."""
    federation = made_up((20, 20, 20), 4, 12)
    old = federation.embeddings
    views = np.repeat(old.views, 3, axis=1).astype(np.float16)
    rest = (old.labels, old.domain, old.domains)
    half = type(federation)(type(old)(old.name, old.zero_shot, views, *rest), federation.clients)
    assert compare(half, "latte", {"k_l": 2, "k_e": 2}).ties == 0


@pytest.mark.parametrize("name", [pytest.param("latte", marks=compiled), "tda", "tda-global", "dmn", "dmn-global"])
def test_a_grid_is_its_runs(name):
    federation = made_up(LENGTHS, 5, 16)
    first = "weight" if name.startswith("dmn") else "alpha"
    base = {"k_l": 3, "k_e": 3} if name == "latte" else {"k": 2}
    grid = run_grid(federation, name, base, ([0.3, 1.0, 3.0], [2.0, 40.0]), Schedule(2))
    assert grid.names == (first, "beta")
    for a, alpha in enumerate(grid.alphas):
        for b, beta in enumerate(grid.betas):
            one = run_fast(federation, name, {**base, first: float(alpha), "beta": float(beta)}, Schedule(2))
            for got, want in zip(grid.outcome(a, b).labels, one.labels, strict=True):
                np.testing.assert_array_equal(got, want)


@compiled
@pytest.mark.parametrize("gamma", [1e3, 1e4, 1e6])
@pytest.mark.parametrize("change", [{}, {"entropy": "nats", "replace": "always"}], ids=["default", "letter"])
def test_large_gamma(gamma, change):
    """Every weight of a class that is nowhere certain is below the smallest float: the readout must not notice."""
    federation = made_up(LENGTHS, 5, 16, spread=2.0, absent=1)
    outcome = compare(federation, "latte", {"gamma": gamma, "k_l": 3, "k_e": 3, **change})
    assert outcome.ties == 0
    assert outcome.downloads_equal
