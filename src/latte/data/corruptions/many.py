"""Many images, each under its own corruption, in several processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...core.validate import at_least
from ...errors import refuse
from ..processes import processes, signals_held
from . import CORRUPTIONS, check_batch, check_indices, check_severity, corrupt
from .draws import Bytes

JOB_IMAGES = 512  # 1.5 MB of CIFAR images: small against the work, large against the cost of sending


@dataclass(frozen=True, slots=True, eq=False)
class CorruptionJob:
    """Some images under one corruption; ``places`` are their positions in the result."""

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
    batch, numbers = check_batch(images), _check_choice(which, len(images))
    check_severity(severity)
    places = check_indices(indices, len(batch))
    at_least("seed", seed, 0)
    at_least("workers", workers, 1)
    jobs = (
        CorruptionJob(at, batch[at], name, severity, [places[i] for i in at], seed, textures)
        for name, at in _groups(numbers)
    )
    result = np.empty_like(batch)
    for at, done in _run(jobs, workers):
        result[at] = done
    return result


def _check_choice(which: Any, n: int) -> NDArray[np.intp]:
    numbers = np.asarray(which)
    want = f"{n} positions in CORRUPTIONS, 0 to {len(CORRUPTIONS) - 1}"
    if numbers.shape != (n,) or (n and numbers.dtype.kind not in "iu"):
        raise refuse("which", f"{numbers.dtype} of shape {numbers.shape}", want)
    if n and not 0 <= numbers.min() <= numbers.max() < len(CORRUPTIONS):
        raise refuse("which", f"values from {numbers.min()} to {numbers.max()}", want)
    return numbers.astype(np.intp)


def _groups(numbers: NDArray[np.intp]) -> Iterator[tuple[str, NDArray[np.intp]]]:
    """Yield the positions of at most JOB_IMAGES images at a time that share a corruption."""
    for number, name in enumerate(CORRUPTIONS):
        of_this = np.flatnonzero(numbers == number)
        for first in range(0, len(of_this), JOB_IMAGES):
            yield name, of_this[first : first + JOB_IMAGES]


def _run(jobs: Iterator[CorruptionJob], workers: int) -> Iterator[tuple[NDArray[np.intp], Bytes]]:
    all_jobs = list(jobs)
    if workers == 1:
        yield from ((job.places, job.run()) for job in all_jobs)
        return
    with processes(workers) as pool:
        with signals_held():
            results = pool.map(CorruptionJob.run, all_jobs)
        yield from zip((job.places for job in all_jobs), results, strict=True)
