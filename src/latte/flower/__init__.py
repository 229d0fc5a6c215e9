"""Latte as a Flower app: the same methods and exchanges, carried by Flower's messages.

``fleet`` is the server of devices that decide when to sync, ``node`` their side; ``benchmark`` a benchmark in step;
``records`` the messages; ``settings`` those of a run. All but ``settings`` needs Flower: ``pip install ".[flower]"``.
An app names the modules themselves, as ``examples/flower_app`` does.
"""

from __future__ import annotations

from ..lazy import lazy_names

TYPE_CHECKING = False  # see latte.lazy
if TYPE_CHECKING:
    from .settings import BenchmarkSettings, FleetSettings

__all__ = ["BenchmarkSettings", "FleetSettings"]

if not TYPE_CHECKING:  # a type checker reports names that do not exist
    __getattr__, __dir__ = lazy_names(__name__)
