"""Colour: brightness, contrast and saturation.

Hue, saturation and value are changed by a detour through HSV, as published. A shorter way gives the same
colours but for the last bit, and where a result is a whole level that bit decides, because it is truncated.
"""

from __future__ import annotations

import numpy as np

from ...core.types import Reals
from .draws import Bytes, Rngs, to_bytes, to_unit

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
