"""The lemma ε_asym ≤ ε_pre: exact, measured, over a grid, and in what ``latte paper theory`` writes."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latte.paper.theory.bounds import Setting
from latte.paper.theory.figures import table, theory_json
from latte.paper.theory.model import World
from latte.paper.theory.study import (
    LEMMA_DIMENSIONS,
    OVERLAPPING,
    SEPARABLE,
    Study,
    StudyPlan,
    Trial,
    compare_grid,
    compare_planes,
    errors_in_order,
    grid_settings,
    run_study,
)


@pytest.fixture(scope="module")
def study() -> Study:
    tiny = StudyPlan(rate_repetitions=2, rate_samples=(512, 2048), repetitions=2, trial=Trial(2, 200), images=20)
    return run_study(seed=1, plan=tiny)


@given(st.integers(1, 600), st.floats(0.001, 5.0), st.floats(0.0, 1.57), st.floats(-0.999, 0.999))
def test_the_errors_are_in_the_order_of_the_proof(d: int, norm: float, angle: float, bias: float) -> None:
    alignment = norm * math.cos(angle)
    setting = Setting(d, norm, alignment, bias * (alignment + 1))
    assert errors_in_order(setting.error_asymptotic, setting.error_unbiased, setting.error_initial)


@pytest.mark.parametrize("world", [OVERLAPPING, SEPARABLE, (0.6, 0.7, -0.8)])
def test_the_exact_errors_are_what_sampling_gives(world: tuple[float, float, float]) -> None:
    planes = compare_planes("one", World.make(4, *world), 200_000, np.random.default_rng(3))
    assert planes.measured_asymptotic == pytest.approx(planes.asymptotic, abs=0.003)
    assert planes.measured_initial == pytest.approx(planes.initial, abs=0.003)
    assert planes.holds


def test_a_violation_would_be_noticed() -> None:
    planes = compare_planes("one", World.make(3, *OVERLAPPING), 100, np.random.default_rng(0))
    assert planes.asymptotic < planes.unbiased < planes.initial
    assert not replace(planes, asymptotic=planes.unbiased + 1e-9).holds
    assert not replace(planes, initial=planes.unbiased - 1e-9).holds


def test_the_grid_reaches_from_nothing_to_everything() -> None:
    grid = compare_grid((2, 512))
    assert grid.holds and grid.settings == len(list(grid_settings((2, 512)))) == 2 * 9 * 8 * 7
    assert abs(grid.smallest_gain) < 1e-12  # w_pre along μ and no bias: it is the limit already
    assert 0.4 < grid.largest_gain <= 0.5
    assert not replace(grid, holding=grid.settings - 1).holds


def test_the_study_says_whether_it_holds(study: Study) -> None:
    record = json.loads(theory_json(study))["asymptotic"]
    assert [row["d"] for row in record["worlds"]] == 2 * list(LEMMA_DIMENSIONS)
    assert all(row["holds"] and row["asymptotic"] <= row["initial"] for row in record["worlds"])
    assert record["grid"]["holds"] and record["grid"]["holding"] == record["grid"]["settings"]
    text = table(study)
    assert "ε_asym ≤ ε(w_pre, 0) ≤ ε_pre" in text and "overlapping  d = 3    0.0696 (" in text
    assert "holds in 7056 of 7056 settings" in text and "NOT HOLD" not in text


def test_the_table_does_not_hide_a_violation(study: Study) -> None:
    wrong = replace(study.planes[0], asymptotic=0.4)
    assert "DOES NOT HOLD" in table(replace(study, planes=(wrong, *study.planes[1:])))
