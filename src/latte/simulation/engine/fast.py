"""What the engine offers: one run, or a grid of readouts in one run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.types import Integers, Reals
from ...core.validate import at_least, factor, refuse
from ...data.benchmark import Federation
from ...methods import describe, resolve
from ..outcome import Outcome
from ..schedule import Schedule
from .backend import loops
from .dmn_engine import run_dmn
from .latte_engine import run_latte
from .lifetimes import Order
from .streams import Streams, lay_out
from .tda_engine import run_tda
from .timeline import order_of

GRIDS = {"latte": ("alpha", "beta"), "tda": ("alpha", "beta"), "dmn": ("weight", "beta")}


@dataclass(frozen=True, eq=False)
class GridOutcome:
    """One run for every pair of the two readout parameters ``names``: ``alphas`` and ``betas``."""

    names: tuple[str, str]
    alphas: Reals
    betas: Reals
    labels: Integers  # (alphas, betas, n) client after client in stream order
    offsets: Integers  # (N + 1,)
    downloads: Integers | None

    def outcome(self, a: int, b: int) -> Outcome:
        """Return the outcome for ``alphas[a]`` and ``betas[b]``."""
        return Outcome(tuple(np.split(self.labels[a, b], self.offsets[1:-1])), self.downloads, "fast")


def has_engine(name: str, params: Any = None) -> bool:
    """Say whether the engine knows a method with these parameters: TDA and DMN only for one view."""
    base = describe(name).family
    if name == "clip" or name == "latte":
        return True
    return base in GRIDS and base != "latte" and resolve(name, params).views == "first"


def run_fast(
    federation: Federation,
    name: str,
    params: Any = None,
    schedule: Schedule | None = None,
    rng: np.random.Generator | None = None,
    backend: str = "auto",
    threads: int = 1,
) -> Outcome | None:
    """Return what the readable simulator would return; None for a method without an engine.

    ``threads`` share the reading of Latte's memories; the result does not depend on their number.

    >>> from latte.data.bundled import bundled
    >>> federation = bundled()
    >>> outcome = run_fast(federation, "clip")
    >>> round(outcome.result(federation, "clip", {}, "default", 0).micro, 2)
    35.57
    """
    if not has_engine(name, params):
        return None
    chosen = resolve(name, params)
    if name == "clip":
        streams = lay_out(federation, loops(backend))
        return Outcome(tuple(np.split(streams.pseudo, streams.offsets[1:-1])), None, "fast")
    alpha, beta = (getattr(chosen, field) for field in GRIDS[describe(name).family])
    return _run(
        federation, name, chosen, ([alpha], [beta]), (schedule, rng, backend, at_least("threads", threads, 1))
    ).outcome(0, 0)


def run_grid(
    federation: Federation,
    name: str,
    params: Any,
    alphas: Sequence[float],
    betas: Sequence[float],
    schedule: Schedule | None = None,
    rng: np.random.Generator | None = None,
) -> GridOutcome:
    """Return the outcomes for all pairs of two readout parameters, from one replay.

    The parameters are alpha and beta; for DMN the first is the weight of the memory.
    """
    if name == "clip" or not has_engine(name, params):
        raise refuse("method", repr(name), "one with a readout that the engine knows: " + ", ".join(GRIDS))
    if not len(alphas) or not len(betas):
        raise refuse("grid", "an empty axis", "at least one value on both")
    grid = [factor("alpha", value) for value in alphas], [factor("beta", value) for value in betas]
    return _run(federation, name, resolve(name, params), grid, (schedule, rng, "auto", 1))


def _run(federation: Federation, name: str, params: Any, grid: Any, how: tuple[Any, Any, str, int]) -> GridOutcome:
    schedule, rng, backend = (how[0] or Schedule()).for_method(describe(name).sync), how[1], how[2]
    if schedule.participation < 1 and rng is None:
        raise refuse("rng", None, "a numpy Generator: participation below 1 draws cohorts")
    rng = rng or np.random.default_rng(0)
    axes = np.asarray(grid[0], np.float64), np.asarray(grid[1], np.float64)
    names = GRIDS[describe(name).family]
    if name == "latte":
        result = run_latte(federation, params, axes, schedule, rng, loops(backend), how[3])
        return GridOutcome(names, *axes, result.labels, result.streams.offsets, result.downloads)
    streams = lay_out(federation, loops(backend))
    run = run_tda if describe(name).family == "tda" else run_dmn
    labels = run(streams, params, _order(streams, name, schedule, rng), axes, loops(backend))
    return GridOutcome(names, *axes, labels, streams.offsets, None)


def _order(streams: Streams, name: str, schedule: Schedule, rng: np.random.Generator) -> Order:
    """Return whose memory handles which samples in which order."""
    if not describe(name).shared:
        return Order(np.arange(len(streams)), streams.offsets)
    sequence = order_of(streams.lengths, schedule, rng)
    return Order(sequence, np.array([0, len(sequence)]))
