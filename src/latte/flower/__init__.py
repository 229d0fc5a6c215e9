"""Latte as a Flower app: the same methods and exchanges, carried by Flower's messages.

=================== ==================================================================================
module              contents
=================== ==================================================================================
``client_app``      the ClientApp: a node of a fleet, or of a benchmark
``server_app``      the ServerApp: a plain loop, no strategy
``fleet``           the server of a fleet whose nodes decide when to sync
``barrier``         the server of a benchmark in step
``node``            what a node of a fleet does with a query
``walk``            what a node of a benchmark does
``mods``            precision and privacy as mods of a client
``message_records`` messages of any method as records, and back
``sync_records``    the messages between server and node
``direct_grid``     a grid in one process, for tests and measurements
``settings``        the settings of a run
=================== ==================================================================================

All of it but ``settings`` needs Flower: ``pip install ".[flower]"``. An app names the modules themselves, as
``examples/flower_app`` does: ``latte.flower.client_app``, ``latte.flower.server_app``, ``latte.flower.mods``.
"""

from __future__ import annotations

from ..lazy import lazy_names

TYPE_CHECKING = False  # see latte.lazy
if TYPE_CHECKING:
    from .settings import BenchmarkSettings, FleetSettings

_HOMES = {".settings": ("BenchmarkSettings", "FleetSettings")}

__all__ = ["BenchmarkSettings", "FleetSettings"]

if not TYPE_CHECKING:  # a type checker reports names that do not exist
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
