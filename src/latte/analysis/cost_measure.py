"""Measure what a method adds to the encoder: time per image in the same run, and peak memory."""

from __future__ import annotations

import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.contracts import Method
from ..core.maths import normalised
from ..core.types import External, Vectors
from ..core.zero_shot import ZeroShot
from ..methods import create, describe
from ..methods.latte import Latte
from .cost import CostShape

REFERENCE_SIDE = 2048  # of the square matrix in the reference product


@dataclass(frozen=True, slots=True)
class Reference:
    """The work that times are compared with: what it is, its seconds per image, its bytes of memory (None: unknown)."""

    what: str
    seconds: float
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """What one method took: ``seconds`` per image beside the encoder, and ``peak`` bytes of memory and workspace."""

    seconds: float
    peak: int


def matmul_reference(macs: int, repeats: int = 5) -> Reference:
    """Time one float32 matrix product with as many MACs as the encoder: what this machine could do at best."""
    columns = max(1, round(macs / REFERENCE_SIDE**2))
    rng = np.random.default_rng(0)
    left = rng.standard_normal((REFERENCE_SIDE, REFERENCE_SIDE), np.float32)
    right = rng.standard_normal((REFERENCE_SIDE, columns), np.float32)
    seconds = _median(lambda: left @ right, repeats)
    return Reference(f"one float32 matrix product of {REFERENCE_SIDE**2 * columns:,} MACs", seconds)


def encoder_reference(load: Callable[[], Any], repeats: int = 10) -> tuple[Any, Reference]:
    """Load an encoder and time it on one preprocessed picture at a time; return both.

    Its memory is by how much it raised the peak of the process.
    """
    before = peak_resident()
    encoder = load()
    pixels = one_picture(encoder)
    seconds = _median(lambda: encoder.images([pixels]), repeats)
    return encoder, Reference(f"the encoder {encoder.name}", seconds, peak_resident() - before)


def one_picture(encoder: Any) -> Vectors:
    """Return a noisy picture, preprocessed for ``encoder``: (3, H, W)."""
    picture = np.random.default_rng(0).integers(0, 256, (224, 224, 3), np.uint8)
    return np.asarray(encoder.preprocess(picture), np.float32)


def measure_method(name: str, params: Any, shape: CostShape, images: int = 200) -> Measured:
    """Let one client with a full memory handle ``images`` images; the median time, and the peak of a shorter run."""
    zero_shot, stream = material(shape, shape.views if describe(name).uses_views else 1, images)
    client = _client(name, zero_shot, params)
    for views in stream[: images // 2]:
        client.predict(views)
    times = [_timed(lambda views=views: client.predict(views)) for views in stream[images // 2 :]]  # type: ignore[misc]
    return Measured(statistics.median(times), _peak(name, zero_shot, params, stream[:20]))


def material(shape: CostShape, views: int, images: int) -> tuple[ZeroShot, Vectors]:
    """Return a classifier, and images (n, V, D) scattered around its classes so that every memory fills."""
    rng = np.random.default_rng(0)
    text = normalised(rng.standard_normal((shape.classes, shape.dim), np.float32))
    labels = rng.integers(0, shape.classes, images)
    noise = rng.standard_normal((images, views, shape.dim), np.float32) / np.sqrt(np.float32(shape.dim))
    return ZeroShot(text, tuple(f"class {i}" for i in range(shape.classes))), normalised(text[labels][:, None] + noise)


def peak_resident() -> int:
    """Return the most memory that this process ever held, in bytes; 0 where the system does not report it."""
    try:
        import resource
    except ImportError:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak) if sys.platform == "darwin" else int(peak) * 1024


def _client(name: str, zero_shot: ZeroShot, params: Any) -> Method:
    method = create(name, zero_shot, params)
    if isinstance(method, Latte):  # what a sync brings: k_e prototypes for every class
        k, rng = method.params.k_e, np.random.default_rng(1)
        noise = rng.standard_normal((zero_shot.classes, k, zero_shot.dim), np.float32) / zero_shot.dim**0.5
        vectors = normalised((zero_shot.text[:, None] + noise).astype(np.float32))
        full = np.ones((zero_shot.classes, k), np.bool_)
        method.receive(External(vectors, np.where(full, 0.5, 1.0), full, method.zero_shot.fingerprint))
    return method


def _peak(name: str, zero_shot: ZeroShot, params: Any, stream: Vectors) -> int:
    """Return the peak of what a client allocates: its memories and the workspace of its predictions."""
    tracemalloc.start()
    try:
        client = _client(name, zero_shot, params)
        for views in stream:
            client.predict(views)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _median(call: Callable[[], Any], repeats: int) -> float:
    call()  # the first call also pays for what is loaded and allocated once
    return statistics.median(_timed(call) for _ in range(repeats))


def _timed(call: Callable[[], Any]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started
