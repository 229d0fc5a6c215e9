"""Filters over a batch (n, H, W, ...), written as sums of shifted slices; random numbers; edges and histograms.

No BLAS and no reduction over the batch: the value of a pixel is the same sum in the same order in every batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ...core.types import Integers, Mask, Reals

Bytes = NDArray[np.uint8]
Singles = NDArray[np.float32]
Indices = NDArray[np.intp]
Rngs = Sequence[np.random.Generator]  # one per image: its random numbers do not depend on the batch it came in
Border = Literal["edge", "symmetric", "reflect"]


def pad(images: NDArray[Any], rows: int, columns: int, border: Border) -> NDArray[Any]:
    """Return the batch with a border of ``rows`` and ``columns`` pixels.

    edge: a a|a b c, symmetric: b a|a b c, reflect: c b|a b c.
    """
    widths = [(0, 0), (rows, rows), (columns, columns)] + [(0, 0)] * (images.ndim - 3)
    return np.pad(images, widths, mode=border)


def gaussian_taps(sigma: float, truncate: float = 4.0) -> Reals:
    """Return the normalised taps of a Gaussian cut at ``truncate`` sigma.

    >>> gaussian_taps(0.4).round(4)
    array([0.    , 0.0404, 0.9192, 0.0404, 0.    ])
    """
    radius = int(truncate * sigma + 0.5)
    if radius == 0:
        return np.ones(1)
    taps = np.exp(-0.5 / sigma**2 * np.arange(-radius, radius + 1) ** 2)
    normalised: Reals = taps / taps.sum()
    return normalised


def gaussian(images: Reals, sigma: float, border: Border = "edge", truncate: float = 4.0) -> Reals:
    """Blur along the columns, then along the rows."""
    taps = gaussian_taps(sigma, truncate)
    return _symmetric(_symmetric(images, taps, border, 1), taps, border, 2)


def _symmetric(images: Reals, taps: Reals, border: Border, axis: int) -> Reals:
    """Correlate one axis with taps that read the same both ways: the middle, then pairs from the outside in.

    scipy adds in this order, and where a sum is truncated to a whole level its last bit counts.
    """
    reach, size = len(taps) // 2, images.shape[axis]
    padded = np.moveaxis(pad(images, *((reach, 0) if axis == 1 else (0, reach)), border), axis, 0)
    total = taps[reach] * padded[reach : reach + size]
    for i in range(reach):
        total += taps[i] * (padded[i : i + size] + padded[2 * reach - i : 2 * reach - i + size])
    result: Reals = np.moveaxis(total, 0, axis)
    return result


def correlate(images: Reals, kernel: Reals, border: Border) -> Reals:
    """Correlate every image with a small kernel of odd sides; zero taps cost nothing."""
    height, width = images.shape[1:3]
    rows, columns = kernel.shape[0] // 2, kernel.shape[1] // 2
    padded = pad(images, rows, columns, border)
    total = np.zeros(images.shape)
    for y, x in zip(*np.nonzero(kernel), strict=True):
        total += kernel[y, x] * padded[:, y : y + height, x : x + width]
    return total


def zoom_axis(size: int, factor: float) -> tuple[Indices, Indices, Reals]:
    """Return which two pixels each output pixel lies between, and how near the second is.

    The middle ceil(size / factor) pixels are stretched so that their outermost centres become the outermost
    ones of round(ceil(size / factor) · factor) pixels, of which the middle ``size`` form the result.
    """
    inner = int(np.ceil(size / factor))
    outer = round(inner * factor)
    middle = (outer - size) // 2 + np.arange(size)
    at = np.asarray(middle * ((inner - 1) / (outer - 1)), np.float64)
    low = at.astype(np.intp)
    first = (size - inner) // 2
    high: Indices = np.minimum(low + 1, inner - 1)
    return first + low, first + high, at - low


def zoom(images: Reals, factor: float) -> Reals:
    """Magnify the middle of every image by ``factor`` >= 1, bilinearly, to the same size."""
    low, high, near = zoom_axis(images.shape[1], factor)
    weight = near.reshape(-1, *[1] * (images.ndim - 2))
    rows = images[:, low] * (1 - weight) + images[:, high] * weight
    low, high, near = zoom_axis(images.shape[2], factor)
    weight = near.reshape(-1, *[1] * (images.ndim - 3))
    result: Reals = rows[:, :, low] * (1 - weight) + rows[:, :, high] * weight
    return result


def fold_symmetric(at: Indices, size: int) -> Indices:
    """Fold positions outside the image back inside, the edge pixel twice: b a|a b c.

    >>> fold_symmetric(np.array([-2, -1, 0, 2, 3]), 3)
    array([1, 0, 0, 2, 2])
    """
    at = at % (2 * size)
    return np.minimum(at, 2 * size - 1 - at)


def fold_reflect(at: Indices, size: int) -> Indices:
    """Fold positions outside the image back inside, the edge pixel once: c b|a b c.

    >>> fold_reflect(np.array([-2, -1, 0, 2, 3]), 3)
    array([2, 1, 0, 2, 1])
    """
    at = at % (2 * size - 2)
    return np.minimum(at, 2 * size - 2 - at)


def sample(images: Reals, y: Reals, x: Reals, fold: Callable[[Indices, int], Indices]) -> Reals:
    """Return the images (n, H, W, 3) at the positions y, x (n, H, W), bilinearly."""
    n, height, width, _ = images.shape
    top, left = np.floor(y).astype(np.intp), np.floor(x).astype(np.intp)
    down, right = (y - top)[..., None], (x - left)[..., None]
    rows, below = fold(top, height), fold(top + 1, height)
    columns, beside = fold(left, width), fold(left + 1, width)
    of = np.arange(n)[:, None, None]
    upper = images[of, rows, columns] * (1 - right) + images[of, rows, beside] * right
    lower = images[of, below, columns] * (1 - right) + images[of, below, beside] * right
    result: Reals = upper * (1 - down) + lower * down
    return result


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


# edges, distances to them and histograms over a batch (n, H, W), for the water of ``spatter``
TAN_22, TAN_67 = np.sqrt(2) - 1, np.sqrt(2) + 1
NEIGHBOURS = tuple((y, x) for y in (-1, 0, 1) for x in (-1, 0, 1) if (y, x) != (0, 0))
# steps of a 5 x 5 chamfer distance and their lengths
STEPS = (
    *((y, x, 1.0 if 0 in (y, x) else 1.4) for y, x in NEIGHBOURS),
    *((y, x, 2.1969) for y in (-2, -1, 1, 2) for x in (-2, -1, 1, 2) if abs(y) != abs(x)),
)


def shift(images: NDArray[Any], y: int, x: int, fill: float) -> NDArray[Any]:
    """Return, for every pixel, the value ``y`` below and ``x`` to the right of it; ``fill`` outside."""
    result = np.full_like(images, fill)
    height, width = images.shape[1:3]
    into = np.s_[:, max(-y, 0) : height - max(y, 0), max(-x, 0) : width - max(x, 0)]
    out_of = np.s_[:, max(y, 0) : height + min(y, 0), max(x, 0) : width + min(x, 0)]
    result[into] = images[out_of]
    return result


def canny(images: Bytes, low: int, high: int) -> Mask:
    """Return the edges: ridges of the gradient above ``low`` that hang together with one above ``high``."""
    right, down = sobel(images)
    strength = np.abs(right) + np.abs(down)
    ridge = _ridges(right, down, strength) & (strength > low)
    edges = ridge & (strength > high)
    while True:  # follow the ridges
        grown = edges.copy()
        for y, x in NEIGHBOURS:
            grown |= shift(edges, y, x, False).astype(np.bool_)
        grown &= ridge
        if (grown == edges).all():
            return edges
        edges = grown


def sobel(images: Bytes) -> tuple[Integers, Integers]:
    """Return the 3 x 3 Sobel derivatives to the right and downwards, the edge repeated."""
    p = pad(images, 1, 1, "edge").astype(np.int64)
    across = p[:, :, 2:] - p[:, :, :-2]
    right = across[:, :-2] + 2 * across[:, 1:-1] + across[:, 2:]
    along = p[:, 2:] - p[:, :-2]
    return right, along[:, :, :-2] + 2 * along[:, :, 1:-1] + along[:, :, 2:]


def _ridges(right: Integers, down: Integers, strength: Integers) -> Mask:
    """Whether the gradient is stronger than its neighbours on both sides of the edge, in four directions."""
    flat, steep = np.abs(right), np.abs(down)
    horizontal, vertical = steep < flat * TAN_22, steep > flat * TAN_67
    falling = (right ^ down) >= 0

    def exceeds(y: int, x: int, or_equals: bool = False) -> Mask:
        other = shift(strength, y, x, 0)
        return np.asarray(strength >= other if or_equals else strength > other)

    diagonal = np.where(falling, exceeds(-1, -1) & exceeds(1, 1), exceeds(-1, 1) & exceeds(1, -1))
    upright = exceeds(-1, 0) & exceeds(1, 0, True)
    level = exceeds(0, -1) & exceeds(0, 1, True)
    return np.where(horizontal, level, np.where(vertical, upright, diagonal)).astype(np.bool_)


def distances(edges: Mask, limit: float) -> Reals:
    """Return the chamfer distance of every pixel to the nearest edge, at most ``limit``."""
    nearest = np.where(edges, 0.0, limit)
    while True:
        before = nearest.copy()
        for y, x, length in STEPS:
            np.minimum(nearest, shift(nearest, y, x, limit) + length, out=nearest)
        if (nearest == before).all():
            return nearest


def equalise(images: Bytes) -> Bytes:
    """Spread the histogram of every image over 0 to 255; an image of one value stays as it is."""
    n, pixels = len(images), images[0].size
    flat = images.reshape(n, -1)
    counts = np.zeros((n, 256), np.int64)
    np.add.at(counts, (np.arange(n)[:, None], flat), 1)
    darkest = counts[np.arange(n), flat.min(axis=1)]
    above = np.cumsum(counts, axis=1) - darkest[:, None]
    table = np.rint(np.maximum(above, 0) * (255.0 / np.maximum(pixels - darkest, 1))[:, None])
    spread = np.take_along_axis(table, flat.astype(np.intp), axis=1).astype(np.uint8)
    constant = (darkest == pixels)[:, None]
    return np.where(constant, flat, spread).reshape(images.shape)
