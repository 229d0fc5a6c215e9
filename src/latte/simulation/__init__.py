"""Federations in one process: the schedule, the readable simulator, and what a run gives.

``simulate`` walks streams with any method and any exchange, one sample at a time: it is the definition. ``wrapped`` is
the seam for what happens to messages on the way.
"""

from __future__ import annotations

from ..lazy import lazy_names

TYPE_CHECKING = False  # see latte.lazy
if TYPE_CHECKING:
    from .results import ClientScore, Outcome, Result
    from .simulator import Client, Schedule, Step, run_readable, simulate

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
    __getattr__, __dir__ = lazy_names(__name__)
