"""Colour: brightness, contrast and saturation.

Hue, saturation and value are changed without a detour through HSV: a new value scales the pixel, a new
saturation scales its distance from its largest channel. Both are what the round trip gives.
"""

from __future__ import annotations

import numpy as np

from .draws import Bytes, Rngs, to_bytes, unit

BRIGHTNESS = (0.05, 0.1, 0.15, 0.2, 0.3)
CONTRAST = (0.75, 0.5, 0.4, 0.3, 0.15)
SATURATE = ((0.3, 0.0), (0.1, 0.0), (1.5, 0.0), (2.0, 0.1), (2.5, 0.2))  # factor, offset


def brightness(images: Bytes, severity: int, rngs: Rngs) -> Bytes:
    """Raise the value (the largest channel), keep hue and saturation."""
    clean = unit(images)
    value = clean.max(axis=-1, keepdims=True)
    raised = np.minimum(value + BRIGHTNESS[severity - 1], 1.0)
    black = value == 0  # black has no hue: it becomes grey
    return to_bytes(np.where(black, raised, clean * (raised / np.where(black, 1.0, value))))


def contrast(images: Bytes, severity: int, rngs: Rngs) -> Bytes:
    """Draw every channel towards its mean over the image."""
    pixels = images.shape[1] * images.shape[2]
    # a sum of whole numbers is exact, whatever the batch
    mean = images.sum(axis=(1, 2), keepdims=True, dtype=np.int64) / (255.0 * pixels)
    return to_bytes((unit(images) - mean) * CONTRAST[severity - 1] + mean)


def saturate(images: Bytes, severity: int, rngs: Rngs) -> Bytes:
    """Scale and shift the saturation, keep hue and value. Grey counts as a red of no saturation."""
    factor, offset = SATURATE[severity - 1]
    clean = unit(images)
    value = clean.max(axis=-1, keepdims=True)
    depth = value - clean  # of each channel below the largest
    chroma = depth.max(axis=-1, keepdims=True)
    grey = chroma == 0
    before = chroma / np.where(value == 0, 1.0, value)
    after = np.clip(before * factor + offset, 0.0, 1.0)
    reddish = value * after * np.array([0.0, 1.0, 1.0])
    return to_bytes(value - np.where(grey, reddish, depth * (after / np.where(grey, 1.0, before))))
