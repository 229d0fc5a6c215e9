"""Campaigns: many runs of methods on benchmarks, in folders that can be resumed.

``config`` is what a user states, ``plan`` is the same with every default filled in and bound to its data. ``runner``
does the items of plans with the ``workers`` and writes them; ``item`` runs one of them, or those together that
share a replay. ``folder`` is the files of a run folder, ``collection`` reads finished and unfinished ones back.
``sweep`` runs a plan at every point of a grid, ``tune`` chooses parameters on partitions that no report shows.
"""

from __future__ import annotations

from ..lazy import lazy_names

TYPE_CHECKING = False  # see latte.lazy
if TYPE_CHECKING:
    from .collection import find_runs, read_run
    from .config import MethodConfig, RunConfig
    from .folder import read_predictions
    from .plan import Plan, make_plan
    from .runner import Event, Options, execute, run, run_experiment

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
    __getattr__, __dir__ = lazy_names(__name__)
