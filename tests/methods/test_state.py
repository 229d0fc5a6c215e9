"""What every method owes: a state that survives, bad input that changes nothing, the zero-shot entropy."""

from __future__ import annotations

import numpy as np
import pytest

from latte import ZeroShot, create
from latte.methods import METHODS, describe

METHOD_NAMES = ("tda", "dmn", "vte", "zero")
MEMORIES = [("tda", "first"), ("tda", "confident"), ("dmn", "first"), ("dmn", "confident")]


def copies(state):
    return {name: array.copy() for name, array in state.items()}


def assert_same_state(got, want):
    assert got.keys() == want.keys()
    for name, array in want.items():
        assert got[name].dtype == array.dtype
        np.testing.assert_array_equal(got[name], array, err_msg=name)


def small(name):
    """Parameters with which a stream of 60 images fills and overflows the memory."""
    return {"tda": {"entropy_above": 0.05, "entropy_below": 0.69}, "dmn": {"k": 3}}.get(name, {})


@pytest.mark.parametrize(("name", "views"), MEMORIES)
def test_a_loaded_state_continues_bit_for_bit(make_stream, name, views):
    zero_shot, images = make_stream(seed=6, n=90, V=20)
    params = {**small(name), "views": views}
    first = create(name, zero_shot, params)
    for image in images[:45]:
        first.predict(image)
    saved = copies(first.state())
    second = create(name, zero_shot, params)
    second.load(saved)
    assert_same_state(second.state(), saved)
    for image in images[45:]:
        a, b = first.predict(image), second.predict(image)
        np.testing.assert_array_equal(a.scores, b.scores)
    assert_same_state(second.state(), first.state())


@pytest.mark.parametrize("name", METHOD_NAMES)
def test_the_state_is_a_copy_and_reset_forgets_all(make_stream, name):
    zero_shot, images = make_stream(seed=7, n=40, V=4)
    method = create(name, zero_shot, small(name))
    empty = copies(method.state())
    before = [method.predict(image).scores for image in images]
    state = method.state()
    kept = copies(state)
    for array in state.values():
        array.fill(0)
    assert_same_state(method.state(), kept)
    method.reset()
    assert_same_state(method.state(), empty)
    for image, want in zip(images, before, strict=True):
        np.testing.assert_array_equal(method.predict(image).scores, want)


@pytest.mark.parametrize("name", METHOD_NAMES)
@pytest.mark.parametrize(
    "bad",
    [
        np.zeros((0, 16)),
        np.zeros((1, 16)),
        np.full((1, 16), np.nan),
        np.full((1, 16), np.inf),
        np.full((1, 16), 3.0),
        np.eye(2, 17),
        1.0,
        np.vstack([np.eye(1, 16), np.full((1, 16), np.nan)]),
        [["a"] * 16],
        None,
    ],
    ids=["empty", "zero", "nan", "inf", "long", "dim", "rank 0", "nan in view 1", "text", "none"],
)
def test_bad_views_are_refused_and_change_nothing(make_stream, name, bad):
    zero_shot, images = make_stream(seed=11, n=20)
    method = create(name, zero_shot, small(name))
    for image in images:
        method.predict(image)
    before = copies(method.state())
    with pytest.raises(ValueError, match="views: got"):
        method.predict(bad)
    assert_same_state(method.state(), before)


def spoiled(array):
    """Return versions of one array of a state that cannot be right."""
    wrong = [array[:-1], array.astype(np.complex128)]
    if array.dtype == np.bool_:
        return [*wrong, np.roll(array, 1, axis=1) & ~np.eye(1, array.shape[1], dtype=bool)]  # gaps
    return [*wrong, np.full_like(array, np.nan), array + 5]


@pytest.mark.parametrize(("name", "views"), MEMORIES)
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(make_stream, name, views):
    zero_shot, images = make_stream(seed=12, n=60, V=12)
    params = {**small(name), "views": views}
    source, target = create(name, zero_shot, params), create(name, zero_shot, params)
    for image in images:
        source.predict(image)
    for image in images[:10]:
        target.predict(image)
    before, good = copies(target.state()), source.state()
    assert all(array.any() for array in good.values()), "every part of the memory must be in use"
    for key, array in good.items():
        without = {k: a for k, a in good.items() if k != key}
        for arrays in (without, *({**good, key: wrong} for wrong in spoiled(array))):
            with pytest.raises(ValueError, match=r": got .*, want "):
                target.load(arrays)
            assert_same_state(target.state(), before)


@pytest.mark.parametrize("name", ["tda", "dmn"])
def test_the_state_of_another_size_is_refused(make_stream, name):
    zero_shot, images = make_stream(seed=13, n=30)
    source = create(name, zero_shot, {"k": 3})
    for image in images:
        source.predict(image)
    for other in ({"k": 2}, {"k": 4}):
        target = create(name, zero_shot, other)
        before = copies(target.state())
        with pytest.raises(ValueError, match="valid: got"):
            target.load(source.state())
        assert_same_state(target.state(), before)


def test_the_lists_of_tda_come_back_sorted_or_not_at_all(make_stream):
    zero_shot, images = make_stream(seed=14, n=60)
    method = create("tda", zero_shot)
    for image in images:
        method.predict(image)
    state = method.state()
    state["positive.entropy"] = state["positive.entropy"][:, ::-1].copy()
    with pytest.raises(ValueError, match="ascending"):
        method.load(state)


@pytest.mark.parametrize("name", [*METHOD_NAMES, "tda-global", "dmn-global"])
@pytest.mark.parametrize(("C", "V"), [(2, 1), (2, 3), (9, 1), (9, 12)])
def test_label_logits_and_entropy_are_what_a_prediction_promises(make_stream, name, C, V):
    zero_shot, images = make_stream(seed=C + V, n=25, C=C, V=V)
    method, clip = create(name, zero_shot), create("clip", zero_shot)
    for image in images:
        prediction = method.predict(image)
        assert prediction.scores.shape == (C,)
        assert prediction.scores.dtype == np.float64
        assert prediction.label == int(prediction.scores.argmax())
        assert prediction.entropy == clip.predict(image).entropy


@pytest.mark.parametrize("name", METHOD_NAMES)
def test_the_input_is_not_changed_and_not_kept(make_stream, name):
    zero_shot, images = make_stream(seed=15, n=1, V=3)
    method, views = create(name, zero_shot), images[0].copy()
    method.predict(views)
    np.testing.assert_array_equal(views, images[0])
    before = copies(method.state())
    views.fill(0)
    assert_same_state(method.state(), before)


@pytest.mark.parametrize("name", METHOD_NAMES)
def test_rows_of_any_length_are_normalised_on_request(make_stream, name):
    zero_shot, images = make_stream(seed=16, n=10, V=12)
    plain, scaled = create(name, zero_shot), create(name, zero_shot, normalise=True)
    for image in images:
        np.testing.assert_allclose(scaled.predict(7 * image).scores, plain.predict(image).scores, atol=1e-4)


def test_one_class_is_refused_before_any_method_sees_it():
    with pytest.raises(ValueError, match="C >= 2"):
        ZeroShot(np.eye(1, 4), ("only",))


BAD_PARAMS = [
    ("tda", {"k": 0}),
    ("tda", {"k_negative": 0}),
    ("tda", {"alpha": -1.0}),
    ("tda", {"beta": float("nan")}),
    ("tda", {"entropy_above": 0.5}),
    ("tda", {"probability_below": 0.0}),
    ("tda", {"views": "all"}),
    ("dmn", {"k": 2.5}),
    ("dmn", {"beta": float("inf")}),
    ("dmn", {"weight": "1"}),
    ("dmn", {"views": None}),
    ("vte", {"share": 0.0}),
    ("vte", {"share": 1.1}),
    ("zero", {"gamma": -0.1}),
    ("zero", {"gamma": True}),
    ("tpt", {"lr": -1.0}),
    ("tpt", {"steps": -1}),
    ("tpt", {"weight_decay": None}),
    ("tpt", {"share": 0}),
]


@pytest.mark.parametrize(("name", "params"), BAD_PARAMS)
def test_bad_parameters_are_refused_by_name(name, params):
    with pytest.raises(ValueError, match=r"entropy_below|" + next(iter(params))):
        create(name, ZeroShot(np.eye(2), ("a", "b")), params, text_encoder=object())


def test_every_registered_method_has_presets_of_its_own_parameters():
    for name in METHODS:
        info = describe(name)
        assert all(isinstance(preset, info.params) for preset in info.presets.values())
