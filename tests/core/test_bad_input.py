"""Bad input is refused with a InputError that names the argument, and nothing changes."""

from dataclasses import replace

import numpy as np
import pytest

from latte import External, Latte, LocalMemory, Prototypes, Routing, ZeroShot, create, sync
from latte.core.validate import unit_rows
from latte.errors import InputError
from latte.methods import LatteParams
from small_tasks import a_task, global_memory, prototypes

TEXT = np.eye(3, 4, dtype=np.float32)
NAMES = ("cat", "dog", "owl")


def a_client(normalise=False):
    client = Latte(ZeroShot(TEXT, NAMES), k_l=2, normalise=normalise)
    for row in np.eye(4, dtype=np.float32)[:3]:
        client.predict(row[None])
    return client


GOOD = np.array([[0.6, 0.8, 0.0, 0.0]])
BAD_VIEWS = {
    "nan": (GOOD * np.nan, "views"),
    "infinite": (np.where(GOOD > 0, np.inf, 0), "views"),
    "nan in float32": ((GOOD * np.nan).astype(np.float32), "row 0"),
    "too large for float32": (GOOD * 1e300, "views"),
    "infinite square in float32": ((GOOD * 1e30).astype(np.float32), "length"),
    "rank 0": (1.0, r"\(1,\)"),
    "rank 3": (GOOD[None], r"\(1, 1, 4\)"),
    "wrong D": (np.ones((1, 5)) / 5**0.5, r"\(n, 4\)"),
    "no view": (np.zeros((0, 4)), r"\(0, 4\)"),
    "zero vector": (np.zeros((1, 4)), "zero vector in row 0"),
    "zero in the second view": (np.concatenate([GOOD, np.zeros((1, 4))]), "row 1"),
    "too long": (GOOD * 1.01, "normalise=True"),
    "text": ([["a", "b", "c", "d"]], "dtype"),
    "ragged": ([[1.0, 0, 0, 0], [1.0]], "different lengths"),
    "complex": (GOOD * 1j, "dtype"),
    "None": (None, "dtype"),
}


@pytest.mark.parametrize("case", BAD_VIEWS)
def test_views(case):
    client, (views, message) = a_client(), BAD_VIEWS[case]
    before = client.state()
    with pytest.raises(InputError, match=message):
        client.predict(views)
    after = client.state()
    assert all(before[name].tobytes() == after[name].tobytes() for name in before)


def test_nearly_unit_rows_are_normalised():
    logits = [a_client().predict(GOOD * factor).scores for factor in (1, 1.0009, 0.9991)]
    np.testing.assert_allclose(logits[1], logits[0], atol=1e-4)
    np.testing.assert_allclose(logits[2], logits[0], atol=1e-4)


def test_normalise_accepts_any_length():
    want = a_client().predict(GOOD).scores
    for factor in (7.0, 1e-20, 1e20):
        np.testing.assert_allclose(a_client(normalise=True).predict(GOOD * factor).scores, want, atol=1e-4)
    with pytest.raises(InputError, match="zero vector"):
        a_client(normalise=True).predict(GOOD * 0)


def test_stored_vectors_are_unit():
    client = a_client(normalise=True)
    client.predict(GOOD * 3)
    np.testing.assert_allclose(np.linalg.norm(client.local.vectors[client.local.valid], axis=1), 1, atol=1e-6)


@pytest.mark.parametrize(
    ("text", "names", "scale", "message"),
    [
        (TEXT[:1], ("cat",), 100.0, "C = 1"),
        (TEXT, ("cat", "dog"), 100.0, "classnames"),
        (TEXT, ("cat", "dog", "cat"), 100.0, "twice"),
        (TEXT * np.nan, NAMES, 100.0, "text"),
        (TEXT * 0, NAMES, 100.0, "zero vector"),
        (TEXT * 2, NAMES, 100.0, "text"),
        (TEXT[0], NAMES, 100.0, "shape"),
        (TEXT, NAMES, 0.0, "scale"),
        (TEXT, NAMES, float("nan"), "scale"),
    ],
)
def test_zero_shot(text, names, scale, message):
    with pytest.raises(InputError, match=message):
        ZeroShot(text, names, scale)


@pytest.mark.parametrize(
    "change",
    [
        {"k_l": 0}, {"k_l": 1.5}, {"k_e": -1}, {"alpha": -1.0}, {"beta": float("nan")}, {"gamma": float("inf")},
        {"variant": "published"}, {"memory": "none"}, {"prototype": "median"}, {"empty_query": "text"},
        {"gamma_prototype": -1.0}, {"variant": "released", "empty_query": "client"}, {"alpha": "1"}, {"k_l": True},
    ],
)  # fmt: skip
def test_params(change):
    with pytest.raises(InputError, match="got"):
        LatteParams(**change)


@pytest.mark.parametrize("label", [-1, 3, 99, 1.5, True])
def test_labels(label):
    memory = LocalMemory(3, 2, 4)
    with pytest.raises(InputError, match="label"):
        memory.insert(label, GOOD[0], 0.5)
    assert not memory.valid.any()


@pytest.mark.parametrize("entropy", [-0.1, 1.1, float("nan")])
def test_entropies(entropy):
    memory = LocalMemory(3, 2, 4)
    with pytest.raises(InputError, match="entropy"):
        memory.insert(0, GOOD[0], entropy)
    assert not memory.valid.any()


def an_upload(**change):
    task = a_task(3, 4).fingerprint
    return Prototypes(**{"vectors": TEXT.copy(), "seen": np.ones(3, np.bool_), "task": task, **change})


@pytest.mark.parametrize(
    "change",
    [
        {"vectors": TEXT[:2]}, {"vectors": TEXT * np.nan}, {"vectors": TEXT * 2}, {"vectors": TEXT * 0},
        {"task": ""}, {"task": "0" * 64}, {"task": None},
        {"seen": np.ones(3)}, {"seen": np.ones(4, np.bool_)}, {"vectors": np.eye(3, 5)},
    ],
)  # fmt: skip
def test_uploads(change):
    memory = global_memory(3, 4, Routing(2))
    memory.push("a", an_upload())
    before = memory.state()
    for name in ("a", "b"):
        with pytest.raises(InputError, match="upload"):
            memory.push(name, an_upload(**change))
    after = memory.state()
    assert all(before[key].tobytes() == after[key].tobytes() for key in before)


def test_unknown_clients():
    memory = global_memory(3, 4, Routing(2))
    for call in (memory.pull, memory.forget, memory.neighbours):
        with pytest.raises(InputError, match="'ghost'"):
            call("ghost")
    for name in ("", 7, None):
        with pytest.raises(InputError, match="client"):
            memory.push(name, an_upload())
    assert len(memory) == 0


def test_more_slots_than_clients_is_no_error():
    """A federation starts with one client, so this is where every run begins: what there is comes back."""
    memory = global_memory(3, 4, Routing(50))
    memory.push("a", an_upload())
    assert memory.pull("a").valid.shape == (3, 0)
    memory.push("b", an_upload(seen=np.array([True, False, True])))
    assert memory.pull("a").valid.tolist() == [[True], [False], [True]]


def test_external_memory():
    client, good = a_client(), External.empty(ZeroShot(TEXT, NAMES), slots=1)
    before = client.state()
    for field, value in {
        "vectors": np.zeros((3, 2, 4)), "entropy": np.ones((3, 2)), "valid": np.ones((2, 1), np.bool_),
    }.items():  # fmt: skip
        with pytest.raises(InputError, match="external"):
            client.receive(replace(good, **{field: value}))
    with pytest.raises(InputError, match=r"external\.vectors"):
        client.receive(replace(good, valid=~good.valid))
    with pytest.raises(InputError, match=r"external\.task"):
        client.receive(replace(good, task="0" * 64))
    assert all(before[key].tobytes() == client.state()[key].tobytes() for key in before)


@pytest.mark.parametrize("key", ["local.vectors", "local.entropy", "local.valid", "external.vectors", "external.valid"])
def test_states_that_do_not_fit(key):
    client = a_client()
    before = client.state()
    broken = [{k: v for k, v in before.items() if k != key}, {**before, key: before[key][1:]}]
    for arrays in broken:
        with pytest.raises(InputError, match="got"):
            client.load(arrays)
        assert all(before[name].tobytes() == client.state()[name].tobytes() for name in before)


def test_unknown_names_offer_near_ones():
    zero_shot = ZeroShot(TEXT, NAMES)
    with pytest.raises(InputError, match="such as latte"):
        create("late", zero_shot)
    with pytest.raises(InputError, match="one of alpha"):
        create("latte", zero_shot, {"alhpa": 1})
    with pytest.raises(InputError, match="one of vlcs"):
        create("latte", zero_shot, preset="vlsc")


def test_unit_rows_does_not_touch_its_input():
    rows = GOOD.astype(np.float32)
    unit_rows("x", rows)[0, 0] = 9
    assert rows[0, 0] == np.float32(0.6)


def test_what_is_of_unit_length_stays_as_it_is():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(200, 512)).astype(np.float32)
    once = unit_rows("x", rows, normalise=True)
    assert unit_rows("x", once).tobytes() == once.tobytes()
    assert unit_rows("x", once[:1]).tobytes() == once[:1].tobytes()
    stretched = once * np.float32(1.0004)
    again = unit_rows("x", stretched)
    assert not np.array_equal(again, stretched) and np.abs(np.linalg.norm(again, axis=1) - 1).max() < 1e-6


def test_what_is_uploaded_is_stored_bit_for_bit():
    rng = np.random.default_rng(0)
    memory = LocalMemory(3, 4, 64)
    for k in range(12):
        memory.insert(k % 3, unit_rows("x", rng.normal(size=(1, 64)), normalise=True)[0], 0.1 + 0.05 * k)
    vectors, seen = memory.prototypes("exp_weighted", 6.0)
    server = global_memory(3, 64, Routing(1))
    server.push("ann", prototypes(vectors, seen))
    assert server.state()["vectors"][0].tobytes() == vectors.tobytes()


@pytest.mark.parametrize("member", [Latte(ZeroShot(np.eye(2), ("cat", "dog"))), "camera 7", ("camera 7",)])
def test_a_sync_wants_pairs_of_a_name_and_a_method(member):
    exchange = Latte.exchange_for(ZeroShot(np.eye(2), ("cat", "dog")))
    with pytest.raises(InputError, match=r"members: got a \w+, want pairs of a name and a method: sync\("):
        sync([member], exchange)
    assert len(exchange.state()["names"]) == 0
