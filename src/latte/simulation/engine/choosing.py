"""Whether a run takes the engine or the readable simulator. Both give the same predictions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ...core.extras import install_advice
from ...data.benchmark import Federation
from ...methods import describe
from .compiling import COMPILE_SECONDS, LOG
from .fast import has_engine, has_loops
from .loop_files import are_loops_on_disk

# what the readable simulator takes per sample: fitted to the four shapes of `latte bench speed` (0.7 to 6.5 ms)
SECONDS_PER_SAMPLE, SECONDS_PER_CLASS = 4e-4, 6e-5


class TaskSize(NamedTuple):
    """How much there is to do in one run: samples of all clients together, and classes."""

    samples: int
    classes: int


def size_of(federation: Federation) -> TaskSize:
    """Return the size of one run on a federation."""
    return TaskSize(federation.samples, federation.embeddings.zero_shot.classes)


def use_engine(federation: Federation, name: str, params: Any = None, runs: int = 1) -> bool:
    """Say whether the engine should run a method: where it can, unless its compilation would take longer.

    ``runs`` is the number of runs of this size that are to be done.
    """
    if not has_engine(name, params):
        return False
    if not needs_loops(name) or is_worth_compiling(size_of(federation), runs):
        return True
    from .kernels import are_loops_ready  # imports numba

    return are_loops_ready()


def must_compile(name: str, params: Any, size: TaskSize, runs: int) -> bool:
    """Say whether so many runs of a method will begin with the compilation of the loops."""
    wanted = needs_loops(name) and has_engine(name, params) and is_worth_compiling(size, runs)
    return wanted and not are_loops_on_disk()


def needs_loops(name: str) -> bool:
    """Say whether the engine needs compiled loops for a method."""
    return describe(name).family == "latte"


def is_worth_compiling(size: TaskSize, runs: int) -> bool:
    """Say whether the readable simulator would take longer than the compilation."""
    seconds = size.samples * (SECONDS_PER_SAMPLE + SECONDS_PER_CLASS * size.classes)
    return runs * seconds > COMPILE_SECONDS


def warn_of_copy_search(methods: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
    """Say on stderr which of ``methods``, names and parameters, run on the slow path because they look for copies."""
    names = dict.fromkeys(name for name, params in methods if params.get("near_copy"))
    if names:
        LOG.warning("the engine looks for no near copies: %s takes the readable simulator", ", ".join(names))


def warn_without_loops(names: Iterable[str]) -> None:
    """Say on stderr that Latte runs on the slow path, where numba is missing."""
    if any(map(needs_loops, names)) and not has_loops():
        advice = install_advice("fast")
        LOG.warning("numba is not installed: latte takes the readable simulator, 50 times slower; %s", advice)
