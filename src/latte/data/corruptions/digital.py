"""Elastic deformation, pixelation and JPEG artefacts; brightness, contrast and saturation."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Any

import numpy as np

from ...core.types import Reals
from ...errors import need
from .filters import (
    Bytes,
    Rngs,
    fold_reflect,
    fold_symmetric,
    gaussian,
    round_to_single,
    sample,
    to_bytes,
    to_unit,
    uniform,
)

# As a share of the shorter side: height of the waves, their sigma, how far the three corners wander.
ELASTIC = ((0.0, 0.0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03))
PIXELATE = (0.95, 0.9, 0.85, 0.75, 0.65)
JPEG_QUALITY = (80, 65, 58, 50, 40)


def elastic_transform(images: Bytes, severity: int, rngs: Rngs) -> Bytes:
    """Tilt the image by a random affine map, then let it ripple."""
    height, width = images.shape[1:3]
    side = min(height, width)
    waves, sigma, wander = (side * share for share in ELASTIC[severity - 1])
    corners = uniform(rngs, (3, 2), -wander, wander)
    ripples = uniform(rngs, (2, height, width), -1.0, 1.0)
    tilted = round_to_single(_tilt(to_unit(images), corners))
    y, x = np.mgrid[:height, :width].astype(np.float64)
    dx, dy = (waves * gaussian(ripples[:, i], sigma, "symmetric", 3.0) for i in (0, 1))
    return to_bytes(round_to_single(sample(tilted, y + dy, x + dx, fold_symmetric)))


def _tilt(images: Reals, shift: Reals) -> Reals:
    """Apply the affine map that moves three points around the middle by ``shift`` (n, 3, 2), as (x, y)."""
    height, width = images.shape[1:3]
    middle, reach = np.array([width, height]) // 2, min(height, width) // 3
    before = middle + reach * np.array([[1, 1], [1, -1], [-1, -1]])
    after = before + shift
    # columns of the linear part: where the points moved apart from each other by 2 · reach
    along_y = (after[:, 0] - after[:, 1]) / (2 * reach)  # (n, 2): image of the unit step in y
    along_x = (after[:, 1] - after[:, 2]) / (2 * reach)
    y, x = np.mgrid[:height, :width].astype(np.float64)
    # solve x' = a + u · along_x + v · along_y for the (u, v) that lands on each output pixel
    (xx, xy), (yx, yy) = along_x.T[..., None, None], along_y.T[..., None, None]  # (n, 1, 1) each
    from_x, from_y = x - after[:, 1, 0, None, None], y - after[:, 1, 1, None, None]
    area = xx * yy - yx * xy
    u, v = (from_x * yy - from_y * yx) / area, (from_y * xx - from_x * xy) / area
    return sample(images, before[1, 1] + v, before[1, 0] + u, fold_reflect)


def pixelate(images: Bytes, severity: int, rngs: Rngs) -> Bytes:
    """Shrink by area averages and enlarge again."""
    height, width = images.shape[1:3]
    share = PIXELATE[severity - 1]
    small, box = (int(width * share), int(height * share)), need("PIL.Image", "data").Resampling.BOX
    return _each(images, lambda image: image.resize(small, box).resize((width, height), box))


def jpeg_compression(images: Bytes, severity: int, rngs: Rngs) -> Bytes:
    """Save as a JPEG of low quality and read it again."""

    def through_jpeg(image: Any) -> Any:
        file = BytesIO()
        image.save(file, "JPEG", quality=JPEG_QUALITY[severity - 1])
        return need("PIL.Image", "data").open(file)

    return _each(images, through_jpeg)


def _each(images: Bytes, change: Callable[[Any], Any]) -> Bytes:
    """Apply a function of Pillow images to every image."""
    from_array = need("PIL.Image", "data").fromarray
    return np.stack([np.asarray(change(from_array(image))) for image in images])


BRIGHTNESS = (0.05, 0.1, 0.15, 0.2, 0.3)
CONTRAST = (0.75, 0.5, 0.4, 0.3, 0.15)
SATURATE = ((0.3, 0.0), (0.1, 0.0), (1.5, 0.0), (2.0, 0.1), (2.5, 0.2))  # factor, offset


def brightness(images: Bytes, severity: int, rngs: Rngs) -> Bytes:
    """Raise the value (the largest channel), keep hue and saturation."""
    hue, saturation, value = rgb_to_hsv(to_unit(images))
    return to_bytes(hsv_to_rgb(hue, saturation, np.minimum(value + BRIGHTNESS[severity - 1], 1.0)))


def contrast(images: Bytes, severity: int, rngs: Rngs) -> Bytes:
    """Draw every channel towards its mean over the image."""
    pixels = images.shape[1] * images.shape[2]
    # a sum of whole numbers is exact, whatever the batch
    mean = images.sum(axis=(1, 2), keepdims=True, dtype=np.int64) / (255.0 * pixels)
    return to_bytes((to_unit(images) - mean) * CONTRAST[severity - 1] + mean)


def saturate(images: Bytes, severity: int, rngs: Rngs) -> Bytes:
    """Scale and shift the saturation, keep hue and value. Grey counts as a red of no saturation."""
    factor, offset = SATURATE[severity - 1]
    hue, saturation, value = rgb_to_hsv(to_unit(images))
    return to_bytes(hsv_to_rgb(hue, np.clip(saturation * factor + offset, 0.0, 1.0), value))


def rgb_to_hsv(images: Reals) -> tuple[Reals, Reals, Reals]:
    """Return hue, saturation and value, (n, H, W) each in [0, 1]; grey has hue and saturation 0."""
    red, green, blue = np.moveaxis(images, -1, 0)
    value: Reals = images.max(axis=-1)
    chroma = value - images.min(axis=-1)
    grey = chroma == 0
    spread = np.where(grey, 1.0, chroma)
    sixth = np.where(red == value, (green - blue) / spread, 0.0)
    sixth = np.where(green == value, 2.0 + (blue - red) / spread, sixth)
    sixth = np.where(blue == value, 4.0 + (red - green) / spread, sixth)
    saturation = chroma / np.where(grey, 1.0, value)
    return np.where(grey, 0.0, sixth / 6.0 % 1.0), saturation, value


def hsv_to_rgb(hue: Reals, saturation: Reals, value: Reals) -> Reals:
    """Return the images (n, H, W, 3) of hue, saturation and value."""
    sector = np.floor(hue * 6)
    along = hue * 6 - sector
    low = value * (1 - saturation)
    falling, rising = value * (1 - along * saturation), value * (1 - (1 - along) * saturation)
    of = sector.astype(np.intp) % 6
    red = np.choose(of, [value, falling, low, low, rising, value])
    green = np.choose(of, [rising, value, value, falling, low, low])
    blue = np.choose(of, [low, low, rising, value, value, falling])
    return np.stack([red, green, blue], axis=-1)
