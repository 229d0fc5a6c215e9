"""How much of the bare speed of ONNX Runtime is left: through the encoder, and from JPEG files with decoding.

    python benchmarks/device/encode_throughput.py MODEL_FOLDER IMAGE_FOLDER [--images 256] [--batch 32] [--rounds 9]

Each round times the three ways one after the other on the same pictures, in turning order; the ratios are medians
over rounds, so that other work on the machine hurts all three alike. On a busy machine, ``--cpu --threads 1`` counts
processor time instead of time: it says what the encoder adds, though not whether anything waited.

bare      session.run over batches that are decoded and stacked beforehand
encoder   the same arrays through ``encoder.images`` (target: at least 0.90 of bare)
files     JPEG files through ``encode_files``, decoding in threads while ONNX Runtime works
decode    decoding and preprocessing alone, on one core

On a machine whose cores are all busy with ONNX Runtime, decoding has to take its share from them. The last line
compares ``files`` with the best that sharing allows, 1 / (1 / bare + 1 / (decode · cores)): near 1 means that neither
side ever waited for the other.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from latte.encoders import load_encoder
from latte.encoders.base import encode_files

Clock = Callable[[], float]


def main() -> None:
    options = arguments()
    encoder = load_encoder(f"onnx:{options.model}", threads=options.threads)
    files = sorted(path for path in options.images_folder.rglob("*.jpg"))[: options.images]
    clock = time.process_time if options.cpu else time.perf_counter
    start = clock()
    pixels = np.stack([encoder.preprocess(path) for path in files])
    decode = len(files) / (clock() - start)
    batches = [pixels[low : low + options.batch] for low in range(0, len(pixels), options.batch)]
    ways = {
        "bare": lambda: [encoder._image.run(None, {encoder.model.image.input: batch}) for batch in batches],
        "encoder": lambda: encoder.images(pixels, batch_size=options.batch),
        "files": lambda: list(encode_files(encoder, files, options.batch, options.workers)),
    }
    ways["bare"]()  # ONNX Runtime plans its memory in the first run
    rounds = [one_round(ways, turn, len(files), clock) for turn in range(options.rounds)]
    show(rounds, decode, options.threads or len(os.sched_getaffinity(0)))


def one_round(ways: dict[str, Callable[[], object]], turn: int, images: int, clock: Clock) -> dict[str, float]:
    names = list(ways)
    first = turn % len(names)
    return {name: images / seconds(ways[name], clock) for name in names[first:] + names[:first]}


def seconds(way: Callable[[], object], clock: Clock) -> float:
    start = clock()
    way()
    return clock() - start


def show(rounds: list[dict[str, float]], decode: float, cores: int) -> None:
    for name in ("bare", "encoder", "files"):
        speed = statistics.median(times[name] for times in rounds)
        ratio = statistics.median(times[name] / times["bare"] for times in rounds)
        print(f"{name:8} {speed:8.1f} images/s   {ratio:5.3f} of bare")
    print(f"{'decode':8} {decode:8.1f} images/s on one core")
    shared = [times["files"] * (1 / times["bare"] + 1 / (decode * cores)) for times in rounds]
    print(f"files against the best that {cores} shared cores allow: {statistics.median(shared):.3f}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("images_folder", type=Path)
    parser.add_argument("--images", type=int, default=256)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=0, help="of ONNX Runtime; 0 for all cores")
    parser.add_argument("--workers", type=int, default=2, help="threads that decode")
    parser.add_argument("--cpu", action="store_true", help="count processor time")
    return parser.parse_args()


if __name__ == "__main__":
    main()
