"""Many clients, several threads, compiled once: the same predictions in other ways."""

import logging

import numpy as np
import pytest

from latte.data.bundled import bundled
from latte.simulation.engine import choosing, has_loops, run_fast, use_engine
from latte.simulation.engine.crew import Crew
from latte.simulation.schedule import Schedule
from simulation.engine_support import compare, made_up

if not has_loops():
    pytest.skip("Latte's loops need numba", allow_module_level=True)

from latte.simulation.engine import blocks, compiling, reader
from latte.simulation.engine import latte_engine as engine

LENGTHS = (30, 25, 0, 30, 12, 30, 1, 28)
SCHEDULES = [Schedule(), Schedule(5), Schedule(2, participation=0.4), Schedule(3, barrier=False)]


@pytest.fixture
def in_blocks(monkeypatch):
    """As if there were too many clients to keep their similarities."""
    monkeypatch.setattr(engine, "SIMILARITY_BYTES", 0)
    monkeypatch.setattr(blocks, "MEMBERS_AT_ONCE", 2)
    monkeypatch.setattr(blocks, "CLIENTS_AT_ONCE", 3)


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
    monkeypatch.setattr(blocks, "COUNTED", 8)
    assert run_fast(made_up((3, 3), 3, 4), "latte").downloads is None


def test_blocks_of_many_clients_are_shared_by_threads(in_blocks, monkeypatch):
    monkeypatch.setattr(blocks, "MEMBERS_AT_ONCE", 7)
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


def test_the_room_for_new_items_grows(monkeypatch):
    """A loop that lacks room leaves the memories as they were and goes on with more."""
    federation = made_up((60, 50, 60), 3, 8)
    usual = run_fast(federation, "latte")
    monkeypatch.setattr(reader, "NEW_ITEMS", 1)
    tight = run_fast(federation, "latte")
    for a, b in zip(usual.labels, tight.labels, strict=True):
        np.testing.assert_array_equal(a, b)


# --- compiled once -------------------------------------------------------------------------------------


def test_every_loop_is_compiled_for_one_kind_of_arguments():
    """Whatever the federation: several processes may then write the same file, and nothing is compiled twice."""
    federation = made_up(LENGTHS, 5, 16)
    federation.embeddings.views.flags.writeable = False
    for schedule in SCHEDULES:
        run_fast(federation, "latte", {"gamma": 2, "beta": 5}, schedule, np.random.default_rng(0))
    run_fast(bundled(), "latte")
    for kernel in compiling.KERNELS:
        assert len(kernel.signatures) == 1, kernel.signatures


def test_one_process_compiles_and_says_so(monkeypatch, caplog):
    compiled = []
    monkeypatch.setattr(compiling, "_ready", False)
    monkeypatch.setattr(compiling, "is_cached", lambda kernel: bool(compiled))
    monkeypatch.setattr(compiling, "run_latte", lambda *arguments: compiled.append(arguments))
    with caplog.at_level(logging.WARNING, "latte.engine"):
        compiling.prepare_loops()
        compiling.prepare_loops()
    assert len(compiled) == 1
    assert ["compiles" in caplog.messages[0], "compiled in" in caplog.messages[1]] == [True, True]


def test_a_small_run_does_not_wait_for_the_loops(monkeypatch):
    federation = made_up((20, 20), 3, 8)
    for cached in (True, False):
        monkeypatch.setattr(compiling, "_ready", False)
        monkeypatch.setattr(compiling, "is_cached", lambda kernel, cached=cached: cached)
        assert use_engine(federation, "latte") is cached
        assert use_engine(federation, "latte", runs=10_000), "ten thousand of them are worth it"
        assert use_engine(federation, "tda"), "which needs no compiled loops"
    assert not use_engine(federation, "zero")


def test_without_numba_a_line_says_which_path_is_taken(monkeypatch, caplog):
    monkeypatch.setattr(choosing, "has_loops", lambda: False)
    with caplog.at_level(logging.WARNING, "latte.engine"):
        choosing.warn_without_loops(["tda", "clip"])
        assert not caplog.messages
        choosing.warn_without_loops(["clip", "latte"])
    assert "readable" in caplog.text and 'pip install "latte-tta[fast]"' in caplog.text
