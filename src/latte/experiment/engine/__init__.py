"""The fast engine: whole federations of the memory methods, with the predictions of the readable simulator."""

from __future__ import annotations

from .run import has_engine, run_fast, run_grid

__all__ = ["has_engine", "run_fast", "run_grid"]
