"""How much of a model's bare speed is left: through the encoder, from JPEG files with decoding, and with views.

    python benchmarks/device/encode_throughput.py MODEL IMAGE_FOLDER [--images 256] [--batch 32] [--views 8]

MODEL is an ONNX folder, or openclip:NAME for an architecture of open_clip with random weights, in torch.

Each round times the ways one after the other on the same pictures, in turning order; the ratios are medians
over rounds, so that other work on the machine hurts all three alike. On a busy machine, ``--cpu --threads 1`` counts
processor time instead of time: it says what the encoder adds, though not whether anything waited.

bare      the model alone (session.run, or torch's forward pass) over batches that are decoded and stacked beforehand
encoder   the same arrays through ``encoder.images`` (target: at most 1.05 of the time of bare)
files     JPEG files through ``encode_files``, decoding in threads while the model works
views     files as `latte embed --views` takes them, AugMix views in threads; a pass is a view
decode    decoding and preprocessing alone, on one core
make      making views alone, on one core

On a machine whose cores are all busy with the model, decoding has to take its share from them. The last lines compare
``files`` and ``views`` with the best that sharing allows, 1 / (1 / bare + 1 / (decode · cores)): near 1 means that
neither side ever waited for the other.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from latte.data.embed import EmbedPlan, _encode
from latte.data.images import ImageFolders, from_folders
from latte.encoders import Encoder, ViewPlan, load_encoder, make_views
from latte.encoders.base import encode_files

Clock = Callable[[], float]


def main() -> None:
    options = arguments()
    encoder = open_model(options.model, options.threads)
    files = sorted(path for path in options.images_folder.rglob("*.jpg"))[: options.images]
    clock = time.process_time if options.cpu else time.perf_counter
    start = clock()
    pixels = np.stack([encoder.preprocess(path) for path in files])
    decode = len(files) / (clock() - start)
    seen = files[: max(1, len(files) // options.views)]
    plan = EmbedPlan(ViewPlan(count=options.views - 1), workers=options.workers, batch=options.batch)
    zeros = np.zeros(len(seen), np.int64)
    images = from_folders(ImageFolders(options.images_folder, ("d",), ("c",), tuple(seen), zeros, zeros))
    start = clock()
    for key, path in zip(images.keys, seen, strict=True):
        make_views(path, key, encoder.preprocess, plan.views)
    make = len(seen) * options.views / (clock() - start)
    batches = [pixels[low : low + options.batch] for low in range(0, len(pixels), options.batch)]
    ways = {
        "bare": lambda: [alone(encoder, batch) for batch in batches],
        "encoder": lambda: encoder.images(pixels, batch_size=options.batch),
        "files": lambda: list(encode_files(encoder, files, options.batch, options.workers)),
        "views": lambda: _encode(images, encoder, plan, 0, len(seen)),
    }
    ways["bare"]()  # ONNX Runtime plans its memory in the first run
    passes = dict.fromkeys(ways, len(files)) | {"views": len(seen) * options.views}
    rounds = [one_round(ways, turn, passes, clock) for turn in range(options.rounds)]
    show(rounds, {"files": decode, "views": make}, options.threads or len(os.sched_getaffinity(0)))


def open_model(name: str, threads: int) -> Encoder:
    if not name.startswith("openclip:"):
        return load_encoder(f"onnx:{name}", threads=threads)
    from export_agreement import random_encoder  # beside this file

    from latte.encoders.hf import set_threads

    set_threads(threads)
    with tempfile.TemporaryDirectory() as folder:
        return random_encoder(name.partition(":")[2], Path(folder))


def alone(encoder: Encoder, batch: np.ndarray) -> object:
    if hasattr(encoder, "torch"):
        with encoder.torch.inference_mode():
            return encoder.model.encode_image(encoder.torch.from_numpy(batch))
    return encoder._image.run(None, {encoder.model.image.input: batch})


def one_round(
    ways: dict[str, Callable[[], object]], turn: int, passes: dict[str, int], clock: Clock
) -> dict[str, float]:
    names = list(ways)
    first = turn % len(names)
    return {name: passes[name] / seconds(ways[name], clock) for name in names[first:] + names[:first]}


def seconds(way: Callable[[], object], clock: Clock) -> float:
    start = clock()
    way()
    return clock() - start


def show(rounds: list[dict[str, float]], before: dict[str, float], cores: int) -> None:
    for name in rounds[0]:
        speed = statistics.median(times[name] for times in rounds)
        ratio = statistics.median(times["bare"] / times[name] for times in rounds)
        print(f"{name:8} {speed:8.1f} passes/s   {ratio:5.3f} of the time of bare")
    for name, label in (("files", "decode"), ("views", "make")):
        print(f"{label:8} {before[name]:8.1f} passes/s on one core")
        shared = [(1 / times[name]) / (1 / times["bare"] + 1 / (before[name] * cores)) for times in rounds]
        print(f"{name}: {statistics.median(shared):.3f} of the least time that {cores} shared cores allow")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("images_folder", type=Path)
    parser.add_argument("--images", type=int, default=256)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--views", type=int, default=8, help="per picture, of as many pictures as make --images passes")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=0, help="of the model; 0 for all cores")
    parser.add_argument("--workers", type=int, default=2, help="threads that decode")
    parser.add_argument("--cpu", action="store_true", help="count processor time")
    return parser.parse_args()


if __name__ == "__main__":
    main()
