"""The nineteen corruptions of CIFAR-10-C and CIFAR-100-C, with the CIFAR severities 1 to 5.

``corrupt`` is vectorised over the batch and deterministic by image: the result depends on the seed, the corruption
and the index of the image, not on the batch or the process.

The constants are those of the published generator for 32 x 32 images (weaker than ImageNet-C's). Other sizes
work: noise, colour, fog, frost, JPEG, pixelate and elastic_transform scale with the image or do not depend on
its size; the blurs, snow and spatter are in pixels and so look milder on a larger image.

With the random numbers of the published generator come its bytes: a test holds fifteen corruptions to a
recording of it. What differs from the published files: they were drawn without a seed, so random corruptions
agree in distribution only; the frost is drawn, not photographed (:mod:`.effects`); elastic_transform
interpolates exactly where older OpenCV rounds to 1/32 pixel. Quirks of the published set are kept: glass_blur
copies where it means to swap, values are truncated rather than rounded (also where ImageMagick makes the motion
blur), and drops of spatter brighter than white start again at black.

The mean distance from the clean image grows with the severity for thirteen of them. The constants of the
other six say otherwise: glass_blur blurs more from 1 to 3 but moves no more pixels (and from 4 to 5),
motion_blur is the same at 3 and 4, frost dims the image as it covers it from 3 on, elastic_transform tilts
less the more it ripples, spatter turns from water to mud at 4, and saturate takes colour away at 1 and 2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import starmap
from typing import Any

import numpy as np

from ...core.types import Integers
from ...core.validate import at_least, choice
from ...errors import refuse
from ...runtime import processes, signals_held
from . import effects
from .effects import load_textures
from .filters import Bytes, Rngs, streams

__all__ = ["CORRUPTIONS", "SEVERITIES", "corrupt", "corrupt_each", "load_textures"]

Corruption = Callable[[Bytes, int, Rngs], Bytes]

# In the order of the benchmark: the position is the domain, and part of the key of the random numbers.
FUNCTIONS: dict[str, Corruption] = {
    "gaussian_noise": effects.gaussian_noise,
    "shot_noise": effects.shot_noise,
    "impulse_noise": effects.impulse_noise,
    "defocus_blur": effects.defocus_blur,
    "glass_blur": effects.glass_blur,
    "motion_blur": effects.motion_blur,
    "zoom_blur": effects.zoom_blur,
    "snow": effects.snow,
    "frost": effects.frost,
    "fog": effects.fog,
    "brightness": effects.brightness,
    "contrast": effects.contrast,
    "elastic_transform": effects.elastic_transform,
    "pixelate": effects.pixelate,
    "jpeg_compression": effects.jpeg_compression,
    "speckle_noise": effects.speckle_noise,
    "gaussian_blur": effects.gaussian_blur,
    "spatter": effects.spatter,
    "saturate": effects.saturate,
}
CORRUPTIONS: tuple[str, ...] = tuple(FUNCTIONS)
SEVERITIES = (1, 2, 3, 4, 5)
LEAST_IMAGE_SIDE = 8
JOB_IMAGES = 512  # 1.5 MB of CIFAR images: small against the work, large against the cost of sending
CHUNK_PIXELS = 64 * 32 * 32  # worked on at a time: float64 copies stay in the cache


def corrupt(
    images: Any,
    name: str,
    severity: int,
    indices: Sequence[int] | np.ndarray | None = None,
    seed: int = 0,
    textures: Sequence[Bytes] | None = None,
) -> Bytes:
    """Return the images (n, H, W, 3) uint8 under corruption ``name`` at ``severity`` 1 to 5.

    ``indices`` (n,) are the images' places in their dataset, 0 to n - 1 where not given. ``textures``
    replaces the drawn frost (see :func:`load_textures`).

    >>> images = np.full((2, 32, 32, 3), 128, np.uint8)
    >>> both = corrupt(images, "gaussian_noise", 5, [10, 11])
    >>> bool((both[1:] == corrupt(images[1:], "gaussian_noise", 5, [11])).all())
    True
    """
    batch = np.asarray(images)
    if batch.dtype != np.uint8 or batch.ndim != 4 or batch.shape[3] != 3 or min(batch.shape[1:3]) < LEAST_IMAGE_SIDE:
        want = f"uint8 of shape (n, H, W, 3), H and W >= {LEAST_IMAGE_SIDE}"
        raise refuse("images", f"{batch.dtype} of shape {batch.shape}", want)
    choice("name", name, CORRUPTIONS)
    check_severity(severity)
    n, places = len(batch), np.arange(len(batch)) if indices is None else np.asarray(indices)
    want = f"{n} whole numbers >= 0, one per image"
    if places.shape != (n,) or (n and places.dtype.kind not in "iu"):
        raise refuse("indices", f"{places.dtype} of shape {places.shape}", want)
    if n and places.min() < 0:
        raise refuse("indices", int(places.min()), want)
    at_least("seed", seed, 0)
    change: Corruption = FUNCTIONS[name]
    if name == "frost" and textures is not None:
        change = partial(effects.frost, textures=textures)
    result = np.empty_like(batch)
    step = max(1, CHUNK_PIXELS // (batch.shape[1] * batch.shape[2]))
    for first in range(0, n, step):
        part = slice(first, first + step)
        rngs = streams(seed, CORRUPTIONS.index(name), places[part].tolist())
        result[part] = change(batch[part], severity, rngs)
    return result


def corrupt_each(
    images: Bytes,
    which: Integers,
    severity: int,
    indices: Integers,
    seed: int = 0,
    workers: int = 1,
    textures: Sequence[Bytes] | None = None,
) -> Bytes:
    """Return the images (n, H, W, 3), image i under corruption ``CORRUPTIONS[which[i]]``.

    The result does not depend on ``workers``, the number of processes. With more than one, a script must call
    this below ``if __name__ == "__main__":``, as for every use of processes.
    """
    places = [np.flatnonzero(which == number) for number in range(len(CORRUPTIONS))]
    jobs = [
        (name, at[first : first + JOB_IMAGES])
        for name, at in zip(CORRUPTIONS, places, strict=True)
        for first in range(0, len(at), JOB_IMAGES)
    ]
    calls = [(images[at], name, severity, indices[at], seed, textures) for name, at in jobs]
    result = np.empty_like(images)
    if workers == 1:
        for (_, at), done in zip(jobs, starmap(corrupt, calls), strict=True):
            result[at] = done
        return result
    with processes(workers) as pool:
        with signals_held():
            waiting = [pool.submit(corrupt, *call) for call in calls]
        for (_, at), job in zip(jobs, waiting, strict=True):
            result[at] = job.result()
    return result


def check_severity(severity: int) -> None:
    """Refuse a severity that is not a whole number from 1 to 5."""
    if isinstance(severity, bool) or severity not in SEVERITIES:
        raise refuse("severity", repr(severity), "1, 2, 3, 4 or 5")
