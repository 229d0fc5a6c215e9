"""Random worlds for the methods: a classifier, and images whose entropies fill the whole range."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from latte import ZeroShot

Stream = tuple[ZeroShot, list[np.ndarray]]


def _unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="session")
def make_stream() -> Callable[..., Stream]:
    """Return a function that makes a classifier of C classes and n images of V views."""

    def make(seed: int, n: int = 60, C: int = 5, V: int = 1, D: int = 16, scale: float = 12.0) -> Stream:
        rng = np.random.default_rng(seed)
        zero_shot = ZeroShot(_unit(rng.normal(size=(C, D))), tuple(f"class {y}" for y in range(C)), scale)
        images = []
        for _ in range(n):
            strength = rng.uniform(0.0, 1.2)
            centre = strength * zero_shot.text[rng.integers(C)] + 0.25 * rng.normal(size=D)
            images.append(_unit(centre + 0.3 * rng.normal(size=(V, D)) * (np.arange(V) > 0)[:, None]))
        return zero_shot, images

    return make
