"""Many pulls at once give what as many pulls give, bit for bit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latte import Routing
from latte.core import donors
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
    settled, settle = [], donors.NearTies.settle

    def count(self, asked, *question):
        settled.append(len(asked.client))
        return settle(self, asked, *question)

    monkeypatch.setattr(donors.NearTies, "settle", count)
    donors.donors_of_many(memory._collect_uploads(), memory.routing, np.arange(200))
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
