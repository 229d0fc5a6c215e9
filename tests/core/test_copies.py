"""Copies of whatever remembers behave as the original and are independent of it."""

import copy
import pickle

import numpy as np
import pytest

from latte import Latte, LocalMemory, Routing, ZeroShot
from latte.methods import METHODS, LatteParams, create, create_federation
from latte.methods.latte.readout import MergedMemory
from small_tasks import external, global_memory, prototypes

COPIES = {"copy": copy.copy, "deepcopy": copy.deepcopy, "pickle": lambda x: pickle.loads(pickle.dumps(x))}
NAMES = [name for name in METHODS if name != "tpt"]

pytestmark = pytest.mark.parametrize("duplicate", COPIES.values(), ids=COPIES)


def unit(rng, *shape):
    rows = rng.normal(size=shape)
    return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)


def a_zero_shot(classes=4, dim=16):
    return ZeroShot(unit(np.random.default_rng(0), classes, dim), tuple(map(str, range(classes))), scale=12.0)


def an_external(rng, slots=3):
    valid = rng.random((4, slots)) < 0.6
    vectors = np.where(valid[..., None], unit(rng, 4, slots, 16), 0).astype(np.float32)
    return external(vectors, np.where(valid, rng.random((4, slots)), 1.0), valid, a_zero_shot())


def bits(state):
    return {name: (array.dtype.str, array.shape, array.tobytes()) for name, array in state.items()}


def attributes(thing):
    return {key: value.tobytes() for key, value in vars(thing).items() if isinstance(value, np.ndarray)}


def test_the_example_of_a_copy_that_did_not_adapt(duplicate):
    a = Latte(ZeroShot(np.eye(3), ("a", "b", "c")))
    b = duplicate(a)
    for method in (a, b):
        np.testing.assert_allclose(method.predict([[0.6, 0.8, 0]]).scores, [60, 180, 0], atol=1e-4)


@pytest.mark.parametrize("views", [1, 12])
@pytest.mark.parametrize("name", [*NAMES, "latte released", "latte local", "latte external", "tda confident"])
def test_a_method(duplicate, name, views):
    params = {"released": {"variant": "released"}, "local": {"memory": "local"}, "external": {"memory": "external"}}
    kind, _, change = name.partition(" ")
    rng, zero_shot = np.random.default_rng(1), a_zero_shot()
    original = create(kind, zero_shot, params.get(change, {"views": change} if change else {}))
    for image in unit(rng, 25, views, 16):
        original.predict(image)
    if isinstance(original, Latte):
        original.receive(an_external(rng))
    second, before = duplicate(original), bits(original.state())
    stream = unit(rng, 25, views, 16)
    answers = [second.predict(image).scores.tobytes() for image in stream]
    assert bits(original.state()) == before, "the copy wrote into the original"
    assert [original.predict(image).scores.tobytes() for image in stream] == answers
    after = bits(second.state())
    original.reset()
    assert bits(second.state()) == after, "the original wrote into the copy"


def test_handles_of_one_memory_are_copied_with_it(duplicate):
    ann, bob = create_federation("tda-global", a_zero_shot(), clients=2)
    ann.predict(unit(np.random.default_rng(1), 1, 16))
    if duplicate is copy.copy:  # a handle is not the memory: a copy of it is one more handle
        assert copy.copy(ann).method is ann.method
        return
    carla, dora = duplicate([ann, bob])
    assert carla.method is dora.method and carla.method is not ann.method
    before = bits(ann.state())
    carla.reset()
    assert not dora.state()["positive.valid"].any() and bits(bob.state()) == before


def test_a_zero_shot_classifier_stays_read_only(duplicate):
    original = a_zero_shot()
    original.logits(original.text[0])
    second = duplicate(original)
    for array in (second.text, second.scaled, original.text, original.scaled):
        with pytest.raises(ValueError, match="read-only"):
            array[0, 0] = 2
    assert second.text.tobytes() == original.text.tobytes() and second.fingerprint == original.fingerprint
    assert (second.classnames, second.scale) == (original.classnames, original.scale)
    f = unit(np.random.default_rng(1), 16)
    assert second.logits(f).tobytes() == original.logits(f).tobytes()


def test_a_text_of_many_dimensions_is_not_normalised_again(duplicate):
    """In float32 the length of a long row depends on how it is summed up: a second normalisation could change bits."""
    wide = a_zero_shot(classes=30, dim=20_000)
    assert duplicate(wide).fingerprint == wide.fingerprint


def test_a_local_memory(duplicate):
    rng, memory = np.random.default_rng(2), LocalMemory(3, 2, 8)
    for k in range(5):
        memory.insert(k % 3, unit(rng, 8), 0.5)
    second, before = duplicate(memory), attributes(memory)
    assert attributes(second) == before
    assert second.insert(0, unit(rng, 8), 0.1) >= 0
    assert attributes(memory) == before and attributes(second) != before


def test_a_merged_memory(duplicate):
    rng, memory = np.random.default_rng(3), MergedMemory(3, 4, 8, gamma=2.0)
    second, f = duplicate(memory), unit(rng, 8)
    items = unit(rng, 3, 4, 8), rng.random((3, 4)), np.ones((3, 4), np.bool_)
    for each in (memory, second):
        each.replace(*items)
    assert second.cosines(f, 5.0).tobytes() == memory.cosines(f, 5.0).tobytes()
    second.replace(-items[0], *items[1:])
    assert memory.cosines(f, 5.0).tobytes() != second.cosines(f, 5.0).tobytes()


@pytest.mark.parametrize("empty_query", ["client", "released"])
def test_a_global_memory(duplicate, empty_query):
    rng, memory = np.random.default_rng(4), global_memory(3, 8, Routing(2, empty_query))
    uploads = [prototypes(unit(rng, 3, 8), np.ones(3, np.bool_)) for _ in range(12)]
    for k, upload in enumerate(uploads):
        memory.push(f"client {k}", upload)
    memory.forget("client 11")  # the last to join: who joins next gets its place
    second, before = duplicate(memory), bits(memory.state())
    assert bits(second.state()) == before
    second.push("client 0", uploads[5])
    second.forget("client 3")
    assert bits(memory.state()) == before
    restored = global_memory(3, 8, Routing(2, empty_query))
    restored.load(memory.state())
    for each in (memory, restored):
        each.push("client 0", uploads[5])
        each.forget("client 3")
        each.push("new", uploads[3])
    second.push("new", uploads[3])
    assert bits(second.state()) == bits(memory.state()) == bits(restored.state())


def test_parameters_and_downloads(duplicate):
    params, external = LatteParams(k_l=3), an_external(np.random.default_rng(5))
    assert duplicate(params) == params
    second = duplicate(external)
    assert second.vectors.tobytes() == external.vectors.tobytes() and second.valid.tobytes() == external.valid.tobytes()
