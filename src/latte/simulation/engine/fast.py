"""What the engine offers: one run, or a grid of readouts in one run."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from ...core.extras import install_advice
from ...core.validate import at_least, factor
from ...data.benchmark import Federation
from ...errors import MissingExtra, refuse
from ...methods import METHODS, describe, resolve
from ...methods.parameters import ParameterChoice
from ...methods.registry import load_target
from ..outcome import Outcome
from ..schedule import Schedule
from .method_engine import GridEngine, GridOutcome, MethodEngine, ReadoutAxes, ReplayOptions

Axes = tuple[Sequence[float], Sequence[float]]


def has_loops() -> bool:
    """Say whether numba is there to compile the loops that Latte needs."""
    return importlib.util.find_spec("numba") is not None


def named_engine(name: str) -> MethodEngine[Any] | None:
    """Return the engine that the class of a method names; None if it names none, or none for the global form."""
    info = describe(name)
    engine = None if info.engine is None else _load_engine(info.engine)
    return None if engine is None or (info.shared and not engine.serves_shared) else engine


@lru_cache
def _load_engine(target: str) -> MethodEngine[Any]:
    kind = load_target(target)
    if not isinstance(kind, type) or not issubclass(kind, MethodEngine):
        raise refuse("engine", repr(target), "the name of a MethodEngine, such as 'my_package.my_module:MyEngine'")
    return kind()


def usable_engine(name: str, params: ParameterChoice = None) -> MethodEngine[Any] | None:
    """Return the engine that can run a method with these parameters; None: the readable simulator has to."""
    engine = named_engine(name)
    if engine is None or not engine.fits(resolve(name, params)) or (engine.needs_loops and not has_loops()):
        return None
    return engine


def has_engine(name: str, params: ParameterChoice = None) -> bool:
    """Say whether the engine can run a method with these parameters.

    It runs CLIP, Ristretto, Latte (with numba), and TDA and DMN on the plain view, none of them with ``near_copy``.
    """
    return usable_engine(name, params) is not None


def readout_parameters(name: str) -> tuple[str, str] | None:
    """Return the two parameters of a method that one replay can read with many values; None if there is no such engine.

    >>> readout_parameters("dmn-global")
    ('weight', 'beta')
    """
    engine = named_engine(name)
    return engine.readout if isinstance(engine, GridEngine) else None


def run_fast(
    federation: Federation,
    name: str,
    params: ParameterChoice = None,
    schedule: Schedule | None = None,
    rng: np.random.Generator | None = None,
    *,
    threads: int = 1,
    calibration: bool = True,
) -> Outcome | None:
    """Return what the readable simulator would return; None for a method that the engine cannot run.

    ``threads`` share the work of Latte; the result does not depend on their number. Without ``calibration``, the
    outcome has no confidences, and a run of Latte takes a few percent less time.

    >>> from latte.data.bundled import bundled
    >>> federation = bundled()
    >>> outcome = run_fast(federation, "clip")
    >>> round(outcome.result(federation, "clip", {}, "default", 0).micro, 2)
    35.57
    """
    engine = usable_engine(name, params)
    if engine is None:
        return None
    options = _checked_options(name, schedule, rng, threads)._replace(calibration=calibration)
    outcome = engine.run(federation, resolve(name, params), options)
    return outcome if calibration else replace(outcome, confidences=None)


def run_grid(
    federation: Federation,
    name: str,
    params: ParameterChoice,
    axes: Axes,
    schedule: Schedule | None = None,
    rng: np.random.Generator | None = None,
    *,
    threads: int = 1,
) -> GridOutcome:
    """Return the outcomes for all pairs of two readout parameters, from one replay.

    ``axes`` are the values of alpha and those of beta; for DMN the first is the weight of the memory.
    """
    engine = _grid_engine(name, params)
    if not all(map(len, axes)):
        raise refuse("grid", "an empty axis", "at least one value on both")
    checked = ([factor(key, value) for value in values] for key, values in zip(engine.readout, axes, strict=True))
    arrays = ReadoutAxes(*(np.array(values, np.float64) for values in checked))
    return engine.run_grid(federation, resolve(name, params), arrays, _checked_options(name, schedule, rng, threads))


def _grid_engine(name: str, params: ParameterChoice) -> GridEngine[Any]:
    """Return the engine for a grid of readouts, or refuse a method that has none."""
    engine = named_engine(name)
    if engine is not None and engine.needs_loops and not has_loops():
        raise MissingExtra(f"a grid of the readouts of {name} needs numba; {install_advice('fast')}")
    engine = usable_engine(name, params)
    if not isinstance(engine, GridEngine):
        known = ", ".join(other for other in METHODS if readout_parameters(other))
        raise refuse("method", repr(name), f"one with a readout that the engine knows: {known}")
    return engine


def _checked_options(
    name: str, schedule: Schedule | None, rng: np.random.Generator | None, threads: int
) -> ReplayOptions:
    info = describe(name)
    schedule = (schedule or Schedule()).for_method(info.sync)
    if schedule.participation < 1 and rng is None:
        raise refuse("rng", None, "a numpy Generator: participation below 1 draws cohorts")
    count = at_least("threads", threads, 1)
    return ReplayOptions(schedule, rng or np.random.default_rng(0), count, shared=info.shared)
