"""Campaigns: many runs of methods on benchmarks, in folders that can be resumed.

``config`` is what a user states, ``config_changes`` changes values of it, ``plan`` is the same with every default
filled in and bound to its data. ``runner`` does the items of plans with the ``workers``, ``session`` writes them;
``item`` runs one of them, ``together`` those that share a replay.
``folder``, ``manifest`` and ``predictions`` are the files of a run folder, ``runs`` reads finished and unfinished
ones back. ``sweep`` runs a plan at every point of a grid, ``tune`` chooses parameters on partitions that no report
shows.
"""

from __future__ import annotations

from ..lazy import lazy_names

TYPE_CHECKING = False  # see latte.lazy
if TYPE_CHECKING:
    from .campaign import run_experiment
    from .config import MethodConfig, RunConfig
    from .plan import Plan, make_plan
    from .predictions import read_predictions
    from .runner import Event, Options, execute, run
    from .runs import find_runs, read_run

_HOMES = {
    ".campaign": ("run_experiment",),
    ".config": (
        "MethodConfig",
        "RunConfig",
    ),
    ".plan": (
        "Plan",
        "make_plan",
    ),
    ".predictions": ("read_predictions",),
    ".runner": (
        "Event",
        "Options",
        "execute",
        "run",
    ),
    ".runs": (
        "find_runs",
        "read_run",
    ),
}

__all__ = [
    "Event",
    "MethodConfig",
    "Options",
    "Plan",
    "RunConfig",
    "execute",
    "find_runs",
    "make_plan",
    "read_predictions",
    "read_run",
    "run",
    "run_experiment",
]

if not TYPE_CHECKING:  # a type checker reports names that do not exist
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
