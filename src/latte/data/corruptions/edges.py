"""Edges, distances to them and histograms over a batch (n, H, W), for the water of ``spatter``."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...core.types import Integers, Mask, Reals
from .draws import Bytes
from .filters import pad

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
