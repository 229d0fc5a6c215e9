"""Very large pictures, decoded at reduced size: a model sees a few hundred pixels of a side, whatever the scanner gave.

A JPEG is decoded at a half, a quarter or an eighth of its size. Other formats are decoded whole, which Pillow cannot
avoid, then converted and averaged in strips; only one such picture is decoded at a time. docs/pictures.md states the
memory that this takes and how little it changes an embedding. Pictures of up to :data:`LARGE` pixels are not reduced.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

from ..core.extras import need

LARGE = 89_478_485  # pixels: Pillow's own warning level
LEAST_SIDE = 2048  # pixels that the short side still has: nine times the input of a model of 224 x 224
_STRIP = 1 << 22  # pixels that are converted at a time
_ONE_AT_A_TIME = threading.Lock()

Convert = Callable[[Any, tuple[float, float] | None], Any]


def decode_reduced(picture: Any, convert: Convert) -> Any:
    """Return an opened picture as RGB, with at least ``LEAST_SIDE`` pixels on its short side if it has as many.

    ``convert(strip, extremes)`` makes RGB of a part; ``extremes`` are the lowest and the highest value of the whole
    picture if a pixel is one wide number.
    """
    with _ONE_AT_A_TIME:
        factor = reduction(picture.size)
        picture.draft(None, (picture.width // factor, picture.height // factor))  # of a JPEG; others ignore it
        picture.load()
        return _average(picture, reduction(picture.size), convert)


def reduction(size: tuple[int, int]) -> int:
    """Return by how much the sides of a picture can be divided.

    >>> reduction((12_000, 9_000)), reduction((90_000, 1_000))
    (4, 1)
    """
    return max(1, min(size) // LEAST_SIDE)


def _average(picture: Any, factor: int, convert: Convert) -> Any:
    """Return the picture as RGB with every square of ``factor`` pixels averaged."""
    extremes = picture.getextrema() if picture.mode[0] in "IF" else None
    sides = (-(-picture.width // factor), -(-picture.height // factor))
    small = need("PIL.Image", "onnx").new("RGB", sides)
    for top, strip in _strips(picture, factor):
        small.paste(convert(strip, extremes).reduce(factor), (0, top // factor))
    return small


def _strips(picture: Any, factor: int) -> Iterator[tuple[int, Any]]:
    """Yield (top, strip) over the whole width; the heights are multiples of ``factor``, but for the last."""
    width, height = picture.size
    rows = max(1, _STRIP // (width * factor)) * factor
    for top in range(0, height, rows):
        yield top, picture.crop((0, top, width, min(top + rows, height)))
