"""How well an exported model agrees with the original. Imported only by ``export``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..core.types import Vectors
from ..errors import refuse
from .hf import HfEncoder
from .onnx import OnnxEncoder
from .prompts import DEFAULT, read_templates

PROBE_NAMES = ("dog", "polar bear", "airplane", "electric guitar", "person riding a bicycle")
MODEL_FILES = ("image.onnx", "text.onnx")


@dataclass(frozen=True, slots=True)
class Agreement:
    """One variant compared with the original: cosines, the largest difference, and the size of its files."""

    variant: str
    folder: str
    image_mean: float
    image_min: float
    text_mean: float
    text_min: float
    largest: float
    bytes: int


def compare(encoder: HfEncoder, variant: str, folder: Path, images: Sequence[Any]) -> Agreement:
    """Measure the folder against the original on ``images`` and on prompts of every default template."""
    copy = OnnxEncoder(folder)
    texts = [template.replace("{}", name) for template in read_templates(DEFAULT) for name in PROBE_NAMES]
    if not np.array_equal(copy.tokens(texts)[0], encoder.tokens(texts).cpu().numpy()):
        raise refuse("tokenizer", "other tokens from tokenizer.json", "a tokenizer that tokenizer.json describes")
    image = encoder.images(images), copy.images(images)
    text = encoder.texts(texts), copy.texts(texts)
    cosines = [(a.astype(np.float64) * b).sum(axis=1) for a, b in (image, text)]
    return Agreement(
        variant=variant,
        folder=str(folder),
        image_mean=float(cosines[0].mean()),
        image_min=float(cosines[0].min()),
        text_mean=float(cosines[1].mean()),
        text_min=float(cosines[1].min()),
        largest=max(float(np.abs(a - b).max()) for a, b in (image, text)),
        bytes=sum((folder / name).stat().st_size for name in MODEL_FILES),
    )


def synthetic_pictures(count: int, size: tuple[int, int]) -> list[Vectors]:
    """Return smooth random pictures (3, H, W), preprocessed: sums of a few waves in each channel."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[0 : size[0], 0 : size[1]] / max(size)
    pictures = []
    for _ in range(count):
        waves = rng.uniform(-8, 8, (3, 5, 2, 1, 1))  # channel, wave, direction
        phase = rng.uniform(0, 2 * np.pi, (3, 5, 1, 1))
        pictures.append(np.sin(2 * np.pi * (waves[:, :, 0] * x + waves[:, :, 1] * y) + phase).mean(axis=1) * 3)
    return [picture.astype(np.float32) for picture in pictures]
