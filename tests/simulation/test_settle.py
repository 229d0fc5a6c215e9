"""Choices in doubt: the few nearest are enough for what the definition chooses among all."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latte import Routing
from latte.engine import reader, server
from latte.engine.loops.arrays import NEAR_SIMILARITY
from latte.engine.server import choose_among_nearest, choose_donors
from latte.methods.latte.donors import Uploaded, donors_of
from simulation.engine_support import compare, made_up, unit


def make_uploads(rng, n, dim, spread, share, own):
    """Return the uploads of one class, ``spread`` apart, some of them equal; where one is missing, it is zero."""
    vectors = unit(rng.normal(size=dim) + spread * rng.normal(size=(n, dim)))
    vectors = vectors[np.where(rng.random(n) < 0.3, rng.integers(0, n, n), np.arange(n))]
    seen = (rng.random(n) < share) | (np.arange(n) == own)
    return Uploaded(np.where(seen[:, None], vectors, np.float32(0))[None], seen[:, None], rng.permutation(n))


@settings(max_examples=200)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(2, 60),
    dim=st.sampled_from([2, 16, 512]),
    slots=st.integers(1, 70),
    rules=st.sampled_from(
        [("client", False), ("none", False), ("released", False), ("released", True), ("none", True)]
    ),
    spread=st.sampled_from([1e-7, 1e-4, 1e-3, 0.05, 1.0]),
    share=st.sampled_from([0.1, 0.6, 1.0]),
)
def test_the_nearest_are_enough(seed, n, dim, slots, rules, spread, share):
    rng = np.random.default_rng(seed)
    routing, own = Routing(slots, *rules), int(rng.integers(n))
    uploaded = make_uploads(rng, n, dim, spread, share, own)
    similarity = uploaded.vectors[0] @ uploaded.vectors[0, own]
    similarity += rng.uniform(-NEAR_SIMILARITY / 4, NEAR_SIMILARITY / 4, n).astype(np.float32) * uploaded.seen[:, 0]
    donors = donors_of(uploaded, routing, own)
    want = np.where(donors.valid[0], donors.rows[0], -1)
    np.testing.assert_array_equal(choose_among_nearest(uploaded, routing, own, similarity), want)
    np.testing.assert_array_equal(choose_donors(lambda labels: uploaded, routing, own, 0, True), want)


@pytest.mark.parametrize("in_blocks", [False, True])
def test_clients_with_nothing_in_common_are_chosen_by_the_ranking_alone(monkeypatch, in_blocks):
    """They are exactly equal: nothing is in doubt. With short streams and many classes they are most of the donors."""
    settled = []

    def note(call):
        return lambda *values, **options: settled.append(values) or call(*values, **options)

    monkeypatch.setattr(reader, "SIMILARITY_BYTES", 0 if in_blocks else reader.SIMILARITY_BYTES)
    monkeypatch.setattr(server, "donors_of_unseen", note(server.donors_of_unseen))
    monkeypatch.setattr(server, "choose_donors", note(server.choose_donors))
    comparison = compare(made_up((4,) * 30, 20, 16, seed=3), "latte")
    assert not comparison.ties and comparison.downloads_equal and not settled
