"""Pictures for the tests of the corruptions: real ones where they are at hand, drawn ones elsewhere."""

import os
from pathlib import Path

import numpy as np
import pytest

from latte.data.corruptions.filters import gaussian

ROOT = Path(__file__).parent.parent.parent


def cifar_sheet(folder: Path) -> np.ndarray:
    """The 10,000 CIFAR-10 test images, cut from their contact sheet."""
    from PIL import Image

    with Image.open(folder / "data" / "images" / "cifar10_test_sheet.webp") as sheet:
        tiles = np.asarray(sheet.convert("RGB")).reshape(100, 32, 100, 32, 3)
    return tiles.transpose(0, 2, 1, 3, 4).reshape(10_000, 32, 32, 3)


def drawn_pictures(n: int) -> np.ndarray:
    """Smooth colours with a round edge and some texture, like a photograph and unlike noise."""
    rng = np.random.default_rng(0)
    smooth = gaussian(rng.random((n, 32, 32, 3)), 1.7)
    scaled = 0.5 + (smooth - smooth.mean(axis=(1, 2), keepdims=True)) * 3 + rng.normal(0, 0.15, (n, 1, 1, 3))
    y, x = np.mgrid[:32, :32]
    for picture, (top, left, radius) in zip(scaled, rng.uniform(6, 20, (n, 3)), strict=True):
        picture[np.hypot(y - top, x - left) < radius] += rng.choice([-0.3, 0.3])
    return (255 * np.clip(scaled + 0.04 * rng.standard_normal(scaled.shape), 0, 1)).astype(np.uint8)


@pytest.fixture(scope="session")
def cifar_test(shared: Path) -> np.ndarray:
    return cifar_sheet(shared)


@pytest.fixture(scope="session")
def pictures() -> np.ndarray:
    """200 pictures of 32 x 32."""
    folder = Path(os.environ.get("LATTE_SHARED", ROOT.parent / "shared"))
    if (folder / "data" / "images" / "cifar10_test_sheet.webp").is_file():
        return cifar_sheet(folder)[:200]
    return drawn_pictures(200)
