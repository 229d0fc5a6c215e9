"""The 1-NN limit: for α, β → ∞ the real Latte, on the unit sphere, answers as the nearest stored vector."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..core.maths import normalised
from ..core.sync import sync
from ..core.types import Reals, Vectors
from ..core.zero_shot import ZeroShot
from ..methods.latte import Latte, LatteParams

LARGE = 1e6


@dataclass(frozen=True, slots=True, eq=False)
class Limit:
    """The share of predictions that equal 1-NN: ``by_beta`` with α = 10⁶, ``by_alpha`` with β = 10⁶."""

    beta: Reals
    by_beta: Reals
    alpha: Reals
    by_alpha: Reals
    predictions: int


@dataclass(frozen=True, slots=True)
class LimitSetup:
    """Synthetic streams, hard enough for the two readouts to differ: C classes, D dimensions, some clients."""

    classes: int = 6
    dim: int = 16
    clients: int = 3
    images: int = 250
    period: int = 25
    noise: float = 0.45
    shift: float = 0.5


def measure_limit(beta: Sequence[float], alpha: Sequence[float], setup: LimitSetup, rng: np.random.Generator) -> Limit:
    """Run the same streams for every β and every α."""
    zero_shot, streams = make_streams(setup, rng)
    by_beta = [agreement(zero_shot, streams, setup, LatteParams(alpha=LARGE, beta=b)) for b in beta]
    by_alpha = [agreement(zero_shot, streams, setup, LatteParams(alpha=a, beta=LARGE)) for a in alpha]
    return Limit(
        np.array(beta, np.float64),
        np.array(by_beta),
        np.array(alpha, np.float64),
        np.array(by_alpha),
        predictions=setup.clients * setup.images,
    )


def make_streams(setup: LimitSetup, rng: np.random.Generator) -> tuple[ZeroShot, Vectors]:
    """Return a classifier and the clients' unit vectors (N, images, D), off its text vectors by a shift."""
    text = normalised(rng.standard_normal((setup.classes, setup.dim)).astype(np.float32))
    labels = rng.integers(0, setup.classes, (setup.clients, setup.images))
    moved = text + setup.shift * normalised(rng.standard_normal(text.shape).astype(np.float32))
    noise = rng.standard_normal((*labels.shape, setup.dim)) * setup.noise
    names = tuple(f"class {i}" for i in range(setup.classes))
    return ZeroShot(text, names, scale=20.0), normalised((moved[labels] + noise).astype(np.float32))


def agreement(zero_shot: ZeroShot, streams: Vectors, setup: LimitSetup, params: LatteParams) -> float:
    """Return the share of Latte's predictions that are those of 1-NN over the memory it read."""
    clients = [Latte(zero_shot, params) for _ in streams]
    exchange = Latte.exchange_for(zero_shot, params)
    same = 0
    for i in range(setup.images):
        for client, stream in zip(clients, streams, strict=True):
            same += client.predict(stream[i : i + 1]).label == nearest_class(client, stream[i])
        if i % setup.period == setup.period - 1:
            sync([(str(name), client) for name, client in enumerate(clients)], exchange)
    return same / streams[:, :, 0].size


def nearest_class(client: Latte, vector: Vectors) -> int:
    """Return the class of the stored vector nearest to ``vector`` in Euclidean distance.

    After ``predict`` the merged memory is the one that was read: insertion comes first (B9).
    """
    gaps = np.linalg.norm(client.merged.vectors.astype(np.float64) - vector, axis=-1)
    gaps[np.isneginf(client.merged.offset)] = np.inf  # free slots
    return int(gaps.min(axis=1).argmin())
