"""Many clients, several threads: the same predictions in other ways."""

import numpy as np
import pytest

from experiment.engine_support import compare, made_up
from latte.experiment.engine import latte as engine
from latte.experiment.engine import run_fast
from latte.experiment.engine.large import Recall, run_large, run_sample
from latte.experiment.schedule import Schedule
from latte.methods.latte import LatteParams

LENGTHS = (30, 25, 0, 30, 12, 30, 1, 28)
SCHEDULES = [Schedule(), Schedule(5), Schedule(2, participation=0.4), Schedule(3, barrier=False)]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
@pytest.mark.parametrize(
    ("variant", "empty"), [("paper", "client"), ("paper", "none"), ("paper", "released"), ("released", "released")]
)
def test_blocks_choose_the_same_donors(monkeypatch, schedule, variant, empty):
    monkeypatch.setattr(engine, "KEPT", 0)  # as if there were too many clients to keep their similarities
    params = {"variant": variant, "empty_query": empty, "k_l": 3, "k_e": 3}
    assert compare(made_up(LENGTHS, 5, 16, absent=1), "latte", params, schedule).ties == 0


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_change_nothing(threads):
    federation = made_up((150, 140, 150, 90), 3, 8)
    one, several = (run_fast(federation, "latte", threads=n) for n in (1, threads))
    for a, b in zip(one.labels, several.labels, strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(one.downloads, several.downloads)


def test_an_exact_index_gives_the_same_predictions():
    federation = made_up((12,) * 30, 4, 16)
    params, schedule = LatteParams(k_l=3, k_e=4), Schedule(4)
    large = run_large(federation, params, schedule, np.random.default_rng(0), "exact")
    assert (large.index, large.recall) == ("exact", 1.0)
    want = run_fast(federation, "latte", params, schedule)
    for a, b in zip(large.outcome.labels, want.labels, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_sample_is_exact_where_there_is_one_sync():
    federation = made_up((12,) * 30, 4, 16)
    params, schedule = LatteParams(k_l=3, k_e=4), Schedule(6)
    want, some = run_fast(federation, "latte", params, schedule), np.array([0, 8, 21])
    for i, labels in zip(some, run_sample(federation, params, schedule, np.random.default_rng(0), some), strict=True):
        np.testing.assert_array_equal(labels, want.labels[i])


@pytest.mark.parametrize("variant", ["paper", "released"])
def test_an_approximate_index_says_how_good_it_is(variant):
    pytest.importorskip("faiss")
    pytest.importorskip("numba")
    federation = made_up((8,) * 400, 3, 16)
    params = LatteParams(variant=variant, k_l=3, k_e=4)
    near = run_large(federation, params, Schedule(4), np.random.default_rng(0), "ivf")
    want = run_fast(federation, "latte", params, Schedule(4))
    same = np.mean(np.concatenate(near.outcome.labels) == np.concatenate(want.labels))
    assert 0.6 < near.recall <= 1
    assert same >= min(near.recall, near.recall_unseen) - 0.05


def test_recall_counts_what_was_found():
    recall = Recall()
    assert recall.share == 1
    recall.count(np.array([[1, 2, -1]]), np.array([[2, 5, -1]]))
    assert recall.share == 0.5


def test_unknown_index():
    with pytest.raises(ValueError, match="index"):
        run_large(made_up((3, 3), 3, 4), LatteParams(), Schedule(), np.random.default_rng(0), "hnsw")
