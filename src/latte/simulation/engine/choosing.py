"""Whether a run takes the engine or the readable simulator. Both give the same predictions."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from ...data.benchmark import Federation
from ...methods import describe
from .fast import PIP_LINE, has_engine, has_loops

LOG = logging.getLogger("latte.engine")  # where the application sets up no logging, a warning is a line on stderr
COMPILE_SECONDS = 40.0  # measured on an idle core
# what the readable simulator takes per sample: fitted to the four shapes of `latte bench speed` (0.7 to 6.5 ms)
SECONDS_PER_SAMPLE, SECONDS_PER_CLASS = 4e-4, 6e-5


def use_engine(federation: Federation, name: str, params: Any = None, runs: int = 1) -> bool:
    """Say whether the engine should run a method: where it can, unless its compilation would take longer.

    ``runs`` is the number of runs of this size that are to be done.
    """
    if not has_engine(name, params):
        return False
    if describe(name).family != "latte" or estimate_readable_seconds(federation) * runs > COMPILE_SECONDS:
        return True
    from .compiling import are_loops_ready  # imports numba

    return are_loops_ready()


def estimate_readable_seconds(federation: Federation) -> float:
    """Return about how long the readable simulator takes for Latte."""
    classes = federation.embeddings.zero_shot.classes
    return federation.samples * (SECONDS_PER_SAMPLE + SECONDS_PER_CLASS * classes)


def warn_without_loops(names: Iterable[str]) -> None:
    """Say on stderr that Latte runs on the slow path, where numba is missing."""
    if "latte" in {describe(name).family for name in names} and not has_loops():
        LOG.warning("numba is not installed: latte takes the readable simulator, 50 times slower. %s", PIP_LINE)
