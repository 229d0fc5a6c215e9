"""Near copies: a memory has none where they are looked for, and is exactly as before where they are not."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latte import Latte, ZeroShot, create
from latte.core import memory as module
from latte.core.memory import NEAR_COPY, LocalMemory, RecentImages, near_copies
from latte.engine import has_engine, run_fast
from latte.methods.dmn import Dmn
from latte.methods.ristretto.client import Ristretto
from latte.methods.tda import Cache, SortedCache, Tda
from small_tasks import a_task

METHODS = (Latte, Ristretto, Tda, Dmn)
MEMORIES = {
    "local": lambda cosine: LocalMemory(2, 3, 4, near_copy=cosine),
    "cache": lambda cosine: Cache(2, 3, 4, near_copy=cosine),
    "sorted": lambda cosine: SortedCache(2, 3, 4, near_copy=cosine),
}


def unit(rows):
    return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)


def stream(seed, n, dim, spread=0.05, scenes=4):
    """Images of a few scenes: some are copies to the last bit, some near, some not so near."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(scenes, dim))
    rows = unit(centres[rng.integers(scenes, size=n)] + spread * rng.normal(size=(n, dim)))
    again = rng.random(n) < 0.3
    rows[again] = rows[rng.integers(n, size=int(again.sum()))]
    return rows, rng.random(n)


@given(
    st.sampled_from(sorted(MEMORIES)),
    st.integers(0, 2**32 - 1),
    st.integers(1, 60),
    st.sampled_from([0.9, 0.99, 0.9999]),
    st.sampled_from([0.0, 0.01, 0.1, 1.0]),
)
def test_no_class_ever_has_two_near_copies(name, seed, n, cosine, spread):
    memory = MEMORIES[name](cosine)
    rows, entropies = stream(seed, n, 4, spread)
    for i, (row, entropy) in enumerate(zip(rows, entropies, strict=True)):
        before = memory.state()
        slot = memory.put(i % 2, row, float(entropy))
        if slot < 0:
            assert all((before[key] == value).all() for key, value in memory.state().items())
        for label in (0, 1):
            items = memory.vectors[label][memory.valid[label]].astype(np.float64)
            cosines = items @ items.T - 2 * np.eye(len(items))
            assert len(items) == 0 or cosines.max() < cosine + 1e-6


@given(st.sampled_from(sorted(MEMORIES)), st.integers(0, 2**32 - 1))
def test_images_that_are_far_from_each_other_are_stored_as_without_the_check(name, seed):
    rows, entropies = unit(np.random.default_rng(seed).normal(size=(20, 4))), np.linspace(1, 0, 20)
    close = rows @ rows.T > 0.9999
    distinct = [i for i in range(20) if not close[i, :i].any()]
    with_check, without = MEMORIES[name](0.9999), MEMORIES[name](0.0)
    for i in distinct:
        assert with_check.put(0, rows[i], entropies[i]) == without.put(0, rows[i], entropies[i])
    assert all(np.array_equal(with_check.state()[key], value) for key, value in without.state().items())


def test_means_of_views_are_compared_by_their_direction():
    stored = np.array([[0.5, 0.0], [0.0, 0.0]], np.float32)
    assert near_copies(stored, np.array([0.9, 0.01], np.float32), 0.99).tolist() == [True, False]


@pytest.mark.parametrize("kind", METHODS)
def test_nine_passes_over_the_same_images_leave_one_copy_of_each(kind):
    task, rows = a_task(3, 16), unit(np.random.default_rng(1).normal(size=(30, 16)))
    once, nine, full = kind(task, near_copy=NEAR_COPY), kind(task, near_copy=NEAR_COPY), kind(task)
    first = [once.predict(row) for row in rows]
    assert not any(prediction.near_copy for prediction in first)
    for row in np.tile(rows, (9, 1)):
        nine.predict(row)
        full.predict(row)
    assert nine.memory_fill() == once.memory_fill()
    if kind is Ristretto:
        assert full.memory_fill().items == 9 * nine.memory_fill().items == 270
        assert all(nine.predict(row, remember=False).near_copy for row in rows)
    else:
        assert different(nine) == nine.memory_fill().items
        assert different(full) < full.memory_fill().items


def different(method):
    """How many different items the memory of a method has."""
    state = method.state()
    name = next(key for key in state if key.endswith("valid"))
    return len(np.unique(state[name.replace("valid", "vectors")][state[name]], axis=0))


@pytest.mark.parametrize("kind", METHODS)
def test_the_answer_for_a_copy_is_not_refused_and_its_state_round_trips(kind):
    task = a_task(3, 16)
    rows = unit(np.random.default_rng(2).normal(size=(80, 16)))
    method = kind(task, near_copy=NEAR_COPY)
    for row in (*rows, *rows[:5]):
        method.predict(row)
    copy = kind(task, near_copy=NEAR_COPY)
    copy.load(method.state())
    for row in (rows[0], -rows[0], rows[7]):
        one, other = method.predict(row), copy.predict(row)
        assert one.near_copy == other.near_copy and np.array_equal(one.scores, other.scores)


def test_memories_with_and_without_the_check_load_each_other():
    task, row = a_task(3, 8), unit(np.ones(8))
    for kind in METHODS:
        checked, plain = kind(task, near_copy=NEAR_COPY), kind(task)
        checked.predict(row)
        plain.predict(row)
        state = checked.state()
        checked.load(plain.state())
        plain.load(state)
        assert not plain.predict(row).near_copy


@given(st.integers(0, 2**32 - 1), st.integers(0, 40))
def test_recent_images_go_round_and_come_back(seed, n):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "RECENT_IMAGES", 8)
        rows = unit(np.random.default_rng(seed).normal(size=(n, 16)))
        recent = RecentImages(16, 0.99)
        assert all(recent.is_new(row) for row in rows)
        assert np.array_equal(recent.vectors(), rows[-8:])
        copy = RecentImages(16, 0.99)
        copy.load(recent.vectors())
        for row in (*rows[-8:], *rows[:-8]):
            assert copy.is_new(row) == recent.is_new(row)


@pytest.mark.parametrize("value", [-0.1, 1.0, 1.5, float("nan"), "0.9", True])
def test_thresholds_that_no_copy_could_reach_are_refused(value):
    for kind in METHODS:
        with pytest.raises(ValueError, match="near_copy"):
            kind(a_task(3, 8), near_copy=value)


@pytest.mark.parametrize("bad", [np.zeros((1, 7), np.float32), np.zeros((1, 8)), np.zeros((1, 8), np.float32), 3])
def test_recent_images_that_cannot_be_are_refused(bad):
    method = Ristretto(a_task(3, 8), near_copy=NEAR_COPY)
    with pytest.raises(ValueError, match="recent"):
        method.load({**method.state(), "recent": bad})


def test_the_engine_leaves_such_runs_to_the_readable_simulator():
    from latte.data.bundled import bundled

    for name in ("latte", "ristretto", "tda", "dmn-global"):
        assert not has_engine(name, {"near_copy": 0.99})
        assert run_fast(bundled(), name, {"near_copy": 0.99}) is None


def test_a_classifier_of_one_direction_has_copies_only_within_a_class():
    task = ZeroShot(np.eye(2), ("a", "b"))
    method = create("latte", task, near_copy=0.5)
    assert not method.predict([0.8, 0.6]).near_copy
    assert not method.predict([0.6, 0.8]).near_copy, "of another class"
    assert method.predict([1.0, 0.0]).near_copy
