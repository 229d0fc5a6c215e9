"""Many images, each under a corruption of its own, on all cores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...core.validate import at_least, refuse
from ..processes import processes, signals_held
from . import CORRUPTIONS, checked, checked_indices, choice_of_severity, corrupt
from .draws import Bytes

JOB_IMAGES = 512  # 1.5 MB of CIFAR images: small against the work, large against the cost of sending


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """Some images under one corruption; ``places`` is where they go in the result."""

    places: NDArray[np.intp]
    images: Bytes
    name: str
    severity: int
    indices: list[int]
    seed: int
    textures: Sequence[Bytes] | None

    def run(self) -> Bytes:
        """Return the corrupted images."""
        return corrupt(self.images, self.name, self.severity, self.indices, self.seed, self.textures)


def corrupt_each(
    images: Any,
    which: Any,
    severity: int,
    indices: Sequence[int] | np.ndarray | None = None,
    seed: int = 0,
    workers: int = 1,
    textures: Sequence[Bytes] | None = None,
) -> Bytes:
    """Return the images (n, H, W, 3), image i under corruption ``CORRUPTIONS[which[i]]``.

    The result does not depend on ``workers``, the number of processes. With more than one, a script must call
    this below ``if __name__ == "__main__":``, as for every use of processes.
    """
    batch, chosen = checked(images), _checked_choice(which, len(images))
    choice_of_severity(severity)
    places = checked_indices(indices, len(batch))
    at_least("seed", seed, 0)
    at_least("workers", workers, 1)
    jobs = (Job(at, batch[at], name, severity, [places[i] for i in at], seed, textures) for name, at in _groups(chosen))
    result = np.empty_like(batch)
    for at, done in _run(jobs, workers):
        result[at] = done
    return result


def _checked_choice(which: Any, n: int) -> NDArray[np.intp]:
    chosen = np.asarray(which)
    want = f"{n} positions in CORRUPTIONS, 0 to {len(CORRUPTIONS) - 1}"
    if chosen.shape != (n,) or (n and chosen.dtype.kind not in "iu"):
        raise refuse("which", f"{chosen.dtype} of shape {chosen.shape}", want)
    if n and not 0 <= chosen.min() <= chosen.max() < len(CORRUPTIONS):
        raise refuse("which", f"values from {chosen.min()} to {chosen.max()}", want)
    return chosen.astype(np.intp)


def _groups(chosen: NDArray[np.intp]) -> Iterator[tuple[str, NDArray[np.intp]]]:
    """Yield the positions of at most JOB_IMAGES images at a time that share a corruption."""
    for number, name in enumerate(CORRUPTIONS):
        of_this = np.flatnonzero(chosen == number)
        for first in range(0, len(of_this), JOB_IMAGES):
            yield name, of_this[first : first + JOB_IMAGES]


def _run(jobs: Iterator[Job], workers: int) -> Iterator[tuple[NDArray[np.intp], Bytes]]:
    listed = list(jobs)
    if workers == 1:
        yield from ((job.places, job.run()) for job in listed)
        return
    with processes(workers) as pool:
        with signals_held():
            results = pool.map(Job.run, listed)
        yield from zip((job.places for job in listed), results, strict=True)
