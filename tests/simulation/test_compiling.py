"""The compilation of the engine's loops: once, by several processes, and not for a small run."""

import logging
import shutil
import subprocess
import sys
from itertools import chain

import numpy as np
import pytest

from latte.data.bundled import bundled
from latte.engine import api as choosing
from latte.engine import has_loops, run_fast, use_engine
from latte.simulation.simulator import Schedule
from simulation.engine_support import made_up
from waiting import running

if not has_loops():
    pytest.skip("Latte's loops need numba", allow_module_level=True)

from latte.engine import cache


def test_every_kernel_is_compiled_for_the_types_in_its_annotations():
    """Whatever the federation: several processes may then write the same file, and nothing is compiled twice."""
    federation = made_up((30, 25, 0, 30, 12), 5, 16)
    federation.embeddings.views.flags.writeable = False
    for schedule in (Schedule(), Schedule(5), Schedule(2, participation=0.4), Schedule(3, barrier=False)):
        run_fast(federation, "latte", {"gamma": 2, "beta": 5}, schedule, np.random.default_rng(0))
    run_fast(bundled(), "latte")
    for name in chain(*cache.KERNEL_GROUPS):
        kernel = cache.kernel_of(name)
        assert kernel.signatures == [cache.signature_of(kernel.py_func)]


def test_only_what_is_compiled_changes_the_name_of_its_files(tmp_path):
    """A sentence does not throw away machine code that took a minute; another operation or version of numba does."""
    shutil.copytree(cache.LOOPS, tmp_path / "loops", ignore=shutil.ignore_patterns("__pycache__"))
    file = tmp_path / "loops" / "route.py"
    source, line = file.read_text(), "    total = 0.0\n"
    assert line in source

    def changed(text):
        file.write_text(text)
        cache.hash_loops.cache_clear()
        return cache.hash_loops(tmp_path / "loops")

    assert changed(source) == cache.hash_loops()
    assert changed(source.replace('"""Return', '"""Give back', 3)) == cache.hash_loops()
    assert changed(source.replace(line, f"    # a comment\n\n{line}")) == cache.hash_loops()
    assert changed(source.replace(line, "    total = 1.0\n")) != cache.hash_loops()


def test_machine_code_is_for_one_version_of_numba(monkeypatch):
    present = cache.hash_loops()
    monkeypatch.setattr(cache, "version", lambda package: "0.1")
    assert cache.hash_loops.__wrapped__() != present


def test_a_loop_that_moved_to_another_line_keeps_its_files():
    name = cache.kernel_of("read.read_clients")._cache._cache_file._index_name
    assert name == f"read.read_clients.{cache.hash_loops()}.nbi"


TWO_SMALL_KERNELS = """
import sys
from latte.engine import cache
names = "classify.squares", "route.fill_queues"
cache.KERNEL_GROUPS = [(name,) for name in names]
print(list(cache.compile_loops()), cache.are_loops_on_disk(), "numba" in sys.modules)
print(cache.are_loops_ready(), cache.is_cached(cache.kernel_of("route.play")))
"""


@pytest.mark.slow
def test_two_processes_that_start_together_compile_everything_once(tmp_path):
    command = sys.executable, "-c", TWO_SMALL_KERNELS
    with (
        running(*command, NUMBA_CACHE_DIR=str(tmp_path)) as one,
        running(*command, NUMBA_CACHE_DIR=str(tmp_path)) as two,
    ):
        for process in (one, two):
            done = process.finish()
            assert not done.stderr
            assert done.stdout.splitlines() == ["[(0, 2), (1, 2), (2, 2)] True False", "True False"]
    assert len(list(tmp_path.rglob("*.nbc"))) == 2
    assert not list(tmp_path.rglob("*.lock"))


def test_a_compilation_that_is_stopped_leaves_no_process_behind(monkeypatch):
    started = []
    start = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda *a, **options: started.append(start(*a, **options)) or started[-1])
    steps = cache.compile_loops()
    assert next(steps) == (0, 7)
    steps.close()
    assert not started, "none has started before somebody waits for it"
    with cache._compilers(2):
        assert len(started) == 2
    assert all(process.returncode is not None for process in started)


def test_what_is_missing_is_compiled_once_and_two_lines_say_so(monkeypatch, caplog):
    compiled = []
    monkeypatch.setattr(cache, "_ready", False)
    monkeypatch.setattr(cache, "is_cached", lambda kernel: bool(compiled))
    monkeypatch.setattr(cache, "compile_loops", lambda: compiled.append(1) or iter([(0, 1), (1, 1)]))
    with caplog.at_level(logging.WARNING, "latte.engine"):
        cache.prepare_loops()
        cache.prepare_loops()
    assert len(compiled) == 1
    assert ["compiles" in caplog.messages[0], "compiled in" in caplog.messages[1]] == [True, True]


def test_a_small_run_does_not_wait_for_the_loops(monkeypatch):
    federation = made_up((20, 20), 3, 8)
    seconds = choosing.readable_seconds(federation)
    for cached in (True, False):
        monkeypatch.setattr(cache, "_ready", False)
        monkeypatch.setattr(cache, "is_cached", lambda kernel, cached=cached: cached)
        monkeypatch.setattr(choosing, "are_loops_on_disk", lambda cached=cached: cached)
        assert use_engine(federation, "latte") is cached
        assert use_engine(federation, "latte", runs=10_000), "ten thousand of them are worth it"
        assert use_engine(federation, "tda"), "which needs no compiled loops"
        assert not choosing.must_compile("latte", {}, seconds)
        assert choosing.must_compile("latte", {}, 10_000 * seconds) is not cached
        assert not choosing.must_compile("tda", {}, 10_000 * seconds)
        assert not choosing.must_compile("latte", {"near_copy": 0.99}, 10_000 * seconds), (
            "the readable simulator runs it"
        )
    assert not use_engine(federation, "zero")


def test_without_numba_a_line_says_which_path_is_taken(monkeypatch, caplog):
    monkeypatch.setattr(choosing, "has_loops", lambda: False)
    with caplog.at_level(logging.WARNING, "latte.engine"):
        choosing.warn_of_slow_path([("tda", {}), ("clip", {})])
        assert not caplog.messages
        choosing.warn_of_slow_path([("clip", {}), ("latte", {})])
    assert "readable" in caplog.text and 'pip install "numba>=' in caplog.text
