"""Frost: ice crystals laid over the image.

The published set cut its frost out of photographs whose origin is not stated, so they are not part of this
package. In their place stand five textures that are drawn here, always the same, with the colours, the
contrast and the graininess measured on the photographs at the published scale: one teal, two nearly white
(two of the five photographs that circulate are the same), one grey-blue, one dark and rough. The photographs, or other
pictures, can be used instead: see :func:`load_textures`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from ...core.types import Reals
from ...encoders import BadImageError, open_picture
from ...encoders.pictures import PICTURE_SUFFIXES
from ...errors import refuse
from .draws import Bytes, Rngs

FROST = ((1.0, 0.2), (1.0, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45))  # weight of the image, of the frost
PHOTOGRAPHS = ("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg")  # a sixth was never used
TEXTURE_SIDE = 192  # of a drawn texture; it tiles
REDUCTION = 5  # the published code scales its photographs by 0.2
LEAST_PICTURE_SIDE = 32 * REDUCTION  # of a picture, so that an image of CIFAR fits into it after the reduction


@dataclass(frozen=True, slots=True)
class Ice:
    """The look of a drawn texture: colour, large-scale and small-scale deviation per channel, needles."""

    mean: tuple[float, float, float]
    coarse: tuple[float, float, float]
    fine: float
    needles: int  # per 1,000 pixels
    length: int


ICE = (
    Ice((77.5, 149.0, 165.7), (21.0, 8.0, 4.0), 14.0, 900, 7),
    Ice((200.8, 205.4, 214.5), (9.0, 9.0, 9.0), -19.0, 600, 4),
    Ice((200.8, 205.4, 214.5), (9.0, 9.0, 9.0), -19.0, 600, 4),
    Ice((138.0, 153.2, 165.6), (12.0, 12.0, 13.0), 26.0, 300, 2),
    Ice((112.3, 123.3, 134.7), (24.0, 23.0, 22.0), 36.0, 400, 4),
)


def frost(images: Bytes, severity: int, rngs: Rngs, textures: Sequence[Bytes] | None = None) -> Bytes:
    """Lay a random window of a random texture over every image."""
    keep, add = FROST[severity - 1]
    size = images.shape[1:3]
    windows = [_tiled_window(rng, size) if textures is None else _window(rng, textures, size) for rng in rngs]
    return np.clip(keep * images + add * np.stack(windows), 0, 255).astype(np.uint8)


def _tiled_window(rng: np.random.Generator, size: tuple[int, ...]) -> Bytes:
    """Return a random window of a drawn texture, which has no edge."""
    texture = draw_textures()[int(rng.integers(len(ICE)))]
    top, left = rng.random(2)
    rows = (int(top * TEXTURE_SIDE) + np.arange(size[0])) % TEXTURE_SIDE
    columns = (int(left * TEXTURE_SIDE) + np.arange(size[1])) % TEXTURE_SIDE
    return texture[rows[:, None], columns]


def _window(rng: np.random.Generator, textures: Sequence[Bytes], size: tuple[int, ...]) -> Bytes:
    """Return a random window of a random picture, within its edges."""
    texture = textures[int(rng.integers(len(textures)))]
    top, left = rng.random(2)
    first = int(top * (texture.shape[0] - size[0])), int(left * (texture.shape[1] - size[1]))
    if min(first) < 0:
        raise refuse("textures", f"one of {texture.shape[:2]} pixels", f"at least the images' {size}")
    return texture[first[0] : first[0] + size[0], first[1] : first[1] + size[1]]


def load_textures(folder: str | Path) -> tuple[Bytes, ...]:
    """Read the pictures of a folder, by name, each reduced to every fifth pixel as the published set has them.

    Where they are the published photographs, the five that the published code draws from must be there, and a
    sixth is left out, because it never draws it.
    """
    pictures = {path.name: path for path in _pictures(Path(folder))}
    published = [name for name in PHOTOGRAPHS if name in pictures]
    if published:
        missing = [name for name in PHOTOGRAPHS if name not in pictures]
        if missing:
            raise refuse("frost", f"{folder} without {', '.join(missing)}", "all published frost photographs")
    return tuple(_texture(pictures[name]) for name in published or pictures)


def _pictures(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise refuse("frost", f"{folder}, which is no folder", "a folder of pictures of frost")
    paths = sorted(path for path in folder.iterdir() if path.suffix.lower() in PICTURE_SUFFIXES)
    if not paths:
        raise refuse("frost", f"{folder} without a picture", f"files that end in {', '.join(sorted(PICTURE_SUFFIXES))}")
    return paths


def _texture(path: Path) -> Bytes:
    if not path.is_file():
        raise refuse("frost", f"{path}, which is no regular file", "pictures only")
    try:
        picture = open_picture(path)
    except BadImageError as error:
        raise refuse("frost", str(error), "pictures only") from None
    if min(picture.size) < LEAST_PICTURE_SIDE:
        got = f"{path} of {picture.width} x {picture.height} pixels"
        raise refuse(
            "frost", got, f"at least {LEAST_PICTURE_SIDE} x {LEAST_PICTURE_SIDE}, of which every fifth pixel is used"
        )
    return np.ascontiguousarray(np.asarray(picture)[REDUCTION // 2 :: REDUCTION, REDUCTION // 2 :: REDUCTION])


# --- drawing ------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def draw_textures() -> tuple[Bytes, ...]:
    """Return the five textures, (TEXTURE_SIDE, TEXTURE_SIDE, 3) each."""
    return tuple(_draw(ice, np.random.Generator(np.random.Philox(key=i))) for i, ice in enumerate(ICE))


def _draw(ice: Ice, rng: np.random.Generator) -> Bytes:
    coarse = _clouds(rng)[..., None] * ice.coarse
    fine = _needles(ice, rng)[..., None] * ice.fine
    return np.clip(ice.mean + coarse + fine + 0.5, 0, 255).astype(np.uint8)


def _clouds(rng: np.random.Generator) -> Reals:
    """Return a smooth periodic surface of mean 0 and deviation 1: waves that shrink as they shorten."""
    y, x = np.mgrid[:TEXTURE_SIDE, :TEXTURE_SIDE] * (2 * np.pi / TEXTURE_SIDE)
    total = np.zeros((TEXTURE_SIDE, TEXTURE_SIDE))
    for ky in range(-6, 7):
        for kx in range(-6, 7):
            height, phase = rng.normal() / (1 + ky**2 + kx**2), rng.uniform(0, 2 * np.pi)
            total += height * np.cos(ky * y + kx * x + phase)
    return _standard(total)


def _needles(ice: Ice, rng: np.random.Generator) -> Reals:
    """Return many short straight crystals of all directions, of mean 0 and deviation 1."""
    count = ice.needles * TEXTURE_SIDE * TEXTURE_SIDE // 1000
    y, x, angle = rng.uniform(0, TEXTURE_SIDE, count), rng.uniform(0, TEXTURE_SIDE, count), rng.uniform(0, np.pi, count)
    length, glow = rng.uniform(1, ice.length, count), rng.exponential(1.0, count)
    canvas = np.zeros((TEXTURE_SIDE, TEXTURE_SIDE))
    for step in range(ice.length):
        lit = step < length
        rows = np.floor(y + step * np.sin(angle)).astype(int)[lit] % TEXTURE_SIDE
        columns = np.floor(x + step * np.cos(angle)).astype(int)[lit] % TEXTURE_SIDE
        np.add.at(canvas, (rows, columns), glow[lit])
    return _standard(canvas)


def _standard(surface: Reals) -> Reals:
    result: Reals = (surface - surface.mean()) / surface.std()
    return result
