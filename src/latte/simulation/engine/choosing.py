"""Whether a run takes the engine or the readable simulator. Both give the same predictions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ...core.extras import install_advice
from ...data.benchmark import Federation
from ...methods.parameters import ParameterChoice
from .compiling import COMPILE_SECONDS, LOG
from .fast import has_engine, has_loops, named_engine
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


def use_engine(federation: Federation, name: str, params: ParameterChoice = None, runs: int = 1) -> bool:
    """Say whether the engine should run a method: if it can, unless its compilation would take longer.

    ``runs`` is the number of runs of this size that are to be done.
    """
    if not has_engine(name, params):
        return False
    if not needs_loops(name) or is_worth_compiling(size_of(federation), runs):
        return True
    from .kernels import are_loops_ready  # imports numba

    return are_loops_ready()


def must_compile(name: str, params: ParameterChoice, size: TaskSize, runs: int) -> bool:
    """Say whether so many runs of a method will begin with the compilation of the loops."""
    uses_loops = needs_loops(name) and has_engine(name, params) and is_worth_compiling(size, runs)
    return uses_loops and not are_loops_on_disk()


def needs_loops(name: str) -> bool:
    """Say whether the engine needs compiled loops for a method."""
    engine = named_engine(name)
    return engine is not None and engine.needs_loops


def is_worth_compiling(size: TaskSize, runs: int) -> bool:
    """Say whether the readable simulator would take longer than the compilation."""
    seconds = size.samples * (SECONDS_PER_SAMPLE + SECONDS_PER_CLASS * size.classes)
    return runs * seconds > COMPILE_SECONDS


def warn_of_copy_search(methods: Iterable[tuple[str, Mapping[str, object]]]) -> None:
    """Say on stderr which of ``methods``, names and parameters, run on the slow path because they look for copies."""
    names = dict.fromkeys(name for name, params in methods if params.get("near_copy"))
    if names:
        LOG.warning("the engine looks for no near copies: %s takes the readable simulator", ", ".join(names))


def warn_without_loops(names: Iterable[str]) -> None:
    """Say on stderr which methods run on the slow path because numba is missing."""
    slow = ", ".join(dict.fromkeys(name for name in names if needs_loops(name)))
    if slow and not has_loops():
        text = "numba is not installed: %s takes the readable simulator, 50 times slower; %s"
        LOG.warning(text, slow, install_advice("fast"))
