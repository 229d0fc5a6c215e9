"""Blur and noise: defocus, glass, motion, zoom and gaussian; gaussian, shot, impulse and speckle."""

from __future__ import annotations

import numpy as np

from ...core.types import Reals
from .filters import (
    Bytes,
    Rngs,
    correlate,
    gaussian,
    normal,
    pad,
    round_to_single,
    to_bytes,
    to_single,
    to_unit,
    uniform,
    zoom,
)

DEFOCUS = ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1.0, 0.2), (1.5, 0.1))  # radius, alias sigma
GLASS = ((0.05, 1), (0.25, 1), (0.4, 1), (0.25, 2), (0.4, 2))  # sigma, iterations; the reach is 1 pixel
MOTION = ((6, 1.0), (6, 1.5), (6, 2.0), (8, 2.0), (9, 2.5))  # radius, sigma
ZOOM_END = (1.06, 1.11, 1.16, 1.21, 1.26)  # factors 1, 1.01, ... below this
STEPS_16 = 257  # of a 16-bit value in one level of 8 bits
GAUSSIAN_BLUR_SIGMA = (0.4, 0.6, 0.7, 0.8, 1.0)


def gaussian_blur(images: Bytes, severity: int, rngs: Rngs) -> Bytes:
    """Blur with a Gaussian."""
    return to_bytes(gaussian(to_unit(images), GAUSSIAN_BLUR_SIGMA[severity - 1]))


def defocus_blur(images: Bytes, severity: int, rngs: Rngs) -> Bytes:
    """Blur with a disk, the shape of an open lens."""
    return to_bytes(correlate(to_unit(images), disk(*DEFOCUS[severity - 1]), "reflect"))


def disk(radius: float, alias_sigma: float) -> Reals:
    """Return a disk whose edge is smoothed by a 3 x 3 Gaussian.

    >>> disk(1.0, 0.2).round(2)[1:4, 1:4]
    array([[0. , 0.2, 0. ],
           [0.2, 0.2, 0.2],
           [0. , 0.2, 0. ]])
    """
    reach = int(np.ceil(radius)) + 1
    at = np.arange(-reach, reach + 1)
    hard = (at[:, None] ** 2 + at[None, :] ** 2 <= radius**2).astype(np.float64)
    taps = np.exp(-0.5 * (np.array([-1.0, 0.0, 1.0]) / alias_sigma) ** 2)
    taps /= taps.sum()
    even, taps = round_to_single(hard / hard.sum()), round_to_single(taps)
    rows = round_to_single(correlate(even[None], taps[None, :], "edge"))
    return round_to_single(correlate(rows, taps[:, None], "edge")[0])  # adds up to 1 or a little more, as published


def glass_blur(images: Bytes, severity: int, rngs: Rngs) -> Bytes:
    """Blur, move pixels by up to one to the left and up, blur again."""
    sigma, iterations = GLASS[severity - 1]
    moved = to_bytes(gaussian(to_unit(images), sigma))
    for _ in range(iterations):
        moved = displace(moved, rngs)
    return to_bytes(gaussian(to_unit(moved), sigma))


def displace(images: Bytes, rngs: Rngs) -> Bytes:
    """Copy into every pixel from the third row and column on itself or a neighbour to the left or above.

    The published set was meant to swap two pixels but copied one (the values were views of the same array),
    going from the last row and column to the first. The source of a copy lies before its target and is thus
    still untouched when it is read, so the whole pass is one gather from the old image.
    """
    n, height, width = images.shape[:3]
    steps = np.stack([rng.integers(-1, 1, (2, height - 2, width - 2)) for rng in rngs])
    rows = np.arange(2, height)[:, None] + steps[:, 0]
    columns = np.arange(2, width) + steps[:, 1]
    result = images.copy()
    result[:, 2:, 2:] = images[np.arange(n)[:, None, None], rows, columns]
    return result


def motion_blur(images: Bytes, severity: int, rngs: Rngs) -> Bytes:
    """Blur along one direction, up to 45 degrees from the horizontal."""
    radius, sigma = MOTION[severity - 1]
    return streaks(images, radius, sigma, [rng.uniform(-45.0, 45.0) for rng in rngs])


def streaks(images: Bytes, radius: int, sigma: float, degrees: list[float]) -> Bytes:
    """Blur every image in a direction of its own, as ImageMagick's motion blur does on its way to a PNG.

    Half a Gaussian of 2·radius + 1 taps is laid from each pixel along the direction, its steps rounded to
    whole pixels, the edge repeated. The sum is rounded to 16 bits, which hold 257 steps per level of 8, and those
    are cut off: the published set truncates here too, and a flat image stays what it is.
    """
    height, width = images.shape[1:3]
    steps = np.arange(2 * radius + 1)
    taps = np.exp(-0.5 * (steps / sigma) ** 2)
    taps /= taps.sum()
    reach = 2 * radius
    padded = pad(images, reach, reach, "edge").astype(np.float64)
    result = np.empty_like(images)
    for i, angle in enumerate(np.deg2rad(degrees)):
        rows = np.ceil(steps * np.sin(angle) - 0.5).astype(int) + reach
        columns = np.ceil(steps * np.cos(angle) - 0.5).astype(int) + reach
        total = np.zeros(images.shape[1:])
        for tap, y, x in zip(taps, rows, columns, strict=True):
            total += tap * padded[i, y : y + height, x : x + width]
        result[i] = (np.floor(total * STEPS_16 + 0.5) // STEPS_16).astype(np.uint8)
    return result


def zoom_blur(images: Bytes, severity: int, rngs: Rngs) -> Bytes:
    """Average the image (twice) with ever larger versions of itself."""
    clean = to_single(images)
    factors = np.arange(1, ZOOM_END[severity - 1], 0.01)
    total = np.zeros_like(clean)
    for factor in factors:
        total += zoom(clean.astype(np.float64), float(factor)).astype(np.float32)
    return to_bytes((clean + total) / (len(factors) + 1))


GAUSSIAN_NOISE_SIGMA = (0.04, 0.06, 0.08, 0.09, 0.10)
SHOT_PHOTONS = (500, 250, 100, 75, 50)
IMPULSE_SHARE = (0.01, 0.02, 0.03, 0.05, 0.07)
SPECKLE_SIGMA = (0.06, 0.10, 0.12, 0.16, 0.20)


def gaussian_noise(images: Bytes, severity: int, rngs: Rngs) -> Bytes:
    """Add the same amount of noise everywhere."""
    return to_bytes(to_unit(images) + GAUSSIAN_NOISE_SIGMA[severity - 1] * normal(rngs, images.shape[1:]))


def shot_noise(images: Bytes, severity: int, rngs: Rngs) -> Bytes:
    """Count photons: Poisson noise, stronger where the image is bright."""
    photons = SHOT_PHOTONS[severity - 1]
    expected = to_unit(images) * photons
    counts = np.stack([rng.poisson(mean) for rng, mean in zip(rngs, expected, strict=True)])
    return to_bytes(counts / photons)


def impulse_noise(images: Bytes, severity: int, rngs: Rngs) -> Bytes:
    """Set a share of the values to 0 or 255, each channel for itself."""
    draws = uniform(rngs, (2, *images.shape[1:]))
    hit = draws[:, 0] <= IMPULSE_SHARE[severity - 1]
    extreme = np.where(draws[:, 1] <= 0.5, np.uint8(255), np.uint8(0))
    return np.where(hit, extreme, images)


def speckle_noise(images: Bytes, severity: int, rngs: Rngs) -> Bytes:
    """Add noise in proportion to the value."""
    clean = to_unit(images)
    return to_bytes(clean + clean * (SPECKLE_SIGMA[severity - 1] * normal(rngs, images.shape[1:])))
