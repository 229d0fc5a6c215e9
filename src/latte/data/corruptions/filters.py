"""Linear filters over a batch (n, H, W, ...), written as sums of shifted slices.

No BLAS and no reduction over the batch: the value of a pixel is the same sum in the same order in every
batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ...core.types import Reals

Indices = NDArray[np.intp]
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


# --- zoom ---------------------------------------------------------------------------------------------------


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


# --- bilinear sampling --------------------------------------------------------------------------------------


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
