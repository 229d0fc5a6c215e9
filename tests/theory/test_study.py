"""What the theorems claim, measured: rates, containment, errors, strangers, the 1-NN limit."""

from __future__ import annotations

import math

import numpy as np
import pytest

from latte.methods.latte.client import LatteParams
from latte.paper.theory.bounds import single_client
from latte.paper.theory.model import Sharing, SphereClient, World, merge
from latte.paper.theory.study import (
    CASES,
    OVERLAPPING,
    SEPARABLE,
    Crowd,
    Trial,
    agreement,
    crowd_errors,
    error_by_clients,
    error_by_samples,
    error_by_strangers,
    make_streams,
    measure_containment,
    measure_limit,
    measure_rate,
)

WORLD = World.make(3, *OVERLAPPING)


def rng_of(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("d", [2, 3, 5])
def test_the_memory_converges_at_the_rate_of_the_theory(d: int) -> None:
    rate = measure_rate(World.make(d, *OVERLAPPING), 8, 2 ** np.arange(11, 17), 40, rng_of(d))
    assert rate.slope == pytest.approx(-1 / (d + 1), rel=0.15)
    assert rate.slopes.std() / math.sqrt(40) < 0.05 / (d + 1)  # the fit is not luck
    assert (rate.farthest < rate.reach).mean() >= 0.9  # δ = 0.1
    assert (rate.farthest[:, -1] < rate.farthest[:, 0]).all()


@pytest.mark.parametrize("case", CASES[:3], ids=str)
def test_the_memory_is_in_its_cap_as_often_as_promised(case: tuple[int, int, int, float]) -> None:
    d, n, k, delta = case
    containment = measure_containment(World.make(d, *OVERLAPPING), n, k, delta, 200, rng_of(n))
    assert containment.conditions
    assert containment.small_angle
    assert containment.inside >= 1 - delta
    # The sharp angle leaves room for nothing: 1 - δ, and no more than both classes' risks being one event.
    slack = 3 * math.sqrt(delta * (1 - delta) / 200)
    assert 1 - delta - slack <= containment.inside_sharp <= 1 - delta / 2 + slack


def test_a_cap_that_is_too_narrow_does_not_hold_the_memory() -> None:
    containment = measure_containment(WORLD, 2000, 4, 0.999, 60, rng_of(1))
    assert containment.inside_sharp < 0.6


@pytest.mark.parametrize("shape", [OVERLAPPING, SEPARABLE])
def test_the_error_falls_with_the_samples_towards_its_limit(shape: tuple[float, float, float]) -> None:
    world = World.make(3, *shape)
    errors = error_by_samples(world, 8, np.array([100, 1000, 10_000]), Trial(40, 2000), rng_of(2))
    assert (np.diff(errors.mean) < 0).all()
    assert (errors.mean + errors.half_width < world.setting.error_initial).all()
    above = errors.mean - world.setting.error_asymptotic
    assert (above > 0).all()
    assert above[-1] < above[0] / 1.8


def test_the_error_stays_below_the_bounds_that_hold() -> None:
    for shape in (OVERLAPPING, SEPARABLE):
        world = World.make(2, *shape)
        rates = error_by_samples(world, 4, np.array([3000, 100_000]), Trial(25, 2000), rng_of(4)).rates
        for column, n in zip(rates.T, (3000, 100_000), strict=True):
            for form in ("corrected", "sharp"):
                bound = single_client(world.setting, n, 4, 0.1, form)
                assert not bound.holds or np.mean(column <= bound.value) >= 0.9
        assert not single_client(world.setting, 100_000, 4, 0.1, "sharp").vacuous


def test_the_printed_bound_is_broken_by_a_simulation() -> None:
    """Without ε_asym the bound of the appendix is below the error that is measured."""
    world = World.make(2, 0.4, 1.3)
    printed = single_client(world.setting, 1_500_000, 1, 0.1, "printed")
    assert printed.holds
    rates = error_by_samples(world, 1, np.array([1_500_000]), Trial(4, 20_000), rng_of(5)).rates
    assert (rates > printed.value).all()
    assert (rates < single_client(world.setting, 1_500_000, 1, 0.1).value).all()


def test_many_clients_equal_one_with_all_their_samples() -> None:
    crowds = [Crowd(2000, 8, 1), Crowd(500, 8, 4), Crowd(125, 8, 16)]
    rates = crowd_errors("", range(len(crowds)), WORLD, crowds, Sharing(), Trial(60, 2000), rng_of(6)).rates
    half = 2.6 * rates.std(axis=0, ddof=1) / math.sqrt(len(rates))
    assert abs(rates.mean(axis=0)[1:] - rates.mean(axis=0)[0]).max() <= 2 * half.max()


@pytest.mark.parametrize("content", ["samples", "prototype"])
def test_the_error_falls_with_the_clients_of_ones_own_domain(content: str) -> None:
    errors = error_by_clients(WORLD, Crowd(200, 8), (1, 32), content, Trial(60, 2000), rng_of(7))
    assert errors.mean[1] + errors.half_width[1] < errors.mean[0] - errors.half_width[0]


FLAT_ARMS = [("nearest", -0.5), ("nearest", 0.0), ("nearest", 0.5), ("everyone", -0.5)]


@pytest.mark.parametrize("arm", range(4), ids=[f"{selection} {certain}" for selection, certain in FLAT_ARMS])
def test_strangers_do_not_move_the_error(arm: int) -> None:
    selection, certain = FLAT_ARMS[arm]
    crowd = Crowd(200, 8, n_id=4, more_certain=certain)
    strangers = error_by_strangers(WORLD, crowd, (0, 4, 16), selection, Trial(80, 1500), rng_of(80 + arm))
    slope, half = strangers.slope()
    assert abs(slope) <= half * 2.50 / 1.96  # 95 % for the four arms together
    assert abs(slope) * 16 < 0.01  # and small: sixteen strangers, less than one point
    assert strangers.lost.max() == 0


def test_with_the_same_own_samples_strangers_change_not_one_answer() -> None:
    own = [SphereClient(WORLD.domain, WORLD.classifier, 4) for _ in range(3)]
    strangers = [SphereClient(WORLD.elsewhere(rng_of(i), 0.5), WORLD.classifier, 4) for i in range(5)]
    for seed, client in enumerate((*own, *strangers)):
        client.observe(100, rng_of(seed))
    sharing = Sharing("nearest", donors=2)
    without, with_them = (merge(own[0], (*own[1:], *others), sharing) for others in ((), strangers))
    assert (with_them.valid == without.valid).all()
    assert (with_them.vectors == without.vectors).all()


def test_strangers_take_the_slots_where_everyone_is_asked() -> None:
    """What the multi-client proof takes for granted, and when it is not so."""
    n_ood = (0, 8, 32)
    equal = error_by_strangers(WORLD, Crowd(200, 4, 2), n_ood, "everyone", Trial(60, 500), rng_of(9))
    even = (np.array(n_ood) / (2 + np.array(n_ood))) ** 4  # each slot goes to any client with the same probability
    assert even[-1] > 0.7
    assert (abs(equal.lost - even) <= 3 * np.sqrt(even * (1 - even) / 60) + 1e-9).all()
    assert not equal.flat
    more = error_by_strangers(WORLD, Crowd(200, 4, 2, 0, 0.5), n_ood, "everyone", Trial(20, 500), rng_of(10))
    assert more.lost.tolist() == [0, 1, 1]
    assert more.mean[1] > more.mean[0] + more.half_width[:2].sum()


def test_latte_is_1nn_in_the_limit_and_not_before() -> None:
    limit = measure_limit([1.0, 1e4, 1e6], [0.01, 1e3, 1e6], 150, rng_of(11))
    assert limit.by_beta[0] < 0.97
    assert limit.by_alpha[0] < 0.97
    assert limit.by_beta[-1] == limit.by_alpha[-1] == 1
    assert (np.diff(limit.by_beta) >= 0).all()
    assert (np.diff(limit.by_alpha) >= 0).all()


def test_the_limit_does_not_depend_on_gamma() -> None:
    zero_shot, streams = make_streams(80, rng_of(12))
    for gamma in (0.0, 50.0):
        assert agreement(zero_shot, streams, LatteParams(alpha=1e6, beta=1e8, gamma=gamma)) == 1
