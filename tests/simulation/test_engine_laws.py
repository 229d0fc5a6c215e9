"""The engine against the readable simulator on federations that nobody chose."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latte.core.validate import LARGEST_FACTOR
from latte.engine import has_loops, run_fast
from latte.methods.tda import SHARPEST
from latte.simulation.simulator import Schedule
from simulation.engine_support import compare, made_up, readable, rescaled


@st.composite
def schedules(draw, clients: int) -> Schedule:
    barrier = draw(st.booleans())
    small = st.integers(1, 6)
    periods = None if barrier or draw(st.booleans()) else tuple(draw(small) for _ in range(clients))
    starts = tuple(draw(st.integers(1, 12)) for _ in range(clients)) if draw(st.booleans()) else None
    share = draw(st.sampled_from([1.0, 0.7, 0.3]))
    return Schedule(draw(small), share, barrier, periods, starts)


@st.composite
def cases(draw):
    lengths = draw(st.lists(st.integers(0, 25), min_size=1, max_size=7).filter(any))
    classes = draw(st.integers(2, 8))
    federation = made_up(
        lengths,
        classes,
        draw(st.integers(4, 40)),
        draw(st.integers(0, 10_000)),
        draw(st.sampled_from([0.2, 0.6, 2.0])),
        draw(st.integers(0, classes - 1)),
    )
    released = draw(st.booleans())
    params = {
        "variant": "released" if released else "paper",
        "k_l": draw(st.integers(1, 5)),
        "k_e": draw(st.integers(0, 6)),
        "beta": draw(st.sampled_from([0.0, 5.0, 60.0])),
        "gamma": draw(st.sampled_from([0.0, 1.5, 10.0])),
        "memory": draw(st.sampled_from(["both", "both", "local", "external"])),
        "prototype": draw(st.sampled_from(["exp_weighted", "mean", "min_entropy"])),
        "empty_query": draw(st.sampled_from([None, "none", "released"])),
        "entropy": draw(st.sampled_from(["normalised", "nats"])),
        "replace": draw(st.sampled_from(["lower", "always"])),
    }
    return federation, params, draw(schedules(len(lengths)))


compiled = pytest.mark.skipif(not has_loops(), reason="Latte's loops need numba")


@compiled
@settings(max_examples=60)
@given(case=cases())
def test_latte(case):
    federation, params, schedule = case
    outcome = compare(federation, "latte", params, schedule)
    assert outcome.ties <= 1  # a tie is possible, several in so small a run are a mistake
    assert outcome.downloads_equal


@settings(max_examples=30)
@given(case=cases(), name=st.sampled_from(["tda", "tda-global", "dmn", "dmn-global"]), k=st.integers(1, 4))
def test_caches(case, name, k):
    federation, _, schedule = case
    assert compare(federation, name, {"k": k}, schedule).ties <= 1


factors = st.sampled_from([0.0, 1e-3, 1.0, 100.0, 720.0, 1500.0, 1e4, 1e6, 1e9])


@compiled
@settings(max_examples=60)
@given(
    case=cases(), alpha=factors, beta=factors, gamma=factors,
    prototype=st.none() | factors, scale=st.sampled_from([1e-9, 1.0, 100.0, 1e6, 1e9]),
)  # fmt: skip
def test_latte_with_extreme_parameters(case, alpha, beta, gamma, prototype, scale):
    """The same limits from every path. Rounding of a cosine, times beta, may turn the odd near tie, no more."""
    federation, params, schedule = case
    federation = rescaled(federation, scale)
    params |= {"alpha": alpha, "beta": beta, "gamma": gamma, "gamma_prototype": prototype}
    logits, _ = readable(federation, "latte", params, schedule, np.random.default_rng(7))
    fast = run_fast(federation, "latte", params, schedule, np.random.default_rng(7))
    assert all(np.isfinite(one).all() for one in logits)
    different = sum(int((one.argmax(axis=1) != labels).sum()) for one, labels in zip(logits, fast.labels, strict=True))
    assert different <= 1


@settings(max_examples=30)
@given(case=cases(), name=st.sampled_from(["tda", "dmn-global"]), first=factors, beta=factors)
def test_caches_with_extreme_parameters(case, name, first, beta):
    federation, _, schedule = case
    most = SHARPEST if name == "tda" else LARGEST_FACTOR
    params = {"weight" if name.startswith("dmn") else "alpha": first, "beta": min(beta, most), "k": 3}
    logits, _ = readable(federation, name, params, schedule, np.random.default_rng(7))
    fast = run_fast(federation, name, params, schedule, np.random.default_rng(7))
    assert all(np.isfinite(one).all() for one in logits)
    different = sum(int((one.argmax(axis=1) != labels).sum()) for one, labels in zip(logits, fast.labels, strict=True))
    assert different <= 1
