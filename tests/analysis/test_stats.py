"""The statistics against hand-computed examples and against scipy."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latte.analysis.stats import Estimate, estimate, paired, t_cdf, t_quantile

scipy_stats = pytest.importorskip("scipy.stats")
values = st.floats(0, 100, allow_nan=False)


@pytest.mark.parametrize("freedom", [*range(1, 31), 60, 99, 120, 1000])
@pytest.mark.parametrize("p", [0.001, 0.025, 0.3, 0.5, 0.9, 0.95, 0.975, 0.995, 0.9995])
def test_t_quantiles_are_those_of_scipy(p, freedom):
    assert t_quantile(p, freedom) == pytest.approx(scipy_stats.t.ppf(p, freedom), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 7, 40])
def test_t_distribution_is_that_of_scipy(freedom):
    for t in np.linspace(-30, 30, 61):
        assert t_cdf(t, freedom) == pytest.approx(scipy_stats.t.cdf(t, freedom), abs=1e-13)


def test_textbook_quantiles():
    table = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 9: 2.262, 29: 2.045}
    assert {freedom: round(t_quantile(0.975, freedom), 3) for freedom in table} == table


@pytest.mark.parametrize(("p", "freedom"), [(0.0, 3), (1.0, 3), (1.5, 3), (0.5, 0), (float("nan"), 2)])
def test_impossible_quantiles_are_refused(p, freedom):
    with pytest.raises(ValueError, match="got"):
        t_quantile(p, freedom)


def test_mean_and_sd_by_hand():
    found = estimate([80.0, 82.0, 84.0, 86.0])  # deviations 3, 1, 1, 3: 20 / 3
    assert found == Estimate(83.0, math.sqrt(20 / 3), 4)
    assert estimate([71.5]) == Estimate(71.5, None, 1)
    with pytest.raises(ValueError, match="values"):
        estimate([])


@given(st.lists(values, min_size=2, max_size=12))
def test_estimate_is_numpys(sample):
    found = estimate(sample)
    assert found.mean == pytest.approx(np.mean(sample), abs=1e-9)
    assert found.sd == pytest.approx(np.std(sample, ddof=1), abs=1e-9)


def test_paired_difference_by_hand():
    # differences 1, 2, 3: mean 2, sd 1, half width 4.3027 / sqrt(3)
    found = paired(("a", "b"), {0: 11.0, 1: 22.0, 2: 33.0}, {0: 10.0, 1: 20.0, 2: 30.0})
    assert found.mean == 2.0
    assert found.high - found.mean == pytest.approx(4.302652729911275 / math.sqrt(3))
    assert found.mean - found.low == pytest.approx(found.high - found.mean)
    assert not found.clear


@given(st.lists(st.tuples(values, values), min_size=2, max_size=10))
def test_paired_interval_is_scipys(pairs):
    first, second = ({seed: pair[i] for seed, pair in enumerate(pairs)} for i in (0, 1))
    gaps = np.array([a - b for a, b in pairs])
    found = paired(("a", "b"), first, second)
    if gaps.std(ddof=1) < 1e-9:
        assert found.high - found.low == pytest.approx(0, abs=1e-6)
        return
    low, high = scipy_stats.t.interval(0.95, len(gaps) - 1, gaps.mean(), scipy_stats.sem(gaps))
    assert (found.low, found.high) == (pytest.approx(low, abs=1e-7), pytest.approx(high, abs=1e-7))
    assert found.clear == (found.low > 0 or found.high < 0)
    assert found.unclear == (found.low <= 0 <= found.high)


def test_intervals_hold_the_truth_as_often_as_they_say():
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(1000):
        gaps = rng.normal(1.0, 0.5, 5)
        found = paired(("a", "b"), dict(enumerate(gaps)), dict.fromkeys(range(5), 0.0))
        hits += found.low <= 1.0 <= found.high
    assert 925 <= hits <= 970  # 950 expected, sd 7


def test_only_shared_seeds_count():
    found = paired(("a", "b"), {0: 5.0, 1: 6.0, 9: 99.0}, {0: 4.0, 1: 4.0, 7: 0.0})
    assert (found.mean, found.seeds) == (1.5, 2)
    assert paired(("a", "b"), {0: 1.0}, {1: 1.0}) is None


def test_one_seed_has_no_interval():
    found = paired(("a", "b"), {3: 5.0}, {3: 4.0})
    assert (found.mean, found.low, found.high, found.seeds, found.clear) == (1.0, None, None, 1, False)


def test_a_difference_that_no_seed_changes_is_not_called_clear():
    found = paired(("a", "b"), {0: 50.1, 1: 60.1, 2: 70.1}, {0: 49.3, 1: 59.3, 2: 69.3})
    assert found.constant
    assert not found.clear
    assert not found.unclear


@given(st.lists(st.tuples(values, values), min_size=2, max_size=6))
def test_turning_a_pair_round_turns_its_interval_round(pairs):
    first, second = ({seed: pair[i] for seed, pair in enumerate(pairs)} for i in (0, 1))
    one, two = paired(("a", "b"), first, second), paired(("b", "a"), second, first)
    assert (one.mean, one.low, one.high) == pytest.approx((-two.mean, -two.high, -two.low))
