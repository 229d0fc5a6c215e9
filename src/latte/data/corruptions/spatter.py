"""Spatter: drops of water (severities 1 to 3) or splashes of mud (4 and 5) on the lens."""

from __future__ import annotations

import numpy as np

from ...core.types import Reals
from .draws import Bytes, Rngs, normal, to_bytes, to_unit
from .edges import canny, distances, equalise
from .filters import correlate, gaussian

# mean and sigma of the liquid, its blur, the threshold, then the strength of the water or the blur of the mud
SPATTER = (
    (0.62, 0.1, 0.7, 0.7, 0.5),
    (0.65, 0.1, 0.8, 0.7, 0.5),
    (0.65, 0.3, 1.0, 0.69, 0.5),
    (0.65, 0.1, 0.7, 0.69, 0.6),
    (0.65, 0.1, 0.5, 0.68, 0.6),
)
MUD_FROM = 4
PALE_TURQUOISE = np.array([175, 238, 238]) / 255.0
MUD_BROWN = np.array([63, 42, 20]) / 255.0
BOX = np.ones((3, 3))
EMBOSS = np.array([[-2.0, -1.0, 0.0], [-1.0, 1.0, 1.0], [0.0, 1.0, 2.0]])  # light from one corner


def spatter(images: Bytes, severity: int, rngs: Rngs) -> Bytes:
    """Cover parts of the image with water or mud."""
    mean, sigma, blur, threshold, last = SPATTER[severity - 1]
    liquid = gaussian(mean + sigma * normal(rngs, images.shape[1:3]), blur)
    liquid = np.where(liquid < threshold, 0.0, liquid)
    clean = to_unit(images)
    if severity < MUD_FROM:
        return to_bytes(clean + water(liquid, last)[..., None] * PALE_TURQUOISE)
    mud = gaussian((liquid > threshold).astype(np.float64), last)
    cover = np.where(mud < 0.8, 0.0, mud)[..., None]
    return to_bytes(clean * (1 - cover) + MUD_BROWN * cover)


def water(liquid: Reals, strength: float) -> Reals:
    """Return how bright the drops shine, (n, H, W), at most ``strength``: embossed along their outlines."""
    drops = (liquid * 255.0).astype(np.int64).astype(np.uint8)  # above 1 it starts at 0 again, as published
    away = distances(canny(drops, 50, 150), 20.0)
    relief = equalise((correlate(away, BOX, "reflect") / 9).astype(np.uint8))
    lit = np.clip(correlate(relief.astype(np.float64), EMBOSS, "reflect"), 0, 255)
    shine = drops * np.rint(correlate(lit, BOX, "reflect") / 9)
    brightest = shine.max(axis=(1, 2), keepdims=True)
    result: Reals = strength * shine / np.maximum(brightest, 1.0)  # without a drop there is nothing to see
    return result
