"""A prediction: an entropy that nobody reads is not calculated, and probabilities as certain as is stated."""

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latte import Clip, Prediction, ZeroShot
from latte.core.maths import entropy_of_one, match_entropy
from latte.methods.ristretto.client import Ristretto


def test_a_function_is_called_once_when_the_entropy_is_read():
    calls = []
    prediction = Prediction(0, np.ones(2), lambda: calls.append(1) or 0.25)
    assert not calls and prediction.label == 0 and prediction.classname == "0"
    assert prediction.entropy == prediction.entropy == 0.25 and len(calls) == 1


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one)), replace])
def test_a_copy_has_the_number(duplicate):
    rng = np.random.default_rng(0)
    zero_shot = ZeroShot(rng.normal(size=(3, 8)) / 1e9 + np.eye(3, 8), ("a", "b", "c"))
    image = np.full(8, 8**-0.5)
    prediction = Ristretto(zero_shot).predict(image)
    twin = duplicate(prediction)
    assert twin.entropy == prediction.entropy == pytest.approx(Clip(zero_shot).predict(image).entropy, abs=1e-6)
    assert isinstance(vars(twin)["_entropy"], float)  # it holds neither an image nor a classifier
    assert np.array_equal(twin.scores, prediction.scores) and twin.classnames == prediction.classnames


def test_a_prediction_cannot_be_changed():
    with pytest.raises(AttributeError):
        Prediction(0, np.ones(2), 0.5).entropy = 0.1
    with pytest.raises(TypeError):
        Prediction(0, np.ones(2))


def test_views_are_not_held_by_a_prediction():
    zero_shot = ZeroShot(np.eye(3), ("a", "b", "c"))
    prediction = Ristretto(zero_shot).predict(np.eye(3)[[1, 0, 2]])
    assert vars(prediction)["_entropy"].args[1].base is None and prediction.label == 1


@given(st.integers(0, 10_000), st.sampled_from([2, 5, 100, 1000]), st.floats(-6, 9), st.floats(1e-9, 1.0))
def test_the_matched_temperature_has_the_entropy(seed, classes, magnitude, target):
    scores = np.random.default_rng(seed).normal(size=classes) * 10.0**magnitude
    temperature = match_entropy(scores, target)
    assert entropy_of_one(scores / temperature) == pytest.approx(target, abs=1e-6)


@pytest.mark.parametrize("target", [0.0, 1e-300, 0.2, 1.0])
@pytest.mark.parametrize("scores", [[0.0, 0.0, 0.0], [3.0, 3.0, 0.0], [1.0, 1.0 - 1e-15], [1e18, -1e18], [0.0, 1e-300]])
def test_scores_that_cannot_have_the_entropy(scores, target):
    scores = np.array(scores)
    prediction = Prediction(int(scores.argmax()), scores, target, temperature=match_entropy(scores, target))
    assert np.isfinite(prediction.probabilities).all() and prediction.probabilities.sum() == pytest.approx(1)
    assert prediction.probabilities.max() == prediction.probabilities[prediction.label]
