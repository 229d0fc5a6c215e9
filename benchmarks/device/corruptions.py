"""Time per corruption on CIFAR-sized images, and the whole benchmark: 60,000 images, one corruption each.

python benchmarks/device/corruptions.py [--images 500] [--whole 60000] [--workers 2]
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from latte.data.corruptions import CORRUPTIONS, SEVERITIES, corrupt, corrupt_each
from latte.data.corruptions.filters import gaussian


def smooth_images(n: int) -> np.ndarray:
    """Return n smooth random images; the time does not depend on what is in them, JPEG's a little."""
    noise = np.random.default_rng(0).random((n, 32, 32, 3))
    blurred = gaussian(noise, 2.0)
    return (255 * np.clip(4 * (blurred - 0.5) + 0.5, 0, 1)).astype(np.uint8)


def per_corruption(images: np.ndarray) -> None:
    print(f"CPU microseconds per image, one process, {len(images)} images\n")
    print(f"{'':18s}" + "".join(f"{f'sev. {s}':>9s}" for s in SEVERITIES))
    for name in CORRUPTIONS:
        print(f"{name:18s}" + "".join(f"{cost(images, name, s):9.0f}" for s in SEVERITIES))


def cost(images: np.ndarray, name: str, severity: int) -> float:
    corrupt(images[:2], name, severity)  # imports and textures
    start = time.process_time()
    corrupt(images, name, severity)
    return (time.process_time() - start) / len(images) * 1e6


def whole(images: np.ndarray, workers: int) -> None:
    which = np.arange(len(images)) % len(CORRUPTIONS)
    start = time.perf_counter()
    corrupt_each(images, which, 5, np.arange(len(images)), workers=workers)
    seconds = time.perf_counter() - start
    print(f"\n{len(images):,} images, one corruption each, severity 5, {workers} processes: {seconds:.1f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description="Time the corruptions.")
    parser.add_argument("--images", type=int, default=500)
    parser.add_argument("--whole", type=int, default=60_000)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    per_corruption(smooth_images(options.images))
    whole(np.resize(smooth_images(1_000), (options.whole, 32, 32, 3)), options.workers)


if __name__ == "__main__":
    main()
