"""A small random benchmark on disk, for tests that need a file but no meaning."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from latte.core.zero_shot import ZeroShot
from latte.data.embeddings import save_embeddings
from latte.data.federation import Embeddings


def unit(rng: np.random.Generator, *shape: int) -> np.ndarray:
    rows = rng.normal(size=shape)
    return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)


def small_file(folder: Path, name: str = "small", seed: int = 0, encoder: str = "tiny", dim: int = 8) -> Path:
    """48 images of 3 classes in 2 domains; the views lie around their class."""
    rng = np.random.default_rng(seed)
    text, labels = unit(rng, 3, dim), np.arange(48) % 3
    views = text[labels] + 0.8 * unit(rng, 48, dim)
    views /= np.linalg.norm(views, axis=-1, keepdims=True)
    path = folder / f"{name}.safetensors"
    zero_shot, domain = ZeroShot(text, ("a", "b", "c"), 10.0), np.repeat([0, 1], 24)
    metadata = {"encoder": encoder}
    save_embeddings(
        path, Embeddings(name, zero_shot, views[:, None], labels, domain, ("x", "y"), metadata, np.arange(48))
    )
    return path
