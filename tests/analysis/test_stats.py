"""The statistics against hand-computed examples and against scipy."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latte.analysis.stats import Answers, Estimate, Paired, estimate, paired, t_cdf, t_quantile, with_images

scipy_stats = pytest.importorskip("scipy.stats")
values = st.floats(0, 100, allow_nan=False)


def test_t_quantiles_are_those_of_scipy():
    for freedom in (*range(1, 31), 60, 99, 120, 1000):
        p = np.array([0.001, 0.025, 0.3, 0.5, 0.9, 0.95, 0.975, 0.995, 0.9995])
        ours = [t_quantile(float(one), freedom) for one in p]
        assert ours == pytest.approx(scipy_stats.t.ppf(p, freedom), rel=1e-9, abs=1e-12), freedom


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
    assert found.interval is None
    assert not found.clear
    assert not found.unclear


@given(st.lists(st.tuples(values, values), min_size=2, max_size=6))
def test_turning_a_pair_round_turns_its_interval_round(pairs):
    first, second = ({seed: pair[i] for seed, pair in enumerate(pairs)} for i in (0, 1))
    one, two = paired(("a", "b"), first, second), paired(("b", "a"), second, first)
    assert (one.mean, one.low, one.high) == pytest.approx((-two.mean, -two.high, -two.low))


def simulated(rng, images, seeds, differing, split_sd):
    """Return a difference of two methods on random images and splits, and its expectation in points.

    Of the images, ``differing`` are answered rightly by the first method alone (2 of 3) or by the second alone, in most
    splits; a split makes the first method better or worse on all images.
    """
    kind = rng.choice([0, 1, -1], images, p=[1 - differing, differing * 2 / 3, differing / 3])
    first, second = {}, {}
    for seed in range(seeds):
        sticks = rng.random(images) < 0.8  # in this split the image is as it mostly is
        moved = rng.normal(0, split_sd)
        luck = np.where(rng.random(images) < abs(moved), np.sign(moved), 0) * (kind == 0)
        gap = (kind * sticks + luck).astype(int)
        every = (np.arange(images), np.ones(images, int))
        first[seed], second[seed] = Answers(*every, (gap > 0).astype(int)), Answers(*every, (gap < 0).astype(int))
    scores = [{s: 100 * answers[s].right.mean() for s in answers} for answers in (first, second)]
    return with_images(paired(("a", "b"), *scores), first, second), 100 * 0.8 * differing / 3


@pytest.mark.parametrize(
    ("images", "seeds", "differing", "split_sd", "splits_alone"),
    [
        pytest.param(
            400, 5, 0.3, 0.0, 0.5, marks=pytest.mark.slow
        ),  # what counts is which images there are: splits alone promise too much
        pytest.param(400, 5, 0.3, 0.03, 0.8, marks=pytest.mark.slow),  # both count
        pytest.param(2000, 10, 0.02, 0.03, 0.97, marks=pytest.mark.slow),  # mostly the splits
        (300, 3, 0.02, 0.0, 0.75),  # six images differ
    ],
)
def test_intervals_over_splits_and_images_hold_the_truth_as_often_as_they_say(
    images, seeds, differing, split_sd, splits_alone
):
    rng, trials = np.random.default_rng(1), 400
    hits, narrow = 0, 0
    for _ in range(trials):
        found, truth = simulated(rng, images, seeds, differing, split_sd)
        hits += found.image_low <= truth <= found.image_high
        narrow += found.low <= truth <= found.high
        assert found.image_low <= found.low and found.high <= found.image_high, "the wider one"
    assert hits / trials >= 0.925, "95 % and what 400 trials scatter"
    assert narrow / trials <= splits_alone


def test_an_image_that_is_there_several_times_is_drawn_as_one():
    """Twenty corruptions of one picture are not twenty pictures."""
    rng = np.random.default_rng(0)
    gap = rng.choice([0, 1, -1], 500, p=[0.7, 0.2, 0.1])
    pair = Paired("a", "b", 100 * float(gap.mean()), None, None, 1)

    def found(images, seen, gap):
        right = Answers(images, seen, np.maximum(gap, 0)), Answers(images, seen, np.maximum(-gap, 0))
        return with_images(pair, {0: right[0]}, {0: right[1]}).interval

    once = found(np.arange(500), np.ones(500, int), gap)
    apart = found(np.arange(10_000), np.ones(10_000, int), np.repeat(gap, 20))
    together = found(np.arange(500), np.full(500, 20), 20 * gap)
    assert together == pytest.approx(once, abs=0.05)
    assert (once[1] - once[0]) / (apart[1] - apart[0]) == pytest.approx(math.sqrt(20), rel=0.05)


def test_one_seed_has_an_interval_over_images_alone_and_is_never_clear():
    images = np.arange(1000)
    answers = [Answers(images, np.ones(1000, int), (images < right).astype(int)) for right in (600, 500)]
    found = with_images(Paired("a", "b", 10.0, None, None, 1), {3: answers[0]}, {3: answers[1]})
    assert found.interval[0] > 8 and not found.clear and not found.unclear and found.split_interval is None
    clear = with_images(
        Paired("a", "b", 10.0, 9.0, 11.0, 2), dict.fromkeys((0, 1), answers[0]), dict.fromkeys((0, 1), answers[1])
    )
    assert clear.clear and clear.split_interval == (9.0, 11.0)


def test_other_images_give_no_interval_over_images():
    pair = Paired("a", "b", 10.0, 9.0, 11.0, 1)
    one = Answers(np.arange(10), np.ones(10, int), np.ones(10, int))
    other = one._replace(images=np.arange(1, 11), right=np.zeros(10, int))
    assert with_images(pair, {0: one}, {0: other}) == pair
    assert with_images(pair, {0: one}, {}) == pair
    assert with_images(pair, {0: one}, {1: one}) == pair
    same = with_images(pair, {0: one}, {0: one})
    assert same.interval == (9.0, 11.0), "no image differs: what the splits say is all"
