"""From a picture to the input of a model: resize, centre crop, normalise, in Pillow and numpy.

The default is the reference CLIP transform: short side to 224 (bicubic with antialiasing), centre crop, mean and
standard deviation of CLIP's training images.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.types import Vectors
from ..core.validate import at_least, choice
from ..errors import refuse
from ..files.documents import structure
from .pictures import Picture, as_picture

CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)
HALVES = (0.5, 0.5, 0.5)
# Pillow's numbers, which HF files use too
INTERPOLATIONS = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3, "box": 4, "hamming": 5}
ROUNDINGS = ("round", "floor")
MOST_SIDE = 1 << 13  # of a model's input: the largest have some 1,000 pixels
_MOST = 50_000_000  # pixels: if the resized picture would have more, only the crop is computed


@dataclass(frozen=True, slots=True)
class Preprocess:
    """The preprocessing of one model.

    - ``size``: (H, W), to which the centre is cropped
    - ``short_side``: where the short side goes before; None: the whole picture is squashed to ``size`` (SigLIP)
    - ``interpolation``: one of ``INTERPOLATIONS``
    - ``mean``, ``std``, ``rescale``: a pixel x in 0..255 becomes (x · rescale − mean) / std, per channel
    - ``crop_rounding``: where an odd margin goes, "round" as in torchvision and the reference CLIP, "floor" as in
      transformers
    - ``low_res``, ``low_res_size``: a source of short side <= ``low_res`` is resized to ``low_res_size`` instead, for
      models that have a second, smaller input

    >>> Preprocess(size=(64, 64), short_side=64)(np.zeros((480, 640, 3), np.uint8)).shape
    (3, 64, 64)
    """

    size: tuple[int, int] = (224, 224)
    short_side: int | None = 224
    interpolation: str = "bicubic"
    mean: tuple[float, float, float] = CLIP_MEAN
    std: tuple[float, float, float] = CLIP_STD
    rescale: float = 1 / 255
    crop_rounding: str = "round"
    low_res: int = 0
    low_res_size: int = 0

    def __post_init__(self) -> None:
        choice("interpolation", self.interpolation, tuple(INTERPOLATIONS))
        choice("crop_rounding", self.crop_rounding, ROUNDINGS)
        for side in (*self.size, *([] if self.short_side is None else [self.short_side])):
            at_least("size", side, 1, MOST_SIDE)
        if len(self.size) != 2 or len(self.mean) != 3 or len(self.std) != 3 or min(self.std) <= 0:
            raise refuse("preprocessing", f"{self.mean}, {self.std}", "two sides, three means, three deviations > 0")
        if self.low_res:
            at_least("low_res_size", self.low_res_size, 1)

    def __call__(self, picture: Picture) -> Vectors:
        """Return a picture (PIL image, path, bytes or uint8 array) as (3, H, W) float32."""
        return self.normalise(np.asarray(self.framed(as_picture(picture))))

    def framed(self, picture: Any) -> Any:
        """Return an RGB ``PIL.Image`` resized and cropped: the last step that is still a picture."""
        rule, (full_width, full_height) = self, picture.size
        if self.low_res and min(picture.size) <= self.low_res:
            side = self.low_res_size
            rule = replace(self, size=(side, side), short_side=None if self.short_side is None else side)
        height, width = rule.size
        resample = INTERPOLATIONS[rule.interpolation]
        if (short := rule.short_side) is None:
            return picture.resize((width, height), resample)
        # the long side is truncated, as in the references
        resized = short, int(short * full_height / full_width)
        if full_width > full_height:
            resized = int(short * full_width / full_height), short
        spare = resized[0] - width, resized[1] - height
        left, top = (round(each / 2) if self.crop_rounding == "round" else each // 2 for each in spare)
        if resized[0] * resized[1] > _MOST and left >= 0 <= top:  # a 1 x 5000 strip must not become 224 x 1120000
            x, y = full_width / resized[0], full_height / resized[1]
            box = left * x, top * y, min((left + width) * x, full_width), min((top + height) * y, full_height)
            return picture.resize((width, height), resample, box=box)
        box = (left, top, left + width, top + height)
        return picture.resize(resized, resample).crop(box)  # outside of the picture, crop() gives black

    def normalise(self, pixels: NDArray[Any]) -> Vectors:
        """Return pixels (..., H, W, 3) in 0..255 as (..., 3, H, W) float32, (x · rescale − mean) / std."""
        std = np.asarray(self.std)
        slope = (self.rescale / std).astype(np.float32)[:, None, None]
        offset = (-np.asarray(self.mean) / std).astype(np.float32)[:, None, None]
        result = np.ascontiguousarray(np.moveaxis(pixels, -1, -3), dtype=np.float32)
        if result is pixels:
            result = result.copy()
        result *= slope
        result += offset
        return result

    def to_json(self) -> dict[str, Any]:
        """Return the fields as plain values, for a model.json."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}


def from_json(config: Mapping[str, Any]) -> Preprocess:
    """Return the preprocessing that ``to_json`` wrote."""
    return structure(config, Preprocess, "preprocess")


def from_hf(config: Mapping[str, Any]) -> Preprocess:
    """Read a transformers ``preprocessor_config.json`` (CLIP and SigLIP families).

    >>> from_hf({"size": {"height": 256, "width": 256}, "resample": 3}).short_side is None
    True
    """
    if not config.get("do_resize", True):
        raise refuse("preprocessor_config.json", "do_resize false", "a model with one input size")
    size = config.get("size", 224)
    size = size if isinstance(size, Mapping) else {"shortest_edge": size}
    short = size.get("shortest_edge")
    crops = config.get("do_center_crop", short is not None)
    frame = _pair(config.get("crop_size", 224) if crops else size) if crops or short is None else None
    if frame is None or (crops and short is None and frame != _pair(size)):
        raise refuse("preprocessor_config.json", f"size {size}, centre crop {crops}", "a model with one input size")
    names, number = {value: key for key, value in INTERPOLATIONS.items()}, config.get("resample", 3)
    if not isinstance(number, int) or number not in names:
        raise refuse("resample", number, f"one of {names}")
    normal = config.get("do_normalize", True)
    siglip = str(config.get("image_processor_type", "")).startswith("Siglip")
    mean, std = (HALVES, HALVES) if siglip else (CLIP_MEAN, CLIP_STD)
    rule = {
        "size": frame,
        "short_side": short,
        "interpolation": names[number],
        "mean": config.get("image_mean") or mean if normal else (0.0, 0.0, 0.0),
        "std": config.get("image_std") or std if normal else (1.0, 1.0, 1.0),
        "rescale": config.get("rescale_factor", 1 / 255) if config.get("do_rescale", True) else 1.0,
        "crop_rounding": "floor",
    }
    return structure(rule, Preprocess, "preprocessor_config.json")


def from_open_clip(config: Mapping[str, Any]) -> Preprocess:
    """Read the ``preprocess_cfg`` of open_clip (in ``open_clip_config.json`` or on the model)."""
    size = _pair(config.get("size", 224))
    mode = config.get("resize_mode") or "shortest"
    if mode not in ("shortest", "squash") or (mode == "shortest" and size[0] != size[1]):
        raise refuse("open_clip resize_mode", f"{mode!r} to {size}", "'squash', or 'shortest' to a square")
    rule = {
        "size": size,
        "short_side": size[0] if mode == "shortest" else None,
        "interpolation": config.get("interpolation") or "bicubic",
        "mean": config.get("mean") or CLIP_MEAN,
        "std": config.get("std") or CLIP_STD,
    }
    return structure(rule, Preprocess, "open_clip preprocess_cfg")


def _pair(size: Any) -> tuple[int, int]:
    sides = (size.get("height"), size.get("width")) if isinstance(size, Mapping) else size
    return structure((sides, sides) if isinstance(sides, int) else sides, tuple[int, int], "size")
