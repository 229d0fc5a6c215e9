"""What the engine offers: one run, or a grid of readouts in one run."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ...core.extras import install_advice
from ...core.types import Integers, Reals
from ...core.validate import at_least, factor, refuse
from ...data.benchmark import Federation
from ...methods import describe, resolve
from ..calibration import confidences_of
from ..outcome import Outcome
from ..schedule import Schedule
from . import plain_classify
from .dmn_engine import run_dmn
from .lifetimes import Order
from .ristretto_engine import run_ristretto
from .streams import Streams, lay_out
from .tda_engine import run_tda
from .timeline import order_of

READOUT_PARAMETERS = {"latte": ("alpha", "beta"), "tda": ("alpha", "beta"), "dmn": ("weight", "beta")}
Axes = tuple[Sequence[float], Sequence[float]]


@dataclass(frozen=True, eq=False)
class GridOutcome:
    """One run for every pair of the two readout parameters ``names``: ``alphas`` and ``betas``."""

    names: tuple[str, str]
    alphas: Reals
    betas: Reals
    labels: Integers  # (alphas, betas, n) client after client in stream order
    confidences: Reals | None  # (alphas, betas, n) the probabilities of the labels
    offsets: Integers  # (N + 1,)
    downloads: Integers | None
    engine: str = "fast"

    def outcome(self, a: int, b: int) -> Outcome:
        """Return the outcome for ``alphas[a]`` and ``betas[b]``."""
        confidences = None if self.confidences is None else self.confidences[a, b]
        return Outcome.fast(self.labels[a, b], confidences, self.offsets, self.downloads, self.engine)


class ReplayOptions(NamedTuple):
    """A schedule, the generator that draws its cohorts, the number of threads, and whether to record confidences."""

    schedule: Schedule
    rng: np.random.Generator
    threads: int
    calibration: bool = True


def has_loops() -> bool:
    """Say whether numba is there to compile the loops that Latte needs."""
    return importlib.util.find_spec("numba") is not None


def has_engine(name: str, params: Any = None) -> bool:
    """Say whether the engine can run a method with these parameters: Latte with numba, TDA and DMN on one view.

    It does not look for near copies: runs with ``near_copy`` take the readable simulator.
    """
    family, chosen = describe(name).family, resolve(name, params)
    if getattr(chosen, "near_copy", 0.0):
        return False
    if family not in READOUT_PARAMETERS:
        return family in ("clip", "ristretto")
    return has_loops() if family == "latte" else bool(chosen.views == "first")


def run_fast(
    federation: Federation,
    name: str,
    params: Any = None,
    schedule: Schedule | None = None,
    rng: np.random.Generator | None = None,
    threads: int = 1,
    calibration: bool = True,
) -> Outcome | None:
    """Return what the readable simulator would return; None for a method that the engine cannot run.

    ``threads`` share the work of Latte; the result does not depend on their number. Without ``calibration``, a run of
    Latte leaves the confidences out, which takes a few percent less time.

    >>> from latte.data.bundled import bundled
    >>> federation = bundled()
    >>> outcome = run_fast(federation, "clip")
    >>> round(outcome.result(federation, "clip", {}, "default", 0).micro, 2)
    35.57
    """
    if not has_engine(name, params):
        return None
    if name == "clip":
        streams = lay_out(federation, plain_classify)
        return Outcome.fast(streams.pseudo, confidences_of(streams.logits), streams.offsets)
    resolved = resolve(name, params)
    if describe(name).family == "ristretto":
        options = _checked(name, schedule, rng, threads)
        return run_ristretto(federation, resolved, options.schedule, options.rng)
    alpha, beta = (getattr(resolved, field) for field in READOUT_PARAMETERS[describe(name).family])
    options = _checked(name, schedule, rng, threads)._replace(calibration=calibration)
    return _run(federation, name, resolved, ([alpha], [beta]), options).outcome(0, 0)


def run_grid(
    federation: Federation,
    name: str,
    params: Any,
    axes: Axes,
    schedule: Schedule | None = None,
    rng: np.random.Generator | None = None,
    threads: int = 1,
) -> GridOutcome:
    """Return the outcomes for all pairs of two readout parameters, from one replay.

    ``axes`` are the values of alpha and those of beta; for DMN the first is the weight of the memory.
    """
    if describe(name).family == "latte" and not has_loops():
        raise ModuleNotFoundError(f"a grid of Latte's readouts needs numba; {install_advice('fast')}")
    if describe(name).family not in READOUT_PARAMETERS or not has_engine(name, params):
        known = ", ".join(READOUT_PARAMETERS)
        raise refuse("method", repr(name), f"one with a readout that the engine knows: {known}")
    if not all(map(len, axes)):
        raise refuse("grid", "an empty axis", "at least one value on both")
    grid = [factor("alpha", value) for value in axes[0]], [factor("beta", value) for value in axes[1]]
    return _run(federation, name, resolve(name, params), grid, _checked(name, schedule, rng, threads))


def _checked(name: str, schedule: Schedule | None, rng: np.random.Generator | None, threads: int) -> ReplayOptions:
    schedule = (schedule or Schedule()).for_method(describe(name).sync)
    if schedule.participation < 1 and rng is None:
        raise refuse("rng", None, "a numpy Generator: participation below 1 draws cohorts")
    return ReplayOptions(schedule, rng or np.random.default_rng(0), at_least("threads", threads, 1))


def _run(
    federation: Federation,
    name: str,
    params: Any,
    grid: Axes,
    options: ReplayOptions,
) -> GridOutcome:
    axes = np.asarray(grid[0], np.float64), np.asarray(grid[1], np.float64)
    info = describe(name)
    names = READOUT_PARAMETERS[info.family]
    if info.family == "latte":
        from .kernels import prepare_loops  # imports numba
        from .latte_engine import run_latte

        prepare_loops()
        latte = run_latte(federation, params, axes, *options)
        engine = "fast, in blocks" if latte.in_blocks else "fast"
        answers = latte.labels, latte.confidences
        return GridOutcome(names, *axes, *answers, latte.streams.offsets, latte.downloads, engine)
    streams = lay_out(federation, plain_classify)
    method = run_tda if info.family == "tda" else run_dmn
    answers = method(streams, params, _order(streams, info.shared, options), axes)
    return GridOutcome(names, *axes, *answers, streams.offsets, None)


def _order(streams: Streams, shared: bool, options: ReplayOptions) -> Order:
    """Return the order in which samples are handled, by one memory per client or one for all."""
    if not shared:
        return Order(np.arange(len(streams)), streams.offsets)
    sequence = order_of(streams.lengths, options.schedule, options.rng)
    return Order(sequence, np.array([0, len(sequence)]))
