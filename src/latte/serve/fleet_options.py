"""How the fleet demo runs. This module imports no extras, so that a command can check them first."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FleetOptions:
    """How a demo runs: ``devices`` processes that go through the streams in about ``seconds`` (0: at once).

    In ``lock_step`` all devices upload before any downloads, as in the simulator; otherwise each client syncs when it
    is due. ``precision`` is that of vectors on the way.
    """

    method: str = "latte"
    devices: int = 4
    precision: str = "fp32"
    seed: int = 0
    seconds: float = 60.0
    lock_step: bool = True
    host: str = "127.0.0.1"
    port: int = 0
