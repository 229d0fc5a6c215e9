"""Very large pictures: the memory and the time that decoding takes, and how little the embedding changes.

python benchmarks/device/large_pictures.py onnx:MODEL PICTURE...

Every PICTURE is enlarged to 12,000 x 9,000 pixels, with fine noise so that there is detail to lose, and one more is a
mosaic of all of them at their own size. Memory is the highest of a process of its own, without what the same process
takes to open a picture of 100 x 100.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from latte.encoders import Encoder, load_encoder, open_picture

Image.MAX_IMAGE_PIXELS = None
SIZE = (12_000, 9_000)
FORMATS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "JPEG": ("RGB", "jpg", {"quality": 90}),
    "JPEG, progressive": ("RGB", "jpg", {"quality": 90, "progressive": True}),
    "PNG": ("RGB", "png", {"compress_level": 1}),
    "PNG, palette": ("P", "png", {"compress_level": 1}),
    "PNG, 16 bits grey": ("I;16", "png", {"compress_level": 1}),
    "TIFF, not compressed": ("RGB", "tif", {}),
    "TIFF, LZW": ("RGB", "tif", {"compression": "tiff_lzw"}),
}
# VmHWM and not ru_maxrss, which a process inherits from the one that started it
CHILD = """
import sys, time
from latte.encoders import open_picture
start = time.process_time()
size = open_picture(sys.argv[1]).size
seconds = time.process_time() - start
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(peak, seconds, *size)
"""


def enlarged(picture: Any, rng: np.random.Generator) -> Any:
    """Return the picture at SIZE, cut to its shape, with noise of a few levels in every pixel."""
    large = picture.resize(SIZE, Image.Resampling.BICUBIC, box=centre(picture))
    pixels = np.asarray(large).copy()
    for rows in np.array_split(np.arange(SIZE[1]), 30):
        noise = rng.normal(0, 6, (len(rows), SIZE[0], 3)).astype(np.float32)
        pixels[rows] = (pixels[rows] + noise).clip(0, 255).astype(np.uint8)
    return Image.fromarray(pixels)


def centre(picture: Any) -> tuple[float, float, float, float]:
    width, height = min(picture.width, picture.height * 4 / 3), min(picture.height, picture.width * 3 / 4)
    left, top = (picture.width - width) / 2, (picture.height - height) / 2
    return left, top, left + width, top + height


def mosaic(pictures: list[Any]) -> Any:
    result, tile = Image.new("RGB", SIZE), 250
    places = [(x, y) for y in range(0, SIZE[1], tile) for x in range(0, SIZE[0], tile)]
    for i, place in enumerate(places):
        result.paste(pictures[i % len(pictures)].resize((tile, tile)), place)
    return result


def large_pictures(files: list[Path]) -> Iterator[Any]:
    pictures, rng = [open_picture(file) for file in files], np.random.default_rng(0)
    yield mosaic(pictures)
    for picture in pictures:
        yield enlarged(picture, rng)


def save(picture: Any, name: str, folder: Path) -> Path:
    mode, ending, options = FORMATS[name]
    path = folder / f"picture.{ending}"
    if mode == "I;16":
        picture = Image.fromarray(np.asarray(picture.convert("L")).astype(np.uint16) << 8)
    (picture if picture.mode == mode or mode == "I;16" else picture.convert(mode)).save(path, **options)
    return path


def measure(path: Path) -> list[float]:
    answer = subprocess.run([sys.executable, "-c", CHILD, path], capture_output=True, text=True, check=True)
    return [float(word) for word in answer.stdout.split()]


def cosine(encoder: Encoder, path: Path) -> float:
    """Return that of the embedding of the reduced picture with the embedding of all its pixels."""
    whole = Image.open(path)
    if whole.mode.startswith("I"):
        whole = Image.fromarray((np.asarray(whole) >> 8).astype(np.uint8))
    rows = encoder.images([open_picture(path), whole.convert("RGB")])
    return float(rows[0] @ rows[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("encoder")
    parser.add_argument("pictures", nargs="+", type=Path)
    a = parser.parse_args()
    encoder = load_encoder(a.encoder, threads=1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        Image.new("RGB", (100, 100)).save(folder / "small.png")
        nothing, *_ = measure(folder / "small.png")
        cosines: dict[str, list[float]] = {kind: [] for kind in FORMATS}
        for number, picture in enumerate(large_pictures(a.pictures)):
            for kind in FORMATS:
                path = save(picture, kind, folder)
                cosines[kind].append(cosine(encoder, path))
                if number == 1:
                    memory, seconds, width, height = measure(path)
                    size = f"{width:.0f} x {height:.0f}, file of {path.stat().st_size / 1e6:.0f} MB"
                    print(f"{kind}: {(memory - nothing) / 1024:.0f} MiB, {seconds:.1f} s, {size}", flush=True)
        for kind, values in cosines.items():
            print(f"{kind}: cosine mosaic {values[0]:.5f}, lowest of the others {min(values[1:]):.5f}")


if __name__ == "__main__":
    main()
