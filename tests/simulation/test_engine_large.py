"""Many clients, several threads: the same predictions in other ways."""

import os

import numpy as np
import pytest

from latte.methods.latte import LatteParams
from latte.simulation.engine import blocks, run_fast
from latte.simulation.engine import latte_engine as engine
from latte.simulation.engine.crew import Crew
from latte.simulation.engine.large import Recall, run_large, run_sample
from latte.simulation.schedule import Schedule
from simulation.engine_support import compare, made_up

LENGTHS = (30, 25, 0, 30, 12, 30, 1, 28)
SCHEDULES = [Schedule(), Schedule(5), Schedule(2, participation=0.4), Schedule(3, barrier=False)]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
@pytest.mark.parametrize(
    ("variant", "empty"), [("paper", "client"), ("paper", "none"), ("paper", "released"), ("released", "released")]
)
@pytest.mark.parametrize("backend", ["auto", "numpy"])
def test_blocks_choose_the_same_donors(monkeypatch, schedule, variant, empty, backend):
    monkeypatch.setattr(engine, "KEPT", 0)  # as if there were too many clients to keep their similarities
    monkeypatch.setattr(blocks, "BLOCK", 2)
    monkeypatch.setattr(blocks, "TILE", 3)
    params = {"variant": variant, "empty_query": empty, "k_l": 3, "k_e": 3}
    assert compare(made_up(LENGTHS, 5, 16, absent=1), "latte", params, schedule, backend=backend).ties == 0


def test_blocks_of_many_clients_are_shared_by_threads(monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK", 7)
    federation, params = made_up((9,) * 60, 4, 16), LatteParams(k_l=3, k_e=4)
    one, two = (run_large(federation, params, Schedule(3), np.random.default_rng(0), "exact", n) for n in (1, 2))
    for a, b in zip(one.outcome.labels, two.outcome.labels, strict=True):
        np.testing.assert_array_equal(a, b)


def test_what_goes_wrong_in_a_thread_is_raised():
    def fail(part):
        if part == 7:
            raise RuntimeError("seven")

    with Crew(3) as crew, pytest.raises(RuntimeError, match="seven"):
        crew.share(fail, range(20))


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


def test_old_machine_code_goes_with_its_index(tmp_path):
    """Else numba, which writes a new index before the code, could be given the old code under it."""
    pytest.importorskip("numba")
    from latte.simulation.engine.compiled import _forget_what_is_old

    code = tmp_path / "__pycache__"
    code.mkdir()
    for number, name in enumerate(("old.nbi", "old.1.nbc", "new.nbi", "new.1.nbc")):
        (code / name).touch()
        os.utime(code / name, (100 * (number // 2),) * 2)
    (tmp_path / "loops.py").touch()
    os.utime(tmp_path / "loops.py", (50, 50))
    _forget_what_is_old(tmp_path)
    assert sorted(path.name for path in code.iterdir()) == ["new.1.nbc", "new.nbi"]
