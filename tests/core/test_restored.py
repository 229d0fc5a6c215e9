"""What is restored continues bit for bit, and what stands in a free slot never matters."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latte import External, Latte, LocalMemory, ZeroShot, create
from latte.core.types import Collaborative
from latte.methods import LatteParams
from latte.methods.latte.readout import merge_memories

METHODS = {
    "latte": ("latte", {"k_l": 3}),
    "latte, one slot": ("latte", {"k_l": 1}),
    "latte released": ("latte", {"variant": "released", "k_l": 3}),
    "latte local": ("latte", {"memory": "local", "k_l": 3}),
    "latte external": ("latte", {"memory": "external", "k_l": 3}),
    "tda": ("tda", {"entropy_above": 0.05, "entropy_below": 0.69}),
    "tda confident": ("tda", {"entropy_above": 0.05, "entropy_below": 0.69, "views": "confident"}),
    "dmn": ("dmn", {"k": 3}),
    "dmn confident": ("dmn", {"k": 3, "views": "confident"}),
    "clip": ("clip", {}),
    "vte": ("vte", {}),
    "zero": ("zero", {}),
}
seeds = st.integers(0, 2**32 - 1)
histories = st.lists(
    st.one_of(
        st.tuples(st.just("predict"), st.integers(0, 15)),
        st.tuples(st.just("receive"), st.integers(0, 5)),
        st.tuples(st.sampled_from(["save", "copy", "pickle", "reset"]), st.just(0)),
    ),
    max_size=40,
)


def unit(rng, *shape):
    rows = rng.normal(size=shape)
    return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)


def a_zero_shot(rng, dim, classes=3):
    return ZeroShot(unit(rng, classes, dim), tuple(map(str, range(classes))), scale=6.0)


def an_external(rng, slots, dim, classes=3, zero_shot=None):
    valid = rng.random((classes, slots)) < 0.5
    return External(
        unit(rng, classes, slots, dim), rng.random((classes, slots)), valid, zero_shot.fingerprint if zero_shot else ""
    )


def bits(state):
    return {name: (array.dtype.str, array.shape, array.tobytes()) for name, array in state.items()}


class Pair:
    """A method that just goes on, and one that is saved, loaded, copied and pickled on the way."""

    def __init__(self, label, seed, dim):
        name, params = METHODS[label]
        self.rng, self.dim = np.random.default_rng(seed), dim
        zero_shot = a_zero_shot(self.rng, dim)
        self.images = unit(self.rng, 16, 11, dim)
        self.make = lambda: create(name, zero_shot, params)
        self.steady, self.restless = self.make(), self.make()

    def do(self, what, number):
        if what == "predict":
            answers = [m.predict(self.images[number]).scores.tobytes() for m in (self.steady, self.restless)]
            assert answers[0] == answers[1]
        elif what == "receive" and isinstance(self.steady, Collaborative):
            external = an_external(self.rng, number, self.dim, zero_shot=self.steady.zero_shot)
            self.steady.receive(external)
            self.restless.receive(external)
        elif what == "reset":
            self.steady.reset()
            self.restless.reset()
        elif what == "save":
            state, self.restless = self.restless.state(), self.make()
            self.restless.load(state)
        elif what == "copy":
            self.restless = copy.deepcopy(self.restless)
        elif what == "pickle":
            self.restless = pickle.loads(pickle.dumps(self.restless))


@pytest.mark.parametrize("label", METHODS)
@settings(max_examples=60)
@given(seed=seeds, dim=st.sampled_from([3, 8, 67, 512]), history=histories)
def test_interruptions_leave_no_trace(label, seed, dim, history):
    pair = Pair(label, seed, dim)
    for what, number in history:
        pair.do(what, number)
    assert bits(pair.steady.state()) == bits(pair.restless.state())
    for number in range(16):
        pair.do("predict", number)


@pytest.mark.parametrize("label", [label for label in METHODS if label.startswith("latte")])
@given(seed=seeds, history=histories)
def test_what_is_read_follows_from_the_memories(label, seed, history):
    """Merged class by class as images came, or all at once from the state: the same bits in the same order."""
    pair = Pair(label, seed, 67)
    for what, number in history:
        pair.do(what, number)
    merged, fresh = pair.steady.merged, pair.make()
    fresh.load(pair.steady.state())
    for name in ("vectors", "offset", "gram"):
        assert getattr(merged, name).tobytes() == getattr(fresh.merged, name).tobytes()


@given(seeds, st.integers(1, 5), st.integers(0, 5))
def test_a_merge_keeps_the_lowest_entropies(seed, slots, others):
    rng = np.random.default_rng(seed)
    local, external = LocalMemory(2, slots, 4), an_external(rng, others, 4, classes=2)
    external = External(external.vectors, rng.integers(0, 4, (2, others)) / 4, external.valid)  # with ties
    for _ in range(int(rng.integers(0, 2 * slots))):
        local.insert(0, unit(rng, 4), int(rng.integers(0, 4)) / 4)
    for label in (0, 1):
        _, (entropy,), (valid,), _ = merge_memories(local, external, slice(label, label + 1))
        there = [*local.entropy[label][local.valid[label]], *external.entropy[label][external.valid[label]]]
        assert sorted(entropy[valid].tolist()) == sorted(there)[:slots]
        assert entropy.shape == valid.shape == (slots,)


def rubbish(state, value):
    """Return a state with ``value`` in every free slot."""
    spoiled = {}
    for name, array in state.items():
        valid = state[name.rpartition(".")[0] + ".valid" if "." in name else "valid"]
        spoiled[name] = array.copy()
        if array.dtype.kind == "f":
            spoiled[name][~valid] = value
    return spoiled


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38])
@pytest.mark.parametrize("label", [label for label in METHODS if label not in ("clip", "vte", "zero")])
def test_free_slots_of_a_state_come_back_empty(label, value):
    pair = Pair(label, 5, 16)
    for step in [("predict", 0), ("predict", 1), ("receive", 4)]:
        pair.do(*step)
    state = pair.steady.state()
    assert any(array.dtype == np.bool_ and not array.all() for array in state.values())
    pair.restless.load(rubbish(state, value))
    assert bits(pair.restless.state()) == bits(state)
    for number in range(16):
        pair.do("predict", number)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("memory", ["both", "external"])
def test_free_slots_of_a_download_may_hold_anything(memory, dtype):
    rng = np.random.default_rng(6)
    zero_shot = a_zero_shot(rng, 8)
    clean = an_external(rng, 4, 8, zero_shot=zero_shot)
    vectors = np.where(clean.valid[..., None], clean.vectors, np.nan).astype(dtype)
    entropy = np.where(clean.valid, clean.entropy, np.inf)
    one, other = (Latte(zero_shot, LatteParams(memory=memory, k_l=3)) for _ in range(2))
    one.receive(clean)
    other.receive(External(vectors, entropy, clean.valid, clean.task))
    for image in unit(rng, 20, 1, 8):
        want = one.predict(image).scores
        assert np.isfinite(want).all() and other.predict(image).scores.tobytes() == want.tobytes()


def test_rows_of_many_dimensions_come_back_as_they_were():
    """Their float32 length may be off by more than rounding of one number; a second normalisation would change them."""
    rng = np.random.default_rng(7)
    zero_shot = a_zero_shot(rng, 30_000)
    client, other = Latte(zero_shot, LatteParams(k_l=3)), Latte(zero_shot, LatteParams(k_l=3))
    for image in unit(rng, 6, 1, 30_000) * np.float32(1.0000009):
        client.predict(image)
    full = np.ones((3, 2), np.bool_)
    client.receive(External(unit(rng, 3, 2, 30_000), rng.random((3, 2)), full, zero_shot.fingerprint))
    other.load(client.state())
    assert bits(other.state()) == bits(client.state())


def wrong_states(good):
    """Yield versions of a state that must be refused."""
    yield {**good, "surplus": np.zeros(2)}
    for name, array in good.items():
        rest = {key: value for key, value in good.items() if key != name}
        yield rest
        yield {**rest, name.replace("v", "w").replace("e", "w"): array}
        for wrong in (array.tolist(), None, array[None], array[:-1], array.astype(np.complex64), array.astype(object)):
            yield {**rest, name: wrong}
        if array.dtype.kind == "f":
            other = np.float16 if array.dtype == np.float32 else np.float32
            yield {**rest, name: array.astype(other)}
            for value in (np.nan, np.inf, -np.inf):
                yield {**rest, name: np.full_like(array, value)}
        else:
            yield {**rest, name: array.astype(np.uint8)}


@pytest.mark.parametrize("label", METHODS)
def test_other_states_are_refused_and_change_nothing(label):
    pair = Pair(label, 8, 16)
    for number in range(16):
        pair.steady.predict(pair.images[number])
    pair.restless.predict(pair.images[0])
    if isinstance(pair.steady, Collaborative):
        pair.steady.receive(an_external(pair.rng, 3, 16, zero_shot=pair.steady.zero_shot))
    before = bits(pair.restless.state())
    for state in (*wrong_states(pair.steady.state()), None, [], 7, {3: np.zeros(1)}):
        with pytest.raises(ValueError, match=r": got .*, want "):
            pair.restless.load(state)
        assert bits(pair.restless.state()) == before


def test_a_local_memory_says_what_is_missing():
    memory = LocalMemory(3, 2, 4)
    for name in memory.state():
        with pytest.raises(ValueError, match=f"arrays: got no {name}"):
            memory.load({key: value for key, value in memory.state().items() if key != name})
