"""The expected calibration error, and the records that have one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latte.simulation.calibration import expected_calibration_error
from latte.simulation.readable import run_readable
from latte.simulation.records import Result
from simulation.engine_support import made_up

FEDERATION = made_up([15] * 4, 4, 16)


def slow_error(confidences, correct, bins):
    """The definition, bin after bin."""
    total = 0.0
    for k in range(bins):
        inside = (confidences * bins >= k) & ((confidences * bins < k + 1) | (k == bins - 1))
        if inside.any():
            total += inside.mean() * abs(correct[inside].mean() - confidences[inside].mean())
    return total


@given(st.integers(0, 10_000), st.integers(1, 200), st.sampled_from([1, 7, 20]))
def test_the_error_is_the_definition(seed, n, bins):
    rng = np.random.default_rng(seed)
    confidences, correct = rng.random(n), rng.integers(0, 2, n)
    confidences[0] = 1.0
    error = expected_calibration_error(confidences, correct, bins)
    assert error == pytest.approx(slow_error(confidences, correct, bins), abs=1e-12)
    assert 0 <= error <= 1
    order = rng.permutation(n)
    assert expected_calibration_error(confidences[order], correct[order], bins) == pytest.approx(error)


def test_extremes():
    assert expected_calibration_error(np.ones(4), np.ones(4, np.int64)) == 0
    assert expected_calibration_error(np.ones(4), np.zeros(4, np.int64)) == 1


def test_refusals():
    with pytest.raises(ValueError, match="confidences"):
        expected_calibration_error(np.ones(2), np.ones(3))
    with pytest.raises(ValueError, match="confidences"):
        expected_calibration_error(np.zeros(0), np.zeros(0))
    with pytest.raises(ValueError, match="outside"):
        expected_calibration_error(np.array([np.nan]), np.ones(1))


@pytest.mark.parametrize("method", ["clip", "tda", "tda-global", "dmn", "latte", "ristretto"])
def test_a_run_has_confidences_where_they_are_asked_for(method):
    plain, outcome = (run_readable(FEDERATION, method, calibration=wish) for wish in (False, True))
    assert plain.confidences is None and plain.result(FEDERATION, method, {}, "default", 0).calibration_error is None
    assert all(np.array_equal(one, other) for one, other in zip(plain.labels, outcome.labels, strict=True))
    confidences = np.concatenate(outcome.confidences)
    least = 1 / FEDERATION.embeddings.zero_shot.classes  # the predicted class has the largest share
    assert len(confidences) == FEDERATION.samples and ((confidences >= least - 1e-9) & (confidences <= 1)).all()
    result = outcome.result(FEDERATION, method, {}, "default", 0)
    assert Result.from_json(result.to_json()) == result and 0 <= result.calibration_error <= 1


def test_a_record_without_calibration_is_written_and_read_as_before():
    result = run_readable(FEDERATION, "clip").result(FEDERATION, "clip", {}, "default", 0)
    assert "calibration" not in result.to_json()
    assert Result.from_json(result.to_json()).calibration_error is None


@pytest.mark.parametrize("error", [-0.1, 1.5, float("nan"), True])
def test_a_record_with_an_impossible_error_is_refused(error):
    clients = run_readable(FEDERATION, "clip").result(FEDERATION, "clip", {}, "default", 0).clients
    with pytest.raises(ValueError, match="calibration_error"):
        Result("b", "clip", {}, "default", 0, clients, calibration_error=error)
