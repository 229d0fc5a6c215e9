"""The nine operations of AugMix at severity 1, on RGB ``PIL.Image``.

The four that overlap with the corruptions of ImageNet-C (colour, contrast, brightness, sharpness) are left out,
as in AugMix itself. Every strength is level/10 of its largest value, with level uniform in [0.1, 1).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..core.extras import need
from .preprocess import INTERPOLATIONS

CHAINS = 3  # mixed together
MOST_IN_CHAIN = 3  # in one chain, drawn with replacement
LEAST_LEVEL, SEVERITY = 0.1, 1.0
BILINEAR = INTERPOLATIONS["bilinear"]
_AFFINE = 0  # Pillow's Transform.AFFINE
Augmentation = Callable[[Any, np.random.Generator], Any]


def strength(rng: np.random.Generator, largest: float) -> float:
    """Return a random strength, at most a tenth of ``largest`` at severity 1."""
    return rng.uniform(LEAST_LEVEL, SEVERITY) * largest / 10


def either_sign(rng: np.random.Generator, value: float) -> float:
    """Return the value or its negative, evenly."""
    return -value if rng.random() > 0.5 else value


def autocontrast(picture: Any, rng: np.random.Generator) -> Any:
    """Stretch each channel to 0..255."""
    return need("PIL.ImageOps", "onnx").autocontrast(picture)


def equalize(picture: Any, rng: np.random.Generator) -> Any:
    """Flatten each channel's histogram."""
    return need("PIL.ImageOps", "onnx").equalize(picture)


def posterize(picture: Any, rng: np.random.Generator) -> Any:
    """Keep the 4 high bits (at severity 1 never fewer)."""
    return need("PIL.ImageOps", "onnx").posterize(picture, 4 - int(strength(rng, 4)))


def rotate(picture: Any, rng: np.random.Generator) -> Any:
    """Turn by 0, 1 or 2 degrees."""
    return picture.rotate(either_sign(rng, int(strength(rng, 30))), BILINEAR)


def solarize(picture: Any, rng: np.random.Generator) -> Any:
    """Invert the pixels at or above 231 to 254."""
    return need("PIL.ImageOps", "onnx").solarize(picture, 256 - int(strength(rng, 256)))


def shear_x(picture: Any, rng: np.random.Generator) -> Any:
    """Shear sideways by at most 0.03."""
    return affine(picture, (1, either_sign(rng, strength(rng, 0.3)), 0, 0, 1, 0))


def shear_y(picture: Any, rng: np.random.Generator) -> Any:
    """Shear up or down by at most 0.03."""
    return affine(picture, (1, 0, 0, either_sign(rng, strength(rng, 0.3)), 1, 0))


def translate_x(picture: Any, rng: np.random.Generator) -> Any:
    """Move sideways by at most a thirtieth of the width (7 of 224 pixels)."""
    return translate(picture, int(either_sign(rng, int(strength(rng, picture.width / 3)))), 0)


def translate_y(picture: Any, rng: np.random.Generator) -> Any:
    """Move up or down by at most a thirtieth of the height."""
    return translate(picture, 0, int(either_sign(rng, int(strength(rng, picture.height / 3)))))


def affine(picture: Any, matrix: tuple[float, ...]) -> Any:
    """Apply a 2 x 3 matrix; pixels from outside are black."""
    return picture.transform(picture.size, _AFFINE, matrix, BILINEAR)


def translate(picture: Any, x: int, y: int) -> Any:
    """Move by whole pixels, without interpolation; pixels from outside are black."""
    return picture.crop((x, y, x + picture.width, y + picture.height))


AUGMENTATIONS: tuple[Augmentation, ...] = (
    autocontrast,
    equalize,
    posterize,
    rotate,
    solarize,
    shear_x,
    shear_y,
    translate_x,
    translate_y,
)
