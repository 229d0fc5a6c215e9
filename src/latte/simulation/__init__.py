"""Federations in one process: the schedule, the readable simulator, the engine, and what a run gives.

``simulate`` walks streams with any method and any exchange, one sample at a time: it is the definition. ``engine``
gives the same predictions faster, for the memory methods. ``readable`` and ``engine`` both return an ``outcome``.
``fleet_device`` is a process of the fleet demo: clients of a benchmark that sync with a server over HTTP.
"""

from __future__ import annotations

from ..lazy import lazy_names

TYPE_CHECKING = False  # see latte.lazy
if TYPE_CHECKING:
    from .outcome import Outcome
    from .readable import run_readable
    from .records import ClientScore, Result
    from .schedule import Schedule
    from .simulator import Client, Step, simulate

_HOMES = {
    ".outcome": ("Outcome",),
    ".readable": ("run_readable",),
    ".records": (
        "ClientScore",
        "Result",
    ),
    ".schedule": ("Schedule",),
    ".simulator": (
        "Client",
        "Step",
        "simulate",
    ),
}

__all__ = [
    "Client",
    "ClientScore",
    "Outcome",
    "Result",
    "Schedule",
    "Step",
    "run_readable",
    "simulate",
]

if not TYPE_CHECKING:  # a type checker reports names that do not exist
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
