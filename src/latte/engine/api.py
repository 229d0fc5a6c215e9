"""The engine from outside: one run, a grid of readouts in one run, and whether a run takes the engine at all.

The class of a method names its own engine (``engine = "module:Name"``), a :class:`MethodEngine`. Nothing here asks for
the name of a method.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np

from ..core.types import Integers, Reals
from ..core.validate import at_least, factor
from ..data.federation import Federation
from ..errors import MissingExtra, install_advice, refuse
from ..methods import METHODS, describe, resolve
from ..methods.base import ParameterChoice
from ..methods.registry import load_target
from ..simulation.results import Outcome
from ..simulation.simulator import Schedule
from .cache import COMPILE_SECONDS, LOG, are_loops_on_disk, are_loops_ready

P = TypeVar("P")

# what the readable simulator takes per sample: fitted to the four shapes of benchmarks/engine/speed.py (0.7 to 6.5 ms)
SECONDS_PER_SAMPLE, SECONDS_PER_CLASS = 4e-4, 6e-5


class ReplayOptions(NamedTuple):
    """How a method is run.

    schedule: when clients handle samples and sync
    rng: draws the cohorts
    threads: share the work
    calibration: confidences are recorded
    shared: all clients write and read one memory
    """

    schedule: Schedule
    rng: np.random.Generator
    threads: int = 1
    calibration: bool = True
    shared: bool = False


class ReadoutAxes(NamedTuple):
    """The values of the two parameters of a readout: ``alphas`` weigh the memory, ``betas`` sharpen similarities."""

    alphas: Reals
    betas: Reals


@dataclass(frozen=True, eq=False)
class GridOutcome:
    """One run for every pair of the two readout parameters ``names``: ``alphas`` and ``betas``."""

    names: tuple[str, str]
    alphas: Reals
    betas: Reals
    labels: Integers  # (alphas, betas, n) client after client in stream order
    confidences: Reals | None  # (alphas, betas, n) the probabilities of the labels
    offsets: Integers  # (N + 1,)
    downloads: Integers | None = None
    engine: str = "fast"

    def outcome(self, a: int, b: int) -> Outcome:
        """Return the outcome for ``alphas[a]`` and ``betas[b]``."""
        confidences = None if self.confidences is None else self.confidences[a, b]
        return Outcome.fast(self.labels[a, b], confidences, self.offsets, self.downloads, self.engine)


class MethodEngine(Generic[P]):
    """Runs one method over a whole federation, with the predictions of the readable simulator.

    ``needs_loops``: the loops have to be compiled by numba. ``serves_shared``: it can run the global form, in which all
    clients share one memory. What it cannot run, the readable simulator runs.
    """

    needs_loops: ClassVar[bool] = False
    serves_shared: ClassVar[bool] = False

    def fits(self, params: P) -> bool:
        """Say whether the engine can run the method with these parameters; by default, unless they look for copies."""
        return not getattr(params, "near_copy", 0.0)

    def run(self, federation: Federation, params: P, options: ReplayOptions) -> Outcome:
        """Return what the readable simulator would return."""
        raise NotImplementedError(f"{type(self).__name__} has to implement run(federation, params, options)")


class GridEngine(MethodEngine[P]):
    """An engine that replays the memories once for all values of two parameters: those of the readout.

    ``readout`` names them. The first weighs what the memory says, the second sharpens similarities.
    """

    readout: ClassVar[tuple[str, str]] = ("alpha", "beta")

    def run(self, federation: Federation, params: P, options: ReplayOptions) -> Outcome:
        """Return what the readable simulator would return: a grid of one point."""
        alphas, betas = (np.array([getattr(params, name)], np.float64) for name in self.readout)
        return self.run_grid(federation, params, ReadoutAxes(alphas, betas), options).outcome(0, 0)

    def run_grid(self, federation: Federation, params: P, axes: ReadoutAxes, options: ReplayOptions) -> GridOutcome:
        """Return the outcomes for all pairs of the two readout parameters; ``params`` give all others."""
        raise NotImplementedError(f"{type(self).__name__} has to implement run_grid(federation, params, axes, options)")


def has_loops() -> bool:
    """Say whether numba is there to compile the loops that Latte needs."""
    return importlib.util.find_spec("numba") is not None


def named_engine(name: str) -> MethodEngine[Any] | None:
    """Return the engine that the class of a method names; None if it names none, or none for the global form."""
    info = describe(name)
    if info.engine is None:
        return None
    kind = load_target(info.engine)
    if not isinstance(kind, type) or not issubclass(kind, MethodEngine):
        raise refuse("engine", repr(info.engine), "the name of a MethodEngine, such as 'my_package.my_module:MyEngine'")
    return kind() if kind.serves_shared or not info.shared else None


def _usable_engine(name: str, params: ParameterChoice = None) -> MethodEngine[Any] | None:
    """Return the engine that can run a method with these parameters; None: the readable simulator has to."""
    engine = named_engine(name)
    if engine is None or not engine.fits(resolve(name, params)) or (engine.needs_loops and not has_loops()):
        return None
    return engine


def has_engine(name: str, params: ParameterChoice = None) -> bool:
    """Say whether the engine can run a method with these parameters.

    It runs CLIP, Ristretto, Latte (with numba), and TDA and DMN on the plain view, none of them with ``near_copy``.
    """
    return _usable_engine(name, params) is not None


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
    engine = _usable_engine(name, params)
    if engine is None:
        return None
    outcome = engine.run(federation, resolve(name, params), _options(name, schedule, rng, threads, calibration))
    return outcome if calibration else replace(outcome, confidences=None)


def run_grid(
    federation: Federation,
    name: str,
    params: ParameterChoice,
    axes: tuple[Sequence[float], Sequence[float]],
    schedule: Schedule | None = None,
    rng: np.random.Generator | None = None,
    *,
    threads: int = 1,
) -> GridOutcome:
    """Return the outcomes for all pairs of two readout parameters, from one replay.

    ``axes`` are the values of alpha and those of beta; for DMN the first is the weight of the memory.
    """
    if needs_loops(name) and not has_loops():
        raise MissingExtra(f"a grid of the readouts of {name} needs numba; {install_advice('fast')}")
    engine = _usable_engine(name, params)
    if not isinstance(engine, GridEngine):
        known = ", ".join(other for other in METHODS if readout_parameters(other))
        raise refuse("method", repr(name), f"one with a readout that the engine knows: {known}")
    if not all(map(len, axes)):
        raise refuse("grid", "an empty axis", "at least one value on both")
    checked = ([factor(key, value) for value in values] for key, values in zip(engine.readout, axes, strict=True))
    arrays = ReadoutAxes(*(np.array(values, np.float64) for values in checked))
    return engine.run_grid(federation, resolve(name, params), arrays, _options(name, schedule, rng, threads))


def _options(
    name: str, schedule: Schedule | None, rng: np.random.Generator | None, threads: int, calibration: bool = True
) -> ReplayOptions:
    info = describe(name)
    schedule = (schedule or Schedule()).for_method(info.sync)
    if schedule.participation < 1 and rng is None:
        raise refuse("rng", None, "a numpy Generator: participation below 1 draws cohorts")
    count = at_least("threads", threads, 1)
    return ReplayOptions(schedule, rng or np.random.default_rng(0), count, calibration, info.shared)


def readable_seconds(federation: Federation) -> float:
    """Return about how long the readable simulator takes for one run on a federation."""
    return federation.samples * (SECONDS_PER_SAMPLE + SECONDS_PER_CLASS * federation.embeddings.zero_shot.classes)


def use_engine(federation: Federation, name: str, params: ParameterChoice = None, runs: int = 1) -> bool:
    """Say whether the engine should run a method: if it can, unless its compilation would take longer.

    ``runs`` is the number of runs of this size that are to be done.
    """
    if not has_engine(name, params):
        return False
    worth_compiling = runs * readable_seconds(federation) > COMPILE_SECONDS
    return not needs_loops(name) or worth_compiling or are_loops_ready()


def must_compile(name: str, params: ParameterChoice, seconds: float) -> bool:
    """Say whether runs that take so many seconds on the slow path will begin with the compilation of the loops."""
    uses_loops = needs_loops(name) and has_engine(name, params) and seconds > COMPILE_SECONDS
    return uses_loops and not are_loops_on_disk()


def needs_loops(name: str) -> bool:
    """Say whether the engine needs compiled loops for a method."""
    engine = named_engine(name)
    return engine is not None and engine.needs_loops


def warn_of_labels(names: Iterable[str]) -> None:
    """Say on stderr which of the methods ``names``, in runs with labels, run on the slow path."""
    taught = ", ".join(name for name in dict.fromkeys(names) if describe(name).teachable and named_engine(name))
    if taught:
        LOG.warning("runs with labels use the readable simulator, which is slower: %s", taught)


def warn_of_slow_path(methods: Iterable[tuple[str, Mapping[str, object]]]) -> None:
    """Say on stderr which of ``methods``, names and parameters, the engine could run, but not here or not like this."""
    every = list(methods)
    if names := ", ".join(dict.fromkeys(name for name, _ in every if needs_loops(name) and not has_loops())):
        text = "numba is not installed, so the readable simulator runs %s, 50 times slower; %s"
        LOG.warning(text, names, install_advice("fast"))
    if names := ", ".join(dict.fromkeys(name for name, params in every if params.get("near_copy"))):
        LOG.warning("with near_copy, the readable simulator runs %s, which is slower", names)
