"""The contract of a Method, check by check."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from ..core.contracts import Method
from ..core.types import Prediction
from .collaborative import collaboration_checks
from .material import (
    CLASSES,
    DIM,
    MakeMethod,
    a_zero_shot,
    equal,
    images,
    refuses,
    same,
    used,
)
from .registration import can_be_registered
from .states import check_refusals, with_rubbish


def method_checks() -> dict[str, Callable[[MakeMethod], None]]:
    """Return the checks of a Method by name; a method that does not collaborate passes those of collaboration."""
    return {
        "predicts": _predicts,
        "is deterministic": _is_deterministic,
        "accepts several views": _accepts_several_views,
        "accepts a single vector": _accepts_a_single_vector,
        "a dry prediction remembers nothing": _a_dry_prediction_remembers_nothing,
        "leaves its input alone": _leaves_its_input_alone,
        "accepts nearly unit rows": _accepts_nearly_unit_rows,
        "remembers nothing after bad input": _remembers_nothing_after_bad_input,
        "reset forgets everything": _reset_forgets_everything,
        "state round-trips": _state_round_trips,
        "state is a copy": _state_is_a_copy,
        "refuses damaged states": _refuses_damaged_states,
        "free slots mean nothing": _free_slots_mean_nothing,
        "a copy behaves the same": _a_copy_behaves_the_same,
        "can be registered": can_be_registered,
        **collaboration_checks(),
    }


def _predicts(make: MakeMethod) -> None:
    method = make(a_zero_shot())
    assert isinstance(method, Method), "a Method has predict, reset, state and load"
    for image in images():
        p = method.predict(image)
        assert isinstance(p, Prediction) and isinstance(p.label, int), "predict returns a Prediction with an int label"
        assert p.scores.shape == (CLASSES,) and np.isfinite(p.scores).all(), "scores are (C,) and finite"
        assert p.label == int(p.scores.argmax()), "the label is the argmax of the scores"
        assert 0 <= p.entropy <= 1, "the entropy is divided by ln C, in [0, 1]"


def _is_deterministic(make: MakeMethod) -> None:
    first, second = make(a_zero_shot()), make(a_zero_shot())
    for image in images():
        assert equal(first.predict(image), second.predict(image)), "the same stream gives the same predictions"


def _accepts_several_views(make: MakeMethod) -> None:
    method = make(a_zero_shot())
    for image in images(count=5, views=16):
        assert 0 <= method.predict(image).label < CLASSES


def _accepts_a_single_vector(make: MakeMethod) -> None:
    first, second = make(a_zero_shot()), make(a_zero_shot())
    for image in images(count=10):
        assert equal(first.predict(image[0]), second.predict(image)), "(D,) is the plain view alone, as (1, D)"


def _a_dry_prediction_remembers_nothing(make: MakeMethod) -> None:
    for image in images(count=5, seed=8):
        method = used(make)
        before = method.state()
        dry = method.predict(image, remember=False)
        assert same(before, method.state()), "predict(remember=False) leaves the memory exactly as it was"
        assert equal(dry, method.predict(image)), "and answers as predict() does"


def _leaves_its_input_alone(make: MakeMethod) -> None:
    method = make(a_zero_shot())
    for image in images(count=5, views=3):
        before = image.copy()
        method.predict(image)
        assert np.array_equal(image, before), "predict must not write into its argument"


def _accepts_nearly_unit_rows(make: MakeMethod) -> None:
    method, image = make(a_zero_shot()), images(1)[0]
    label = method.predict(image * np.float32(1.0005)).label
    assert label == make(a_zero_shot()).predict(image).label, "rows within 1e-3 of unit length are normalised"


def _bad_views() -> dict[str, Any]:
    good = images(1)[0]
    poisoned = [good.copy() for _ in range(2)]
    poisoned[0][0, 3], poisoned[1][0, 3] = np.nan, np.inf
    return {
        "NaN": poisoned[0],
        "infinity": poisoned[1],
        "no axes": good[0, 0],
        "three axes": good[None],
        "another D": np.ones((1, DIM + 1), np.float32) / np.sqrt(DIM + 1),
        "a zero vector": np.zeros((1, DIM), np.float32),
        "V = 0": np.zeros((0, DIM), np.float32),
        "a row of length 2": 2 * good,
        "text": np.array([["x"] * DIM]),
    }


def _remembers_nothing_after_bad_input(make: MakeMethod) -> None:
    method = used(make)
    before = method.state()
    for what, views in _bad_views().items():
        refuses(partial(method.predict, views), f"views with {what}")
        assert same(before, method.state()), f"after views with {what} the memory must be exactly as before"


def _reset_forgets_everything(make: MakeMethod) -> None:
    method, fresh = used(make), make(a_zero_shot())
    method.reset()
    for image in images(seed=2):
        assert equal(method.predict(image), fresh.predict(image)), "after reset() it predicts as a new one"


def _state_round_trips(make: MakeMethod) -> None:
    for count in (0, 1, 5, 30):
        for synced in (False, True):
            method, other = used(make, count, synced), used(make, 3)
            other.load(method.state())
            assert same(method.state(), other.state()), "load(state()) restores the state bit for bit"
            for image in images(seed=3):
                assert equal(method.predict(image), other.predict(image)), "and the predictions that follow"


def _state_is_a_copy(make: MakeMethod) -> None:
    method = used(make)
    state = method.state()
    before = copy.deepcopy(state)
    for image in images(seed=4):
        method.predict(image)
    assert same(state, before), "what state() returned must not change with later predictions"


def _refuses_damaged_states(make: MakeMethod) -> None:
    check_refusals(used(make, 5), used(make).state())


def _free_slots_mean_nothing(make: MakeMethod) -> None:
    for count in (0, 3, 30):
        method, clean = used(make, count), used(make, count)
        state = method.state()
        method.load(with_rubbish(state))
        assert same(method.state(), state), "what stands in a free slot of a state does not come back"
        for image in images(seed=6):
            got, want = method.predict(image), clean.predict(image)
            assert equal(got, want) and np.isfinite(got.scores).all(), "NaN in a free slot must not matter"


def _a_copy_behaves_the_same(make: MakeMethod) -> None:
    for count in (0, 30):
        method, twin = used(make, count), used(make, count)
        answers = [twin.predict(image) for image in images(seed=7)]
        before = method.state()
        for duplicate in _copies(method):
            for image, answer in zip(images(seed=7), answers, strict=True):
                assert equal(duplicate.predict(image), answer), "a copy predicts and remembers as the original does"
            assert same(method.state(), before), "and what it remembers is its own"
        for image, answer in zip(images(seed=7), answers, strict=True):
            assert equal(method.predict(image), answer), "the original goes on as if it had not been copied"


def _copies(method: Method) -> Iterator[Method]:
    """Yield a deep copy and, if the class can be pickled, what comes back from a pickle."""
    yield copy.deepcopy(method)
    try:
        pickled = pickle.dumps(method)
    except (pickle.PicklingError, AttributeError, TypeError):  # a class inside a function, say
        return
    yield pickle.loads(pickled)
