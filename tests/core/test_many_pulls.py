"""``pull_many`` gives what single pulls give, bit for bit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latte import Routing
from latte.methods.latte import donors
from small_tasks import global_memory, prototypes

ROUTINGS = [
    ("client", False),
    ("none", False),
    ("released", False),
    ("released", True),
    ("none", True),
]


def unit(rows):
    return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)


def filled(rng, n, classes, dim, routing, spread, share, copies=0.3):
    """Return a memory whose prototypes of a class are ``spread`` apart; some are copies of another client's."""
    memory, centres = global_memory(classes, dim, routing), rng.normal(size=(classes, dim))
    earlier = []
    for i in range(n):
        vectors = unit(centres + spread * rng.normal(size=(classes, dim)))
        if earlier and rng.random() < copies:
            vectors = earlier[int(rng.integers(len(earlier)))]
        earlier.append(vectors)
        seen = rng.random(classes) < share
        memory.push(f"client {i}", prototypes(np.where(seen[:, None], vectors, np.float32(0)), seen))
    return memory


def assert_same(memory, names):
    downloads, counts = memory.pull_traced(names)
    for row, (name, got) in enumerate(zip(names, downloads, strict=True)):
        want = memory.pull(name)
        for field in ("vectors", "entropy", "valid"):
            assert getattr(got, field).tobytes() == getattr(want, field).tobytes(), (name, field)
        rows, valid = memory.neighbours(name)
        assert np.array_equal(counts[row], np.bincount(rows[valid], minlength=len(memory)))


@settings(max_examples=150)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(2, 24),
    st.integers(2, 5),
    st.sampled_from([2, 16, 65, 512]),
    st.integers(0, 30),
    st.sampled_from(ROUTINGS),
    st.sampled_from([1e-7, 1e-3, 0.05, 1.0]),
    st.sampled_from([0.0, 0.4, 0.9, 1.0]),
)
def test_many_pulls_are_as_many_pulls(seed, n, classes, dim, k_e, rules, spread, share):
    rng = np.random.default_rng(seed)
    routing = Routing(k_e, rules[0], drop_first_rank=rules[1])
    memory = filled(rng, n, classes, dim, routing, spread, share)
    some = [str(name) for name in rng.choice(memory.clients, int(rng.integers(1, n + 1)), replace=False)]
    for names in (some, list(memory.clients)):
        assert_same(memory, names)


@pytest.mark.parametrize("spread", [0.3, 1.0])
def test_few_choices_are_made_twice(spread, monkeypatch):
    """What is too close to order is computed again in double precision: that must stay the exception."""
    memory = filled(np.random.default_rng(0), 200, 4, 128, Routing(5), spread, 1.0, copies=0)
    settled, settle = [], donors._Choices._settle

    def count(self, questions, *rest):
        settled.append(len(questions.client))
        return settle(self, questions, *rest)

    monkeypatch.setattr(donors._Choices, "_settle", count)
    memory.pick(list(memory.clients))
    assert 0 < sum(settled) < 0.1 * 200 * 4


@pytest.mark.parametrize("dim", [64, 512, 1024, 2048])
def test_the_tolerance_covers_the_orders_of_summation(dim):
    rng = np.random.default_rng(dim)
    for spread in (1.0, 0.1, 0.01):
        vectors = unit(rng.normal(size=dim) + spread * rng.normal(size=(300, dim)))
        many = vectors @ vectors.T
        one = np.stack([np.matmul(vectors[None], v[None, :, None])[0, :, 0] for v in vectors])
        assert np.abs(many - one).max() * 2 < donors.NEAR, "either of two products may be off"


def test_nobody_pulls_from_an_empty_memory():
    memory = global_memory(3, 8, Routing(5))
    downloads, counts = memory.pull_traced([])
    assert downloads == [] and counts.shape == (0, 0)


def by_definition(memory, own, label, slots):
    """Return the donors of a class: those of the highest exact similarity, among equals by the ranking."""
    table, n = memory._rows, len(memory)
    vectors, seen, order = table.vectors.transpose(1, 0, 2).astype(np.float64), table.seen, table.order
    if seen[own, label]:
        score = (vectors[label] * vectors[label, own]).sum(axis=1)
    else:
        score = np.zeros(n)
        common = seen & seen[own]
        for y in np.flatnonzero(seen[own]):
            score += np.where(common[:, y], (vectors[y] * vectors[y, own]).sum(axis=1), 0)
        score = np.where(common.any(axis=1), score / np.maximum(common.sum(axis=1), 1), -2.0)
    donors = [j for j in np.lexsort((order, -score)) if j != own and seen[j, label]]
    return donors[:slots]


def variants(case, rng, n, classes, dim):
    """Return the prototypes (n, C, D) of clients of which many are equal, or nearly so."""
    some = {"one": 1, "two": 2, "ten": 10}.get(case, 1)
    vectors = unit(rng.normal(size=(some, classes, dim)))[rng.integers(some, size=n)]
    if case == "a step apart":
        step = rng.random(vectors.shape) < 0.1
        vectors = np.where(step, np.nextafter(vectors, np.float32(1)), vectors)
    if case == "signed zeros":
        vectors[:, :, dim // 2 :] = 0
        vectors = unit(vectors)
        vectors[:, :, dim // 2 :] = np.where(rng.random((n, classes, dim - dim // 2)) < 0.5, -0.0, 0.0)
    if case == "tiny differences":  # below the rounding of a product in double precision
        vectors[:, :, 0] = 0
        vectors = unit(vectors)
        vectors[:, :, 0] = 1e-25 * rng.random((n, classes))
    if case == "some classes":
        vectors[:, 0] = unit(rng.normal(size=(n, dim)))
    return vectors.astype(np.float32)


@pytest.mark.parametrize("share", [1.0, 0.6, 0.1, "the same"])
@pytest.mark.parametrize(
    "case", ["one", "two", "ten", "a step apart", "tiny differences", "signed zeros", "some classes"]
)
def test_clients_with_the_same_prototypes_are_chosen_by_the_definition(case, share):
    rng, n, classes, slots = np.random.default_rng(5), 150, 3, 4
    memory = global_memory(classes, 32, Routing(slots))
    vectors, seen = (
        variants(case, rng, n, classes, 32),
        rng.random((n, classes)) < (0.6 if share == "the same" else share),
    )
    if share == "the same":
        seen[:-10] = [True, False, True]
    for i in range(n):
        memory.push(f"client {i}", prototypes(np.where(seen[i, :, None], vectors[i], np.float32(0)), seen[i]))
    memory.forget("client 7")
    memory.push("client 8", prototypes(vectors[9], np.ones(classes, bool)))
    names = list(memory.clients)
    many = memory.pick(names)
    for own in range(0, len(names), 7):
        one = memory.neighbours(names[own])
        for label in range(classes):
            want = by_definition(memory, own, label, slots)
            assert one.rows[label][one.valid[label]].tolist() == want
            assert many.rows[own, label][many.valid[own, label]].tolist() == want


@pytest.mark.parametrize("share", [1.0, 0.6])
@pytest.mark.parametrize("case", ["one", "two", "ten", "a step apart"])
def test_few_exact_products_settle_the_pulls_among_copies(case, share, monkeypatch):
    """Also for rows that nearly are copies, and for classes that a client has not seen: a bound per choice."""
    rng, n, classes, dim, counted, dots = np.random.default_rng(2), 300, 4, 256, [], donors.exact_products
    monkeypatch.setattr(
        donors, "exact_products", lambda v, labels, *rest: counted.append(len(labels)) or dots(v, labels, *rest)
    )
    memory, vectors = global_memory(classes, dim, Routing(4)), variants(case, rng, n, classes, dim)
    seen = rng.random((n, classes)) < share
    for i in range(n):
        memory.push(f"client {i}", prototypes(np.where(seen[i, :, None], vectors[i], np.float32(0)), seen[i]))
    memory.pick(list(memory.clients))
    assert sum(counted) <= 4 * n * classes
    counted.clear()
    memory.pull("client 5")
    assert sum(counted) <= 20 * classes


def test_copies_are_compared_once(monkeypatch):
    """The exact products of a pull do not grow with the number of clients that hold the same prototypes."""
    vectors, counted, dots = unit(np.random.default_rng(0).normal(size=(3, 32))), [], donors.exact_products
    monkeypatch.setattr(
        donors, "exact_products", lambda v, labels, *rest: counted.append(len(labels)) or dots(v, labels, *rest)
    )
    memory = global_memory(3, 32, Routing(4))
    for i in range(300):
        memory.push(f"client {i}", prototypes(vectors, np.ones(3, bool)))
    memory.pull_many(list(memory.clients))
    assert sum(counted) <= 3
    memory.pull("client 5")
    assert sum(counted) <= 3 + 3 * 8
