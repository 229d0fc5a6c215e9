"""What the engine of a method is. The class of a method names its own: ``engine = "module:Name"``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Generic, NamedTuple, TypeVar

import numpy as np

from ...core.types import Integers, Reals
from ...data.benchmark import Federation
from ..outcome import Outcome
from ..schedule import Schedule

P = TypeVar("P")


class ReplayOptions(NamedTuple):
    """How a method is run: a schedule, the generator that draws its cohorts, and the number of threads.

    With ``calibration``, confidences are recorded. With ``shared``, all clients write and read one memory.
    """

    schedule: Schedule
    rng: np.random.Generator
    threads: int = 1
    calibration: bool = True
    shared: bool = False


class ReadoutAxes(NamedTuple):
    """The values of the two parameters of a readout: ``alphas`` weigh the memory, ``betas`` sharpen similarities."""

    alphas: Reals
    betas: Reals


@dataclass(frozen=True, eq=False)
class GridOutcome:
    """One run for every pair of the two readout parameters ``names``: ``alphas`` and ``betas``."""

    names: tuple[str, str]
    alphas: Reals
    betas: Reals
    labels: Integers  # (alphas, betas, n) client after client in stream order
    confidences: Reals | None  # (alphas, betas, n) the probabilities of the labels
    offsets: Integers  # (N + 1,)
    downloads: Integers | None
    engine: str = "fast"

    def outcome(self, a: int, b: int) -> Outcome:
        """Return the outcome for ``alphas[a]`` and ``betas[b]``."""
        confidences = None if self.confidences is None else self.confidences[a, b]
        return Outcome.fast(self.labels[a, b], confidences, self.offsets, self.downloads, self.engine)


class MethodEngine(Generic[P]):
    """Runs one method over a whole federation, with the predictions of the readable simulator.

    ``needs_loops``: the loops have to be compiled by numba. ``serves_shared``: it can run the global form, in which all
    clients share one memory. What it cannot run, the readable simulator runs.
    """

    needs_loops: ClassVar[bool] = False
    serves_shared: ClassVar[bool] = False

    def fits(self, params: P) -> bool:
        """Say whether the engine can run the method with these parameters; by default, unless they look for copies."""
        return not getattr(params, "near_copy", 0.0)

    def run(self, federation: Federation, params: P, options: ReplayOptions) -> Outcome:
        """Return what the readable simulator would return."""
        raise NotImplementedError(f"{type(self).__name__} has to implement run(federation, params, options)")


class GridEngine(MethodEngine[P]):
    """An engine that replays the memories once for all values of two parameters: those of the readout.

    ``readout`` names them. The first weighs what the memory says, the second sharpens similarities.
    """

    readout: ClassVar[tuple[str, str]] = ("alpha", "beta")

    def run(self, federation: Federation, params: P, options: ReplayOptions) -> Outcome:
        """Return what the readable simulator would return: a grid of one point."""
        alphas, betas = (np.array([getattr(params, name)], np.float64) for name in self.readout)
        return self.run_grid(federation, params, ReadoutAxes(alphas, betas), options).outcome(0, 0)

    def run_grid(self, federation: Federation, params: P, axes: ReadoutAxes, options: ReplayOptions) -> GridOutcome:
        """Return the outcomes for all pairs of the two readout parameters; ``params`` give all others."""
        raise NotImplementedError(f"{type(self).__name__} has to implement run_grid(federation, params, axes, options)")
