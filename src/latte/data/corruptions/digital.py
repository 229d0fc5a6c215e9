"""Elastic deformation, pixelation and JPEG artefacts."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Any

import numpy as np

from ...core.types import Reals
from ..pillow import pillow_image
from .draws import Bytes, Rngs, round_to_single, to_bytes, to_unit, uniform
from .filters import fold_reflect, fold_symmetric, gaussian, sample

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
    from_x, from_y = x - _wide(after[:, 1, 0]), y - _wide(after[:, 1, 1])
    area = _wide(along_x[:, 0] * along_y[:, 1] - along_y[:, 0] * along_x[:, 1])
    u = (from_x * _wide(along_y[:, 1]) - from_y * _wide(along_y[:, 0])) / area
    v = (from_y * _wide(along_x[:, 0]) - from_x * _wide(along_x[:, 1])) / area
    return sample(images, before[1, 1] + v, before[1, 0] + u, fold_reflect)


def _wide(values: Reals) -> Reals:
    """(n,) to (n, 1, 1)."""
    return values[:, None, None]


def pixelate(images: Bytes, severity: int, rngs: Rngs) -> Bytes:
    """Shrink by area averages and enlarge again."""
    height, width = images.shape[1:3]
    share = PIXELATE[severity - 1]
    small, box = (int(width * share), int(height * share)), pillow_image().Resampling.BOX
    return _each(images, lambda image: image.resize(small, box).resize((width, height), box))


def jpeg_compression(images: Bytes, severity: int, rngs: Rngs) -> Bytes:
    """Save as a JPEG of low quality and read it again."""
    return _each(images, lambda image: _through_jpeg(image, JPEG_QUALITY[severity - 1]))


def _through_jpeg(image: Any, quality: int) -> Any:
    file = BytesIO()
    image.save(file, "JPEG", quality=quality)
    return pillow_image().open(file)


def _each(images: Bytes, change: Callable[[Any], Any]) -> Bytes:
    """Apply a function of Pillow images to every image."""
    from_array = pillow_image().fromarray
    return np.stack([np.asarray(change(from_array(image))) for image in images])
