"""What is computed about methods and runs, as data: nothing here draws or prints.

``cost``, ``cost_encoder``, ``cost_measure`` and ``cost_table``: what a method costs, in closed form and measured.
``diagnose``, ``diagnose_run``, ``replay`` and ``watch``: the memories of a run, class by class. ``studies``,
``study_runs`` and ``snapshots``: the numbers behind the figures. ``stats``: means, paired differences and their
intervals. ``speed``: the engine's speed.
"""

from __future__ import annotations

from ..lazy import lazy_names

TYPE_CHECKING = False  # see latte.lazy
if TYPE_CHECKING:
    from .cost import CostShape, Traffic, own_macs, traffic
    from .diagnose import Diagnosis
    from .stats import Estimate, Paired, estimate, paired

_HOMES = {
    ".cost": (
        "CostShape",
        "Traffic",
        "own_macs",
        "traffic",
    ),
    ".diagnose": ("Diagnosis",),
    ".stats": (
        "Estimate",
        "Paired",
        "estimate",
        "paired",
    ),
}

__all__ = [
    "CostShape",
    "Diagnosis",
    "Estimate",
    "Paired",
    "Traffic",
    "estimate",
    "own_macs",
    "paired",
    "traffic",
]

if not TYPE_CHECKING:  # a type checker reports names that do not exist
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
