"""The expected calibration error, and the records that have one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latte.core.maths import entropy_of_one
from latte.data.bundled import bundled
from latte.engine import has_loops, run_fast, run_grid
from latte.methods import create
from latte.simulation.results import Result, expected_calibration_error
from latte.simulation.simulator import Schedule, run_readable
from simulation.engine_support import made_up

FEDERATION, BUNDLED = made_up([15] * 4, 4, 16), bundled()


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
    result = run_readable(FEDERATION, "clip", calibration=False).result(FEDERATION, "clip", {}, "default", 0)
    assert "calibration" not in result.to_json()
    assert Result.from_json(result.to_json()).calibration_error is None


@pytest.mark.parametrize("error", [-0.1, 1.5, float("nan"), True])
def test_a_record_with_an_impossible_error_is_refused(error):
    clients = run_readable(FEDERATION, "clip").result(FEDERATION, "clip", {}, "default", 0).clients
    with pytest.raises(ValueError, match="calibration_error"):
        Result("b", "clip", {}, "default", 0, clients, calibration_error=error)


@pytest.mark.parametrize(
    ("method", "timing"),
    [
        *((method, "every") for method in ("clip", "tda", "tda-global", "dmn", "dmn-global", "latte", "ristretto")),
        *((method, "doubling") for method in ("latte", "ristretto")),  # the others never sync
    ],
)
def test_the_engine_has_the_confidences_of_the_readable_simulator(method, timing):
    schedule = Schedule(sync=timing)
    fast, slow = (
        run_fast(BUNDLED, method, None, schedule),
        run_readable(BUNDLED, method, None, schedule),
    )
    for one, other in zip(fast.confidences, slow.confidences, strict=True):
        np.testing.assert_allclose(one, other, atol=2e-5)  # the engine's products are in single precision
    errors = [outcome.result(BUNDLED, method, {}, "default", 0).calibration_error for outcome in (fast, slow)]
    assert errors[0] == pytest.approx(errors[1], abs=1e-6)


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1e6])
def test_latte_is_as_certain_as_zero_shot_at_any_alpha(alpha):
    fast = run_grid(FEDERATION, "latte", None, ([alpha, 1.0], [5.0])).outcome(0, 0)
    slow = run_readable(FEDERATION, "latte", {"alpha": alpha, "beta": 5.0})
    for one, other in zip(fast.confidences, slow.confidences, strict=True):
        np.testing.assert_allclose(one, other, atol=2e-5)


@pytest.mark.skipif(not has_loops(), reason="Latte's loops need numba")
def test_a_memory_without_slots_has_the_confidences_of_the_zero_shot_prediction():
    """The scratch space of the loops has room for the scores of all classes, even where it has none for items."""
    federation = made_up((30, 25, 30), 200, 16)
    fast = run_fast(federation, "latte", {"k_e": 0, "memory": "external", "alpha": 0.0})
    zero_shot = run_fast(federation, "clip")
    for one, other in zip(fast.confidences, zero_shot.confidences, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)


def test_latte_has_the_entropy_of_the_zero_shot_prediction():
    zero_shot = BUNDLED.embeddings.zero_shot
    client = create("latte", zero_shot)
    for vector in BUNDLED.stream(BUNDLED.clients[0])[:40, 0]:
        prediction = client.predict(vector)
        got = entropy_of_one(prediction.scores / prediction.temperature)
        assert got == pytest.approx(prediction.entropy, abs=1e-8)
        assert prediction.probabilities.argmax() == prediction.label


@pytest.mark.skipif(not has_loops(), reason="Latte's loops need numba")
def test_confidences_may_be_left_out():
    with_them, without = (run_fast(FEDERATION, "latte", calibration=value) for value in (True, False))
    assert without.confidences is None
    assert without.result(FEDERATION, "latte", {}, "default", 0).calibration_error is None
    for one, other in zip(with_them.labels, without.labels, strict=True):
        np.testing.assert_array_equal(one, other)
