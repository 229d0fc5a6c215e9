"""The nineteen corruptions, one function each: noise, blur, weather, digital artefacts, colours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from ...core.types import Reals
from ...encoders import BadImageError, open_picture
from ...encoders.pictures import PICTURE_SUFFIXES
from ...errors import need, refuse
from .filters import (
    Bytes,
    Rngs,
    canny,
    correlate,
    distances,
    equalise,
    fold_reflect,
    fold_symmetric,
    gaussian,
    normal,
    pad,
    round_to_single,
    sample,
    to_bytes,
    to_single,
    to_unit,
    uniform,
    zoom,
)

GAUSSIAN_NOISE_SIGMA = (0.04, 0.06, 0.08, 0.09, 0.10)
SHOT_PHOTONS = (500, 250, 100, 75, 50)
IMPULSE_SHARE = (0.01, 0.02, 0.03, 0.05, 0.07)
SPECKLE_SIGMA = (0.06, 0.10, 0.12, 0.16, 0.20)


def gaussian_noise(images: Bytes, severity: int, rngs: Rngs) -> Bytes:
    """Add the same amount of noise everywhere."""
    return to_bytes(to_unit(images) + GAUSSIAN_NOISE_SIGMA[severity - 1] * normal(rngs, images.shape[1:]))


def shot_noise(images: Bytes, severity: int, rngs: Rngs) -> Bytes:
    """Count photons: Poisson noise, stronger where the image is bright."""
    photons = SHOT_PHOTONS[severity - 1]
    expected = to_unit(images) * photons
    counts = np.stack([rng.poisson(mean) for rng, mean in zip(rngs, expected, strict=True)])
    return to_bytes(counts / photons)


def impulse_noise(images: Bytes, severity: int, rngs: Rngs) -> Bytes:
    """Set a share of the values to 0 or 255, each channel for itself."""
    draws = uniform(rngs, (2, *images.shape[1:]))
    hit = draws[:, 0] <= IMPULSE_SHARE[severity - 1]
    extreme = np.where(draws[:, 1] <= 0.5, np.uint8(255), np.uint8(0))
    return np.where(hit, extreme, images)


def speckle_noise(images: Bytes, severity: int, rngs: Rngs) -> Bytes:
    """Add noise in proportion to the value."""
    clean = to_unit(images)
    return to_bytes(clean + clean * (SPECKLE_SIGMA[severity - 1] * normal(rngs, images.shape[1:])))


DEFOCUS = ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1.0, 0.2), (1.5, 0.1))  # radius, alias sigma
GLASS = ((0.05, 1), (0.25, 1), (0.4, 1), (0.25, 2), (0.4, 2))  # sigma, iterations; the reach is 1 pixel
MOTION = ((6, 1.0), (6, 1.5), (6, 2.0), (8, 2.0), (9, 2.5))  # radius, sigma
ZOOM_END = (1.06, 1.11, 1.16, 1.21, 1.26)  # factors 1, 1.01, ... below this
STEPS_16 = 257  # of a 16-bit value in one level of 8 bits
GAUSSIAN_BLUR_SIGMA = (0.4, 0.6, 0.7, 0.8, 1.0)


def gaussian_blur(images: Bytes, severity: int, rngs: Rngs) -> Bytes:
    """Blur with a Gaussian."""
    return to_bytes(gaussian(to_unit(images), GAUSSIAN_BLUR_SIGMA[severity - 1]))


def defocus_blur(images: Bytes, severity: int, rngs: Rngs) -> Bytes:
    """Blur with a disk, the shape of an open lens."""
    return to_bytes(correlate(to_unit(images), disk(*DEFOCUS[severity - 1]), "reflect"))


def disk(radius: float, alias_sigma: float) -> Reals:
    """Return a disk whose edge is smoothed by a 3 x 3 Gaussian.

    >>> disk(1.0, 0.2).round(2)[1:4, 1:4]
    array([[0. , 0.2, 0. ],
           [0.2, 0.2, 0.2],
           [0. , 0.2, 0. ]])
    """
    reach = int(np.ceil(radius)) + 1
    at = np.arange(-reach, reach + 1)
    hard = (at[:, None] ** 2 + at[None, :] ** 2 <= radius**2).astype(np.float64)
    taps = np.exp(-0.5 * (np.array([-1.0, 0.0, 1.0]) / alias_sigma) ** 2)
    taps /= taps.sum()
    even, taps = round_to_single(hard / hard.sum()), round_to_single(taps)
    rows = round_to_single(correlate(even[None], taps[None, :], "edge"))
    return round_to_single(correlate(rows, taps[:, None], "edge")[0])  # adds up to 1 or a little more, as published


def glass_blur(images: Bytes, severity: int, rngs: Rngs) -> Bytes:
    """Blur, move pixels by up to one to the left and up, blur again."""
    sigma, iterations = GLASS[severity - 1]
    moved = to_bytes(gaussian(to_unit(images), sigma))
    for _ in range(iterations):
        moved = displace(moved, rngs)
    return to_bytes(gaussian(to_unit(moved), sigma))


def displace(images: Bytes, rngs: Rngs) -> Bytes:
    """Copy into every pixel from the third row and column on itself or a neighbour to the left or above.

    The published set was meant to swap two pixels but copied one (the values were views of the same array),
    going from the last row and column to the first. The source of a copy lies before its target and is thus
    still untouched when it is read, so the whole pass is one gather from the old image.
    """
    n, height, width = images.shape[:3]
    steps = np.stack([rng.integers(-1, 1, (2, height - 2, width - 2)) for rng in rngs])
    rows = np.arange(2, height)[:, None] + steps[:, 0]
    columns = np.arange(2, width) + steps[:, 1]
    result = images.copy()
    result[:, 2:, 2:] = images[np.arange(n)[:, None, None], rows, columns]
    return result


def motion_blur(images: Bytes, severity: int, rngs: Rngs) -> Bytes:
    """Blur along one direction, up to 45 degrees from the horizontal."""
    radius, sigma = MOTION[severity - 1]
    return streaks(images, radius, sigma, [rng.uniform(-45.0, 45.0) for rng in rngs])


def streaks(images: Bytes, radius: int, sigma: float, degrees: list[float]) -> Bytes:
    """Blur every image in a direction of its own, as ImageMagick's motion blur does on its way to a PNG.

    Half a Gaussian of 2·radius + 1 taps is laid from each pixel along the direction, its steps rounded to
    whole pixels, the edge repeated. The sum is rounded to 16 bits, which hold 257 steps per level of 8, and those
    are cut off: the published set truncates here too, and a flat image stays what it is.
    """
    height, width = images.shape[1:3]
    steps = np.arange(2 * radius + 1)
    taps = np.exp(-0.5 * (steps / sigma) ** 2)
    taps /= taps.sum()
    reach = 2 * radius
    padded = pad(images, reach, reach, "edge").astype(np.float64)
    result = np.empty_like(images)
    for i, angle in enumerate(np.deg2rad(degrees)):
        rows = np.ceil(steps * np.sin(angle) - 0.5).astype(int) + reach
        columns = np.ceil(steps * np.cos(angle) - 0.5).astype(int) + reach
        total = np.zeros(images.shape[1:])
        for tap, y, x in zip(taps, rows, columns, strict=True):
            total += tap * padded[i, y : y + height, x : x + width]
        result[i] = (np.floor(total * STEPS_16 + 0.5) // STEPS_16).astype(np.uint8)
    return result


def zoom_blur(images: Bytes, severity: int, rngs: Rngs) -> Bytes:
    """Average the image (twice) with ever larger versions of itself."""
    clean = to_single(images)
    factors = np.arange(1, ZOOM_END[severity - 1], 0.01)
    total = np.zeros_like(clean)
    for factor in factors:
        total += zoom(clean.astype(np.float64), float(factor)).astype(np.float32)
    return to_bytes((clean + total) / (len(factors) + 1))


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
