"""Many uploads checked at once give what each gives alone, bit for bit; and vectors in another form follow changes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latte import Prototypes, Routing
from small_tasks import global_memory

SINGLE = 2.0**-24


def unit(rows):
    return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)


def uploads_of(memory, rng, m, spoil):
    """Return m uploads, stacked, some of them spoilt."""
    text = memory.zero_shot.text
    vectors = unit(text + 0.1 * rng.normal(size=(m, *text.shape)) / np.sqrt(text.shape[1]))
    vectors *= rng.choice([1.0, 1.0 + 5e-4, 1.0 - 3e-7], size=(m, len(text), 1)).astype(np.float32)
    seen = rng.random((m, len(text))) < rng.choice([0.3, 0.9, 1.0])
    for i in np.flatnonzero(rng.random(m) < spoil):
        vectors[i, rng.integers(len(text))] = rng.choice([np.nan, np.inf, 0.0, 1.0, -1.0])
        vectors[i] = vectors[i, ::-1] if rng.random() < 0.3 else vectors[i]
    return Prototypes(vectors, seen, memory.task)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 20), st.integers(2, 12), st.sampled_from([7, 64, 512]), st.booleans())
def test_many_uploads_are_checked_like_each(seed, m, classes, dim, spoilt):
    rng = np.random.default_rng(seed)
    memory = global_memory(classes, dim, Routing(3))
    stacked = uploads_of(memory, rng, m, 0.3 if spoilt else 0.0)
    together = memory.prepare_many(stacked, np.full((m, 1), SINGLE))
    for i, got in enumerate(together):
        one = Prototypes(stacked.vectors[i].copy(), stacked.seen[i].copy(), memory.task)
        try:
            want = memory.prepare(one, SINGLE)
        except ValueError:
            assert got is None
            continue
        assert got is not None or stacked.seen[i].sum() <= 1
        if got is not None:
            assert [a.tobytes() for a in got] == [a.tobytes() for a in want]


@pytest.mark.parametrize("clients", [5, 40])
def test_vectors_in_another_form_follow_every_change(clients):
    rng = np.random.default_rng(clients)
    memory = global_memory(4, 16, Routing(3))
    names = [f"client {i}" for i in range(clients)]

    def push(name):
        vectors = unit(memory.zero_shot.text + 0.05 * rng.normal(size=(4, 16)))
        memory.push(name, Prototypes(vectors, rng.random(4) < 0.8, memory.task))

    def check():
        asking = [name for name in names if name in memory]
        picked = memory.pick(asking)
        halves = memory.picked_vectors(picked, "half", lambda rows: rows.astype(np.float16))
        plain = memory.picked_vectors(picked, "plain", None)
        for i, want in enumerate(memory.pull_many(asking)):
            valid = want.valid.reshape(-1)
            assert np.array_equal(picked.entropy[i], want.entropy) and np.array_equal(picked.valid[i], want.valid)
            assert np.array_equal(plain[i][valid], want.vectors.reshape(-1, 16)[valid])
            assert np.array_equal(halves[i][valid], want.vectors.reshape(-1, 16)[valid].astype(np.float16))

    for name in names:
        push(name)
        check()
    for name in rng.choice(names, 10):
        push(str(name))
        check()
    for name in names[: clients // 2]:
        memory.forget(name)
        check()
