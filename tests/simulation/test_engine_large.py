"""Many clients, several threads: the same predictions in other ways."""

import numpy as np
import pytest

from latte.engine import has_loops, run_fast
from latte.engine.streams import Crew
from latte.simulation.simulator import Schedule
from simulation.engine_support import compare, made_up

if not has_loops():
    pytest.skip("Latte's loops need numba", allow_module_level=True)

from latte.engine import reader, server

LENGTHS = (30, 25, 0, 30, 12, 30, 1, 28)
SCHEDULES = [Schedule(), Schedule(5), Schedule(2, participation=0.4), Schedule(3, barrier=False)]


@pytest.fixture
def in_blocks(monkeypatch):
    """As if there were too many clients to keep their similarities."""
    monkeypatch.setattr(reader, "SIMILARITY_BYTES", 0)
    monkeypatch.setattr(server, "MEMBERS_AT_ONCE", 2)
    monkeypatch.setattr(server, "CLIENTS_AT_ONCE", 3)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
@pytest.mark.parametrize(
    ("variant", "empty"), [("paper", "client"), ("paper", "none"), ("paper", "released"), ("released", "released")]
)
def test_blocks_choose_the_same_donors(in_blocks, schedule, variant, empty):
    params = {"variant": variant, "empty_query": empty, "k_l": 3, "k_e": 3}
    outcome = compare(made_up(LENGTHS, 5, 16, absent=1), "latte", params, schedule)
    assert outcome.ties == 0
    assert outcome.downloads_equal


@pytest.mark.parametrize("variant", ["paper", "released"])
def test_blocks_take_ties_as_the_readable_simulator_does(in_blocks, variant):
    """The same images at several clients: their prototypes are equally similar to all others."""
    federation = made_up((15,) * 6, 4, 12)
    clients = tuple(type(c)(c.name, c.domain, federation.clients[0].samples) for c in federation.clients[:4])
    twins = type(federation)(federation.embeddings, clients + federation.clients[4:])
    outcome = compare(twins, "latte", {"variant": variant, "k_l": 2, "k_e": 2})
    assert outcome.ties == 0
    assert outcome.downloads_equal


def test_an_outcome_says_that_it_was_computed_in_blocks(in_blocks):
    assert run_fast(made_up((3, 3), 3, 4), "latte").engine == "fast, in blocks"


def test_the_downloads_of_very_many_clients_are_not_counted(in_blocks, monkeypatch):
    monkeypatch.setattr(server, "COUNTED", 8)
    assert run_fast(made_up((3, 3), 3, 4), "latte").downloads is None


def test_blocks_of_many_clients_are_shared_by_threads(in_blocks, monkeypatch):
    monkeypatch.setattr(server, "MEMBERS_AT_ONCE", 7)
    federation = made_up((9,) * 60, 4, 16)
    one, two = (run_fast(federation, "latte", {"k_l": 3, "k_e": 4}, Schedule(3), threads=n) for n in (1, 2))
    for a, b in zip(one.labels, two.labels, strict=True):
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
