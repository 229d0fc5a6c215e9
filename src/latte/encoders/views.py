"""Views of one picture: the plain one, and random crops, flips and AugMix mixtures of it.

View 0 is the plain picture after preprocessing. Every other view starts from the whole picture: a random
crop of 8 to 100 % of the area resized to the input size, mirrored half of the time ("crop_flip", as Zero uses
it), then mixed with three chains of simple operations ("augmix", as TPT uses it). The draws of a picture depend
on the seed and on the picture's own key, so neither the order nor the number of workers changes them.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.types import Vectors
from ..core.validate import at_least, choice
from ..errors import need, refuse
from .pictures import as_picture
from .preprocess import INTERPOLATIONS, Preprocess

CHAINS = 3  # mixed together
MOST_IN_CHAIN = 3  # in one chain, drawn with replacement
AUGMENTATIONS = (
    "autocontrast", "equalize", "posterize", "rotate", "solarize", "shear_x", "shear_y", "translate_x", "translate_y",
)  # fmt: skip
VIEW_KINDS = ("augmix", "crop_flip")
BILINEAR = INTERPOLATIONS["bilinear"]
MOST_VIEWS = 1024  # of one picture, all of which are in memory at once: 600 MB at 224 x 224 pixels
_ATTEMPTS = 10


@dataclass(frozen=True, slots=True)
class ViewPlan:
    """Which views to make.

    - ``kind``: "augmix" or "crop_flip"
    - ``count``: the number of views besides the plain one
    - ``seed``: of the random numbers, together with the key of a picture
    - ``area`` and ``ratio``: bounds of the random crop (torchvision's defaults; DMN uses area (0.5, 1))
    """

    kind: str = "augmix"
    count: int = 63
    seed: int = 0
    area: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)

    def __post_init__(self) -> None:
        choice("kind", self.kind, VIEW_KINDS)
        at_least("count", self.count, 0, MOST_VIEWS)
        at_least("seed", self.seed, 0)
        if not (0 < self.area[0] <= self.area[1] <= 1 and 0 < self.ratio[0] <= self.ratio[1]):
            raise refuse("crop", f"area {self.area}, ratio {self.ratio}", "0 < low <= high, area <= 1")


def make_views(picture: Any, key: str | int, preprocess: Preprocess, plan: ViewPlan | None = None) -> Vectors:
    """Return (1 + count, 3, H, W) float32, the input of the encoder's ``images``.

    ``key`` names the picture (its path inside the dataset, or its index); the same key gives the same views.
    """
    plan = plan or ViewPlan()
    source = as_picture(picture)
    plain = np.asarray(preprocess.framed(source))  # (H, W, 3) uint8
    pixels = np.empty((1 + plan.count, *plain.shape), np.float32)
    pixels[0] = plain
    rng = generator(plan.seed, key)
    for view in pixels[1:]:
        crop = crop_flip(source, plain.shape[:2], plan, rng)
        view[...] = np.asarray(crop) if plan.kind == "crop_flip" else mix(crop, rng)
    return preprocess.normalise(pixels)


def generator(seed: int, key: str | int) -> np.random.Generator:
    """Return the random generator of one picture.

    >>> generator(0, "dog/1.jpg").random() == generator(0, "dog/1.jpg").random()
    True
    """
    name = f"{type(key).__name__}:{key}".encode(errors="surrogatepass")  # a file name need not be text
    digest = hashlib.sha256(name).digest()
    words = np.frombuffer(digest, "<u4").tolist()
    return np.random.default_rng(np.random.SeedSequence([seed, *words]))


def crop_flip(source: Any, size: tuple[int, ...], plan: ViewPlan, rng: np.random.Generator) -> Any:
    """Return a random crop of an RGB picture, resized (bilinear) to ``size`` (H, W), mirrored half of the time."""
    left, top, width, height = crop_box(source.size, plan, rng)
    # crop first: a resize with a box would read pixels outside of it
    crop = source.crop((left, top, left + width, top + height))
    view = crop.resize((size[1], size[0]), BILINEAR)
    return view.transpose(0) if rng.random() < 0.5 else view  # 0: left and right change places


def crop_box(source: tuple[int, int], plan: ViewPlan, rng: np.random.Generator) -> tuple[int, int, int, int]:
    """Return (left, top, width, height) of a random crop: the rule of torchvision's RandomResizedCrop."""
    width, height = source
    low, high = math.log(plan.ratio[0]), math.log(plan.ratio[1])
    for _ in range(_ATTEMPTS):
        area = width * height * rng.uniform(*plan.area)
        ratio = math.exp(rng.uniform(low, high))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return int(rng.integers(width - w + 1)), int(rng.integers(height - h + 1)), w, h
    # too long for any random crop: the largest central one whose aspect is allowed
    w = min(width, max(1, round(height * plan.ratio[1])))
    h = min(height, max(1, round(width / plan.ratio[0])))
    return (width - w) // 2, (height - h) // 2, w, h


def mix(picture: Any, rng: np.random.Generator) -> Vectors:
    """Return the AugMix mixture of an RGB picture, (H, W, 3) float32 in 0..255.

    m·x + (1 − m)·Σ w_i·chain_i(x). TPT mixes after normalising; the weights sum to 1 and normalising is
    affine, so mixing the unrounded pixels and normalising once is the same.
    """
    weights = rng.dirichlet(np.ones(CHAINS))
    keep = rng.beta(1.0, 1.0)
    result = np.asarray(picture, np.float32) * np.float32(keep)
    for weight in weights:
        chain = picture
        for _ in range(int(rng.integers(1, MOST_IN_CHAIN + 1))):
            chain = augment(chain, AUGMENTATIONS[int(rng.integers(len(AUGMENTATIONS)))], rng)
        result += np.float32((1 - keep) * weight) * np.asarray(chain, np.float32)
    return result


def augment(picture: Any, name: str, rng: np.random.Generator) -> Any:
    """Return an RGB picture after one of the ``AUGMENTATIONS`` at severity 1; pixels from outside are black."""
    ops = need("PIL.ImageOps", "onnx")
    if name in ("autocontrast", "equalize"):
        return getattr(ops, name)(picture)
    width, height = picture.size
    largest = {"posterize": 4, "rotate": 30, "solarize": 256, "translate_x": width / 3, "translate_y": height / 3}
    strength = rng.uniform(0.1, 1.0) * largest.get(name, 0.3) / 10
    if name == "posterize":
        return ops.posterize(picture, 4 - int(strength))  # always 4 bits
    if name == "solarize":
        return ops.solarize(picture, 256 - int(strength))
    sign = -1 if rng.random() > 0.5 else 1
    if name == "rotate":
        return picture.rotate(sign * int(strength), BILINEAR)
    if name.startswith("shear"):
        shear = sign * strength
        matrix = (1, shear, 0, 0, 1, 0) if name == "shear_x" else (1, 0, 0, shear, 1, 0)
        return picture.transform(picture.size, 0, matrix, BILINEAR)  # 0: affine
    shift = sign * int(strength)
    x, y = (shift, 0) if name == "translate_x" else (0, shift)
    return picture.crop((x, y, x + width, y + height))
