"""Cap volumes: against scipy, against sampling, and between the paper's bounds for every angle."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latte.paper.theory.bounds import angle_of_share, cap_share, log_cap_share, log_lower, log_upper, share_beyond
from latte.paper.theory.model import uniform_ball

GRID = np.concatenate([np.geomspace(1e-9, 1e-2, 400), np.linspace(1e-2, np.pi / 2, 4000)])


@pytest.mark.parametrize("d", range(2, 65))
def test_the_bounds_hold_for_every_angle(d: int) -> None:
    exact = log_cap_share(d, GRID)
    assert (log_lower(d, GRID) < exact).all()
    assert (exact < log_upper(d, GRID)).all()


@pytest.mark.parametrize("d", [1, 128, 512, 1024])
def test_the_bounds_hold_in_other_dimensions_too(d: int) -> None:
    exact = log_cap_share(d, GRID)
    assert (log_lower(d, GRID) < exact + 1e-9).all()
    assert (exact < log_upper(d, GRID)).all()


def test_the_upper_bound_is_nearly_reached_at_small_angles() -> None:
    # what is lost is Wendel's inequality, about 1/(4(d+1)): a wrong constant would show
    for d in (2, 8, 64):
        lost = float(log_upper(d, 1e-4) - log_cap_share(d, 1e-4))
        assert lost == pytest.approx(1 / (4 * (d + 1)), rel=0.05)


def test_bounds_are_zero_at_zero() -> None:
    assert log_lower(3, 0.0) == log_upper(3, 0.0) == log_cap_share(3, 0.0) == -np.inf
    assert cap_share(3, 0.0) == 0


@pytest.mark.parametrize("d", [2, 3, 5, 17, 64, 512])
def test_shares_equal_the_incomplete_beta_function(d: int) -> None:
    special = pytest.importorskip("scipy.special")
    theta = np.linspace(1e-3, np.pi / 2, 500)
    beta = special.betainc((d + 1) / 2, 0.5, np.sin(theta) ** 2) / 2
    normal = beta > 1e-290
    np.testing.assert_allclose(cap_share(d, theta)[normal], beta[normal], rtol=1e-10)


def test_shares_of_circle_and_ball_are_the_school_formulas() -> None:
    theta = np.linspace(0.01, np.pi / 2, 100)
    segment = (theta - np.sin(theta) * np.cos(theta)) / np.pi
    np.testing.assert_allclose(cap_share(2, theta), segment, rtol=1e-9)
    height = 1 - np.cos(theta)
    np.testing.assert_allclose(cap_share(3, theta), height**2 * (3 - height) / 4, rtol=1e-9)


@pytest.mark.parametrize(("d", "height"), [(2, 0.5), (3, -0.3), (5, 0.25), (10, 0.1)])
def test_shares_equal_what_sampling_gives(d: int, height: float) -> None:
    n = 200_000
    points = uniform_ball(n, d, np.random.default_rng(d))
    assert np.linalg.norm(points, axis=1).max() <= 1 + 1e-12
    share = float(share_beyond(d, height))
    assert np.mean(points[:, 0] > height) == pytest.approx(share, abs=4 * math.sqrt(share * (1 - share) / n))


@given(st.integers(2, 200), st.floats(-1, 1))
def test_both_sides_of_a_plane_are_the_whole_ball(d: int, height: float) -> None:
    assert float(share_beyond(d, height) + share_beyond(d, -height)) == pytest.approx(1, abs=1e-9)


@given(st.integers(1, 200), st.floats(1e-12, 0.5))
def test_the_angle_of_a_share_has_that_share(d: int, share: float) -> None:
    assert float(cap_share(d, angle_of_share(d, share))) == pytest.approx(share, rel=1e-6)


@pytest.mark.parametrize("theta", [-0.1, 1.6, math.nan])
def test_other_angles_are_refused(theta: float) -> None:
    with pytest.raises(ValueError, match=r"theta: got .*, want angles in \[0, π/2\]"):
        cap_share(3, theta)


@pytest.mark.parametrize("share", [0.0, 0.6, -1.0])
def test_other_shares_are_refused(share: float) -> None:
    with pytest.raises(ValueError, match="share: got"):
        angle_of_share(3, share)
