"""What the engine offers: one run, or a grid of readouts in one run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...core.types import Integers
from ...data.benchmark import Federation
from ...methods import resolve
from ..outcome import Outcome
from ..schedule import Schedule
from .backend import loops
from .latte import run_latte
from .streams import Streams, lay_out

ENGINES = ("clip", "latte")


def has_engine(name: str, params: Any = None) -> bool:
    """Say whether the engine knows a method with these parameters."""
    return name in ENGINES


def run_fast(
    federation: Federation,
    name: str,
    params: Any = None,
    schedule: Schedule | None = None,
    rng: np.random.Generator | None = None,
    backend: str = "auto",
) -> Outcome | None:
    """Return what the readable simulator would return; None for a method without an engine."""
    if not has_engine(name, params):
        return None
    rng = rng or np.random.default_rng(0)
    schedule = schedule or Schedule()
    chosen = resolve(name, params)
    if name == "clip":
        streams = lay_out(federation)
        return Outcome(split(streams.pseudo, streams), None, "fast")
    grid = run_latte(federation, chosen, ([chosen.alpha], [chosen.beta]), schedule, rng, loops(backend))
    return Outcome(split(grid.labels[0, 0], grid.streams), grid.downloads, "fast")


def run_grid(
    federation: Federation,
    name: str,
    params: Any,
    alphas: Sequence[float],
    betas: Sequence[float],
    schedule: Schedule | None = None,
    rng: np.random.Generator | None = None,
) -> Any:
    """Return an Outcome per (alpha, beta)."""
    return None


def split(labels: Integers, streams: Streams) -> tuple[Integers, ...]:
    """Return the labels client by client."""
    return tuple(np.split(labels.astype(np.int64), streams.offsets[1:-1]))
