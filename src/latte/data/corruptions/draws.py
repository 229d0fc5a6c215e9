"""Random numbers that belong to an image, not to the batch it came in.

Every image has a Philox stream of its own, keyed by (seed, corruption, image index). The severity is not part
of the key: the five severities of one image share their noise, which makes them comparable. numpy does not
promise the same stream from one of its versions to the next, so record the numpy version beside images that
must be made again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...core.types import Reals

Bytes = NDArray[np.uint8]
Singles = NDArray[np.float32]
Rngs = Sequence[np.random.Generator]


def streams(seed: int, corruption: int, indices: Sequence[int]) -> list[np.random.Generator]:
    """Return one generator per image.

    >>> a, b = streams(0, 3, [7, 8]), streams(0, 3, [8])
    >>> float(a[1].random()) == float(b[0].random())
    True
    """
    keys = (np.random.SeedSequence((seed, corruption, index)) for index in indices)
    return [np.random.Generator(np.random.Philox(key)) for key in keys]


def normal(rngs: Rngs, shape: tuple[int, ...]) -> Reals:
    """Return standard normal numbers, (n, *shape)."""
    return np.stack([rng.standard_normal(shape) for rng in rngs])


def uniform(rngs: Rngs, shape: tuple[int, ...], low: float = 0.0, high: float = 1.0) -> Reals:
    """Return uniform numbers, (n, *shape)."""
    return np.stack([rng.uniform(low, high, shape) for rng in rngs])


def to_unit(images: Bytes) -> Reals:
    """Return the images in [0, 1]."""
    return images / 255.0


def to_single(images: Bytes) -> Singles:
    """Return the images in [0, 1] in single precision, which the published set has for some corruptions."""
    return to_unit(images).astype(np.float32)


def round_to_single(values: Reals) -> Reals:
    """Return the values rounded to single precision."""
    return values.astype(np.float32).astype(np.float64)


def to_bytes(images: NDArray[np.floating[Any]]) -> Bytes:
    """Clip to [0, 1] and truncate to bytes, as the published set does (it does not round).

    What is a whole level but for the last bit goes up or down with it, so each corruption calculates in the
    precision and the order of the published code.
    """
    levels: NDArray[np.floating[Any]] = np.clip(images, 0.0, 1.0) * 255.0
    return levels.astype(np.uint8)
