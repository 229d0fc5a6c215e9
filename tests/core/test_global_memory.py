"""The global memory: names, states and threads."""

from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from threading import Barrier

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latte import Routing
from latte.checks.exchange import turns
from latte.core.validate import pack_names, unpack_names
from latte.files.tensors import write_safetensors
from small_tasks import global_memory, prototypes

C, D = 3, 8
ROUTINGS = {
    "client": Routing(2),
    "none": Routing(2, "none"),
    "released": Routing(2, "released"),
    "to the letter": Routing(2, "released", drop_first_rank=True),
}


def unit(rng, *shape):
    rows = rng.normal(size=shape)
    return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)


def an_upload(seed):
    rng = np.random.default_rng(seed)
    seen = rng.random(C) < 0.8
    return prototypes(np.where(seen[:, None], unit(rng, C, D), np.float32(0)), seen)


def filled(routing, names="abcdefghij"):
    memory = global_memory(C, D, routing)
    for name in names:
        memory.push(name, an_upload(ord(name)))
    return memory


def bits(state):
    return {name: (array.dtype.str, array.shape, array.tobytes()) for name, array in state.items()}


# --- names --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "\ud800", "a\udfffb", "x" * 1025, "é" * 513, 7, None, b"a", ("a",), ["a"]])
def test_a_bad_name_is_refused_before_anything_changes(name):
    memory = filled(Routing(2))
    before = bits(memory.state())
    for call in (lambda: memory.push(name, an_upload(1)), *(lambda c=c: c(name) for c in _calls(memory))):
        with pytest.raises(ValueError, match=r"client: got .*, want "):
            call()
        assert bits(memory.state()) == before and len(memory) == 10


def _calls(memory):
    return memory.join, memory.pull, memory.forget, memory.neighbours


def test_a_long_name_is_not_repeated_in_the_refusal():
    with pytest.raises(ValueError, match="1024") as refusal:
        global_memory(C, D, Routing(2)).push("x" * 10**6, an_upload(1))
    assert len(str(refusal.value)) < 200


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=256), unique=True, max_size=20))
def test_any_text_is_a_name_and_comes_back_as_it_was(names):
    memory, other = global_memory(C, D, Routing(2)), global_memory(C, D, Routing(2))
    for seed, name in enumerate(names):
        memory.push(name, an_upload(seed))
    other.load(memory.state())
    assert other.clients == tuple(names)
    packed = pack_names(names)
    assert unpack_names(packed["names"], packed["name_lengths"]) == names


def test_a_trailing_nul_makes_another_client():
    memory, other = filled(Routing(2), "a"), filled(Routing(2), "")
    memory.push("a\0", an_upload(1))
    other.load(memory.state())
    assert other.clients == ("a", "a\0") and bits(other.state()) == bits(memory.state())


# --- states -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("routing", ROUTINGS.values(), ids=ROUTINGS)
def test_a_state_can_be_written_to_a_file(routing, tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy", reason="reads what is written here")
    memory, other = filled(routing), global_memory(C, D, routing)
    memory.push("a\0é", an_upload(1))
    write_safetensors(tmp_path / "memory.safetensors", memory.state(), {})
    other.load(safetensors.load_file(tmp_path / "memory.safetensors"))
    assert bits(other.state()) == bits(memory.state())


def damaged(good):
    """Yield states that are refused, with what is wrong."""
    n = len(good["order"])
    same_name = {**good, "names": np.where(good["names"] == ord("b"), np.uint8(ord("a")), good["names"])}
    yield "a name twice", same_name
    yield "no UTF-8", {**good, "names": np.full_like(good["names"], 0xFF)}
    yield "a surrogate", {**good, "names": np.frombuffer(b"\xed\xa0\x80abcdefghi", np.uint8), **lengths(3, n)}
    yield "an empty name", {**good, "name_lengths": np.array([0, 2] + [1] * (n - 2))}
    yield "a negative length", {**good, "name_lengths": np.array([-1, 3] + [1] * (n - 2))}
    yield "a name too long", {**good, "names": np.full(n + 2000, 97, np.uint8), **lengths(2001, n)}
    yield "too few bytes", {**good, "names": good["names"][:-1]}
    yield "a table of names", {**good, "name_lengths": good["name_lengths"][None]}
    yield "names of numpy", {**good, "names": np.array(list("abcdefghij"))}
    yield "a float order", {**good, "order": good["order"].astype(np.float64)}
    yield "a signed order", {**good, "order": good["order"].astype(np.int64)}
    yield "a short order", {**good, "order": good["order"][:-1]}
    yield "no place left", {**good, "order": np.arange(2**64 - n, 2**64, dtype=np.uint64)}
    yield "a place twice", {**good, "order": np.full_like(good["order"], good["order"][0])}
    yield "one client more", {**good, "names": np.append(good["names"], np.uint8(120)), **lengths(1, n + 1)}
    yield "an entropy of 2", {**good, "entropy": good["entropy"] + 2}
    yield "an infinite entropy", {**good, "entropy": np.full_like(good["entropy"], np.inf)}
    yield "long vectors", {**good, "vectors": good["vectors"] * np.float32(2)}
    for name, array in good.items():
        yield f"no {name}", {key: value for key, value in good.items() if key != name}
        yield f"complex {name}", {**good, name: array.astype(np.complex128)}
        yield f"a list as {name}", {**good, name: array.tolist()}
    yield "one array more", {**good, "clients": good["order"]}


def lengths(first, n):
    return {"name_lengths": np.array([first] + [1] * (n - 1))}


@pytest.mark.parametrize("routing", ROUTINGS.values(), ids=ROUTINGS)
def test_a_damaged_state_changes_nothing(routing):
    memory, good = filled(routing, "xya"), filled(routing).state()
    before = bits(memory.state())
    for what, arrays in damaged(good):
        with pytest.raises(ValueError, match=r": got .*, want "):
            memory.load(arrays)
        assert bits(memory.state()) == before, what
        assert memory.clients == ("x", "y", "a"), what
    memory.load(good)
    assert bits(memory.state()) == bits(good)


def test_the_order_of_another_routing_is_refused():
    by_name, by_joining = filled(ROUTINGS["client"]), filled(ROUTINGS["released"])
    with pytest.raises(ValueError, match="order: got"):
        by_name.load(by_joining.state())
    with pytest.raises(ValueError, match="order: got"):
        by_joining.load(by_name.state())


def test_rows_that_are_not_seen_come_back_empty():
    memory, state = filled(Routing(2)), filled(Routing(2)).state()
    state["vectors"][~state["seen"]] = np.nan
    state["entropy"][~state["seen"]] = -7
    assert not state["seen"].all()
    before = bits(memory.state())
    memory.load(state)
    assert bits(memory.state()) == before


@pytest.mark.parametrize("routing", ROUTINGS.values(), ids=ROUTINGS)
@given(seed=st.integers(0, 2**32 - 1))
def test_a_restored_memory_goes_on_with_the_same_numbers(routing, seed):
    rng = np.random.default_rng(seed)
    steady, restless = global_memory(C, D, routing), global_memory(C, D, routing)
    for _ in range(40):
        name, forget, upload = f"client {rng.integers(12)}", rng.random() < 0.3, an_upload(rng.integers(1000))
        for memory in (steady, restless):
            if forget and name in memory:
                memory.forget(name)
            else:
                memory.push(name, upload)
        if rng.random() < 0.3:
            state, restless = restless.state(), global_memory(C, D, routing)
            restless.load(state)
    assert bits(steady.state()) == bits(restless.state())
    for name in steady.clients:
        assert steady.pull(name).vectors.tobytes() == restless.pull(name).vectors.tobytes()


# --- threads ------------------------------------------------------------------------------------------------------

THREADS = 8


def history(thread):
    """Return what one thread does with its own clients: (call, name, upload)."""
    rng, present, steps = np.random.default_rng(thread), set(), []
    for k in range(24):
        name = f"client {thread}.{rng.integers(5)}"
        call = str(rng.choice(["push", "push", "push", "pull", "forget", "join", "state"]))
        if call in ("pull", "forget") and name not in present:
            call = "push"
        present = present - {name} if call == "forget" else present | ({name} if call in ("push", "join") else set())
        steps.append((call, name, an_upload(1000 * thread + k)))
    return steps


def follow(memory, steps):
    """Do the steps; return every (class, vector, entropy) that came back."""
    rows = []
    for call, name, upload in steps:
        if call == "push":
            memory.push(name, upload)
        elif call == "state":
            global_memory(C, D, memory.routing).load(memory.state())  # whole, at any moment
        elif call == "pull":
            got = memory.pull(name)
            rows += [(y, got.vectors[y, e].tobytes()) for y, e in np.argwhere(got.valid)]
        else:
            getattr(memory, call)(name)
    return rows


def by_client(memory):
    state = memory.state()
    parts = zip(state["vectors"], state["entropy"], state["seen"], strict=True)
    return {name: tuple(x.tobytes() for x in row) for name, row in zip(memory.clients, parts, strict=True)}


@pytest.mark.parametrize("routing", ROUTINGS.values(), ids=ROUTINGS)
def test_many_threads_are_as_good_as_one(routing):
    """Every line of the memory is a chance for another thread; nothing is lost, nothing is mixed."""
    memory, sequential, start = global_memory(C, D, routing), global_memory(C, D, routing), Barrier(THREADS)
    histories = [history(thread) for thread in range(THREADS)]
    uploads = {
        (y, upload.vectors[y].tobytes())
        for steps in histories
        for call, _, upload in steps
        if call == "push"
        for y in range(C)
        if upload.seen[y]
    }

    def one_thread(steps):
        start.wait()
        with turns():
            return follow(memory, steps)

    with ThreadPoolExecutor(THREADS) as pool:
        rows = [row for part in pool.map(one_thread, histories) for row in part]
    for steps in histories:
        follow(sequential, steps)
    assert by_client(memory) == by_client(sequential)
    assert rows and set(rows) <= uploads
    order = memory.state()["order"]
    assert len(np.unique(order)) == len(order) == len(memory)


class Shown(str, Enum):  # noqa: UP042  a StrEnum shows its value
    """A text that shows itself as another one."""

    A = "a"


def test_a_subclass_of_str_is_the_text_that_it_is():
    memory = global_memory(C, D, Routing(2))
    for name in (Shown.A, "b"):
        memory.push(name, an_upload(1))
    assert memory.clients == ("a", "b") and "a" in memory
    memory.forget(Shown.A)
    assert memory.clients == ("b",)
    memory.load(memory.state())


def test_there_is_always_a_next_place():
    memory = global_memory(C, D, Routing(2, "released"))
    memory.push("a", an_upload(1))
    state = memory.state()
    state["order"][0] = 2**63 - 1
    memory.load(state)
    memory.push("b", an_upload(2))
    memory.load(memory.state())
    assert memory.clients == ("a", "b")
