"""The fast engine: whole federations of the memory methods, with the predictions of the readable simulator."""

from __future__ import annotations

from .fast import GridOutcome, has_engine, run_fast, run_grid

__all__ = ["GridOutcome", "has_engine", "run_fast", "run_grid"]
