"""What the engine runs follows from the class of a method and its form, never from the name it is registered under."""

from __future__ import annotations

import numpy as np
import pytest

from latte import Clip, Latte
from latte.engine import MethodEngine, has_engine, has_loops, readout_parameters, run_fast, run_grid
from latte.engine.api import needs_loops
from latte.methods import METHODS, describe, register
from latte.methods.registry import Registration
from latte.methods.tda import Tda
from latte.simulation.simulator import Schedule, run_readable
from simulation.engine_support import made_up

FEDERATION = made_up((24, 20, 24, 15), 5, 12, spread=1.5)
CLASSES = sorted({known.target for known in METHODS.values() if "tpt" not in known.target})
WITH_ENGINE = {"Clip": (True, True), "Tda": (True, True), "Dmn": (True, True), "Latte": (True, False)}
WITH_ENGINE["Ristretto"] = (True, False)


@pytest.fixture
def alias(monkeypatch):
    """Return what registers a class under a new name for one test."""

    def make(target, shared=False):
        monkeypatch.setitem(METHODS, "another-name", Registration(target, shared))
        return "another-name"

    return make


@pytest.mark.parametrize("shared", [False, True], ids=["own memories", "one memory"])
@pytest.mark.parametrize("target", CLASSES)
def test_an_alias_gives_the_results_of_the_readable_simulator(alias, target, shared):
    name, schedule = alias(target, shared), Schedule(2, participation=0.8)
    fast = run_fast(FEDERATION, name, None, schedule, np.random.default_rng(3))
    if target.endswith(":Latte") and not has_loops():
        assert fast is None
        return
    kind = target.partition(":")[2]
    assert (fast is not None) == WITH_ENGINE.get(kind, (False, False))[shared]
    if fast is not None:
        slow = run_readable(FEDERATION, name, None, schedule, np.random.default_rng(3))
        np.testing.assert_array_equal(np.concatenate(fast.labels), np.concatenate(slow.labels))
        np.testing.assert_allclose(np.concatenate(fast.confidences), np.concatenate(slow.confidences), atol=2e-5)
        assert (fast.downloads is None) == (slow.downloads is None)


def test_the_forms_differ_so_that_the_test_above_can_fail(alias):
    name = alias("latte.methods.latte.client:Latte", shared=True)
    shared, own = (np.concatenate(run_readable(FEDERATION, method).labels) for method in (name, "latte"))
    assert (shared != own).any()


def test_what_an_alias_needs_follows_from_its_class(alias):
    assert readout_parameters(alias("latte.methods.dmn:Dmn")) == ("weight", "beta")
    assert needs_loops(alias("latte.methods.latte.client:Latte"))
    assert not needs_loops(alias("latte.methods.latte.client:Latte", shared=True))
    with pytest.raises(ValueError, match="readout"):
        run_grid(FEDERATION, alias("latte.methods.latte.client:Latte", shared=True), None, ([1], [1]))


class Loud(Tda):
    """A subclass predicts otherwise, so the engine of its base class is not its own."""


class Inverted(Clip):
    """A method with an engine that somebody else wrote."""

    engine = f"{__name__}:InvertedEngine"


class InvertedEngine(MethodEngine):
    def run(self, federation, params, options):
        return run_readable(federation, "clip", None, options.schedule, options.rng)


class NoEngine(Latte):
    engine = f"{__name__}:Loud"


def test_a_subclass_has_no_engine_unless_it_names_one(monkeypatch):
    for kind in (Loud, Inverted, NoEngine):
        monkeypatch.setitem(METHODS, kind.__name__, Registration(f"{__name__}:{kind.__name__}"))
    assert describe("Loud").engine is None and not has_engine("Loud")
    assert run_fast(FEDERATION, "Inverted").labels[0].shape == (24,)
    assert not has_engine("vte")
    with pytest.raises(ValueError, match="MethodEngine"):
        has_engine("NoEngine")


def test_confidences_are_left_out_by_every_engine():
    for name in ("clip", "tda", "dmn", "ristretto"):
        assert run_fast(FEDERATION, name, calibration=False).confidences is None
        assert run_readable(FEDERATION, name, calibration=False).confidences is None


def test_registering_twice_is_refused():
    with pytest.raises(ValueError, match="still free"):
        register("clip", "somewhere:Else")
