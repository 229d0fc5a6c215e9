"""Weather: snow and fog, frost on the lens, spatter of water and mud."""

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
from .blur import streaks
from .filters import (
    Bytes,
    Rngs,
    canny,
    correlate,
    distances,
    equalise,
    gaussian,
    normal,
    to_bytes,
    to_single,
    to_unit,
    uniform,
    zoom,
)

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
    red, green, blue = (clean[..., i, None] * GREY_WEIGHTS[i] for i in range(3))
    grey = red + green + blue
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
    if not Path(folder).is_dir():
        raise refuse("frost", f"{folder}, which is no folder", "a folder of pictures of frost")
    paths = sorted(path for path in Path(folder).iterdir() if path.suffix.lower() in PICTURE_SUFFIXES)
    if not paths:
        raise refuse("frost", f"{folder} without a picture", f"files that end in {', '.join(sorted(PICTURE_SUFFIXES))}")
    published = [path for path in paths if path.name in PHOTOGRAPHS]
    if published and len(published) < len(PHOTOGRAPHS):
        missing = sorted(set(PHOTOGRAPHS) - {path.name for path in published})
        raise refuse("frost", f"{folder} without {', '.join(missing)}", "all published frost photographs")
    return tuple(_texture(path) for path in published or paths)


def _texture(path: Path) -> Bytes:
    if not path.is_file():
        raise refuse("frost", f"{path}, which is no regular file", "pictures only")
    try:
        picture = open_picture(path)
    except BadImageError as error:
        raise refuse("frost", str(error), "pictures only") from None
    if min(picture.size) < LEAST_PICTURE_SIDE:
        want = f"at least {LEAST_PICTURE_SIDE} x {LEAST_PICTURE_SIDE}, of which every fifth pixel is used"
        raise refuse("frost", f"{path} of {picture.width} x {picture.height} pixels", want)
    return np.ascontiguousarray(np.asarray(picture)[REDUCTION // 2 :: REDUCTION, REDUCTION // 2 :: REDUCTION])


@lru_cache(maxsize=1)
def draw_textures() -> tuple[Bytes, ...]:
    """Return the five textures, (TEXTURE_SIDE, TEXTURE_SIDE, 3) each."""
    textures = []
    for i, ice in enumerate(ICE):
        rng = np.random.Generator(np.random.Philox(key=i))
        coarse = _clouds(rng)[..., None] * ice.coarse
        fine = _needles(ice, rng)[..., None] * ice.fine
        textures.append(np.clip(ice.mean + coarse + fine + 0.5, 0, 255).astype(np.uint8))
    return tuple(textures)


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
