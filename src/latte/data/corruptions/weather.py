"""Weather: snow and fog."""

from __future__ import annotations

import numpy as np

from ...core.types import Reals
from .blur import streaks
from .draws import Bytes, Rngs, normal, to_bytes, to_single, to_unit, uniform
from .filters import zoom

# mean and sigma of the flakes, zoom, threshold, radius and sigma of their streaks, weight of the image
SNOW = (
    (0.1, 0.2, 1.0, 0.6, 8, 3.0, 0.95),
    (0.1, 0.2, 1.0, 0.5, 10, 4.0, 0.9),
    (0.15, 0.3, 1.75, 0.55, 10, 4.0, 0.9),
    (0.25, 0.3, 2.25, 0.6, 12, 6.0, 0.85),
    (0.3, 0.3, 1.25, 0.65, 14, 12.0, 0.8),
)
FOG = ((0.2, 3.0), (0.5, 3.0), (0.75, 2.5), (1.0, 2.0), (1.5, 1.75))  # thickness, decay of the fractal
GREY_WEIGHTS = np.array([0.299, 0.587, 0.114], np.float32)


def snow(images: Bytes, severity: int, rngs: Rngs) -> Bytes:
    """Whiten the image and let flakes fall, in one direction and its opposite."""
    mean, sigma, factor, threshold, radius, smear, weight = SNOW[severity - 1]
    clean = to_single(images)
    flakes = zoom(mean + sigma * normal(rngs, images.shape[1:3]), factor)
    angles = [rng.uniform(-135.0, -45.0) for rng in rngs]
    fallen = streaks(to_bytes(np.where(flakes < threshold, 0.0, flakes)), radius, smear, angles)
    layer = to_unit(fallen)[..., None]
    grey = (clean[..., 0] * GREY_WEIGHTS[0] + clean[..., 1] * GREY_WEIGHTS[1] + clean[..., 2] * GREY_WEIGHTS[2])[
        ..., None
    ]
    return to_bytes(weight * clean + (1 - weight) * np.maximum(clean, 1.5 * grey + 0.5) + layer + layer[:, ::-1, ::-1])


def fog(images: Bytes, severity: int, rngs: Rngs) -> Bytes:
    """Add a cloud and scale back to the brightness the image had."""
    thickness, decay = FOG[severity - 1]
    height, width = images.shape[1:3]
    clean = to_unit(images)
    brightest = clean.max(axis=(1, 2, 3), keepdims=True)
    side = 1 << (max(height, width) - 1).bit_length()  # 32 for 32
    cloud = plasma(rngs, side, decay)[:, :height, :width, None]
    return to_bytes((clean + thickness * cloud) * brightest / (brightest + thickness))


def plasma(rngs: Rngs, side: int, decay: float) -> Reals:
    """Return plasma fractals (n, side, side) in [0, 1] by the diamond-square algorithm on a torus.

    The noise of a level is uniform within ±w², where w starts at 100 and falls by ``decay`` per level: the
    published set multiplies by w twice, and so do we.
    """
    heights = np.zeros((len(rngs), side, side))
    noise, used = uniform(rngs, (side * side - 1,), -1.0, 1.0), 0
    step, wobble = side, 100.0
    while step >= 2:
        cells, half = (side // step) ** 2, step // 2
        parts = noise[:, used : used + 3 * cells].reshape(-1, 3, side // step, side // step) * wobble**2
        corner = heights[:, ::step, ::step]
        right = corner + np.roll(corner, -1, 2)
        centre = (right + np.roll(right, -1, 1)) / 4 + parts[:, 0]
        heights[:, half::step, half::step] = centre
        heights[:, ::step, half::step] = (centre + np.roll(centre, 1, 1) + right) / 4 + parts[:, 1]
        below = corner + np.roll(corner, -1, 1)
        heights[:, half::step, ::step] = (centre + np.roll(centre, 1, 2) + below) / 4 + parts[:, 2]
        used, step, wobble = used + 3 * cells, half, wobble / decay
    heights -= heights.min(axis=(1, 2), keepdims=True)
    result: Reals = heights / heights.max(axis=(1, 2), keepdims=True)
    return result
