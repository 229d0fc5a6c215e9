"""The chain from pictures to a table, with its times: pictures, views, embedding files, methods, on parts of real sets.

    python benchmarks/device/paper_chain.py SHARED_DATA [--part pacs,cifar10c,vlcs,vit,bf16,costs]

SHARED_DATA has mini-vlm/ and images/. The small real model (mini-VLM, ONNX) takes 5 pictures per class and domain of
PACS, one per class and corruption of CIFAR-10-C (test images, corrupted here) and all of a VLCS of three domains,
without views. A ViT-B/16 of random weights (open_clip) takes one picture per class and domain of PACS with 8 views,
and in fp32 and bf16: its times and the distance between its two precisions mean something, its accuracy does not.
The steps are those of `latte embed` and `latte run`, two clients per domain. One thread each: wall time, and processor
time, which a busy machine changes less.
"""

import argparse
import json
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from latte.data.cifar import CifarImages, load_classnames
from latte.data.embed import EmbedPlan, embed_images
from latte.data.images import CorruptionPlan, ImageSet, from_corrupted_cifar, from_folders, read_folders, read_layout
from latte.encoders import Encoder, load_encoder
from latte.encoders.views import ViewPlan
from latte.experiment.config import MethodConfig, RunConfig
from latte.experiment.plan import make_plan
from latte.experiment.runner import Options, execute, in_order

PLAIN, VIEWED = "clip,tda,tda-global,dmn,dmn-global,latte,ristretto", "vte,zero"


def timed(work: Callable[[], object]) -> tuple[object, float, float]:
    wall, processor = time.perf_counter(), time.process_time()
    result = work()
    return result, time.perf_counter() - wall, time.process_time() - processor


def some(images: ImageSet, each: int) -> ImageSet:
    """Return the first ``each`` pictures per class and domain."""
    cells = [np.flatnonzero((images.labels == c) & (images.domain == d))[:each]
             for d in range(len(images.domains)) for c in range(len(images.classnames))]  # fmt: skip
    rows = np.concatenate(cells)
    return replace(
        images, labels=images.labels[rows], domain=images.domain[rows], index=images.index[rows],
        keys=tuple(images.keys[i] for i in rows), load=lambda positions: images.load(rows[positions]),
    )  # fmt: skip


def cifar10c(data: Path) -> ImageSet:
    sheet = np.asarray(Image.open(data / "images" / "cifar10_test_sheet.webp").convert("RGB"))
    images = sheet.reshape(100, 32, 100, 32, 3).transpose(0, 2, 1, 3, 4).reshape(10_000, 32, 32, 3)
    labels = json.loads((data / "images" / "cifar_test_labels.json").read_text())
    labels = np.asarray(labels["cifar10"]["y"])
    cifar = CifarImages(images, labels, 50_000 + np.arange(10_000), load_classnames("cifar10"))
    return from_corrupted_cifar(cifar, "cifar10c", CorruptionPlan())


def folders(data: Path, archive: str, into: Path) -> Path:
    with tarfile.open(data / "images" / archive) as tar:
        tar.extractall(into, filter="data")
    return into


def chain(images: ImageSet, encoder: Encoder, views: int, folder: Path, batch: int = 32) -> None:
    """Print a row per step."""
    name, shown = images.name, encoder.name.partition(":")[2] or encoder.name
    for count, methods in ((1, PLAIN), (views, VIEWED)):
        if count == 1 and methods == VIEWED:
            continue
        plan = EmbedPlan(ViewPlan(count=count - 1) if count > 1 else None, workers=1, batch=batch)
        out = folder / f"{name}-{count}-{encoder.placement.precision}.safetensors"
        _, wall, processor = timed(lambda plan=plan, out=out: embed_images(images, encoder, out, plan))
        passes = len(images) * count
        speed = f"{1000 * wall / passes:.1f} ms | {1000 * processor / passes:.1f} ms"
        print(f"| {name} | {shown}, {encoder.placement.precision} | embed, {len(images)} pictures, "
              f"{count} view{'s' * (count > 1)} | {wall:.1f} s | {speed} | |", flush=True)  # fmt: skip
        config = RunConfig(str(out), tuple(MethodConfig(method) for method in methods.split(",")), clients_per_domain=2)
        run = make_plan(config)
        trials, wall, _ = timed(lambda run=run: list(execute(run, folder / "runs", Options(executor="serial"))))
        found = in_order([trial for trial in trials if hasattr(trial, "result")], run)
        accuracy = ", ".join(f"{trial.result.method} {trial.result.macro:.1f}" for trial in found)
        print(
            f"| {name} | | run, {methods.count(',') + 1} methods, 1 seed | {wall:.1f} s | | | {accuracy} |", flush=True
        )


def random_vit(precision: str) -> Encoder:
    import open_clip
    import torch

    from latte.encoders.open_clip import OpenClipEncoder, _preprocess

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, tokenizer = open_clip.create_model("ViT-B-16"), open_clip.get_tokenizer("ViT-B-16")
    return OpenClipEncoder(
        "openclip:ViT-B-16/random", model, tokenizer, _preprocess(open_clip, model), "cpu", precision
    )


def compare_precisions(images: ImageSet) -> None:
    from latte.encoders import zero_shot

    rows, labels = [], []
    for precision in ("fp32", "bf16"):
        encoder = random_vit(precision)
        pictures = images.load(np.arange(len(images)))
        embedded, wall, processor = timed(lambda encoder=encoder, pictures=pictures: encoder.images(pictures, 8))
        rows.append(embedded)
        labels.append(zero_shot(encoder, images.classnames, ["a photo of a {}."]).logits(embedded).argmax(axis=1))
        each = [f"{1000 * seconds / len(images):.0f} ms" for seconds in (wall, processor)]
        step = f"{len(images)} pictures, batches of 8"
        print(
            f"| {images.name} | ViT-B-16/random, {precision} | {step} | {wall:.1f} s | {' | '.join(each)} | |",
            flush=True,
        )
    cosine = (rows[0].astype(np.float64) * rows[1]).sum(axis=1)
    same = (labels[0] == labels[1]).mean()
    print(f"bf16 against fp32, ViT-B/16 of random weights: cosine at least {cosine.min():.6f}, the same label for "
          f"{100 * same:.1f} % of {len(images)} pictures", flush=True)  # fmt: skip


def costs(images: ImageSet) -> None:
    """Print processor seconds of what the paper's hours are made of, with ViT-B/16: a view, a pass, an image of TPT."""
    from latte.encoders import make_prompt_tuner, zero_shot
    from latte.encoders.views import make_views
    from latte.methods.tpt import Tpt

    encoder = random_vit("fp32")
    pictures = images.load(np.arange(8))
    made, _, processor = timed(
        lambda: [make_views(one, "key", encoder.preprocess, ViewPlan(count=16)) for one in pictures]
    )
    print(f"a view of 224 x 224 (AugMix, from a file): {1000 * processor / 136:.1f} ms of a processor", flush=True)
    pixels = np.concatenate(made)[:32]
    encoder.images(pixels[:8])
    rows, _, processor = timed(lambda: encoder.images(pixels, 32))
    print(f"a pass of ViT-B/16: {1000 * processor / 32:.0f} ms of a processor", flush=True)
    for names in (images.classnames[:5], (*images.classnames, "cat", "bird", "car")):
        method = Tpt(zero_shot(encoder, names, ["a photo of a {}."]), text_encoder=make_prompt_tuner(encoder, names))
        _, _, processor = timed(lambda method=method: method.predict(rows))
        print(f"an image of TPT, {len(names)} classes: {processor:.1f} s of a processor", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--part", default="pacs,cifar10c,vlcs,vit")
    parser.add_argument("--views", type=int, default=64)
    options = parser.parse_args()
    print("| set | encoder | step | time | wall per view | processor per view | accuracy |")
    print("|:--|:--|:--|--:|--:|--:|:--|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pacs = from_folders(read_layout(folders(options.data, "pacs_60pc.tar", folder / "p") / "PACS", "pacs"), "pacs")
        if set(options.part.split(",")) - {"vit", "bf16", "costs"}:
            mini = load_encoder(f"onnx:{options.data / 'mini-vlm'}", threads=1)
        if "pacs" in options.part:
            chain(some(pacs, 5), mini, options.views, folder)
        if "cifar10c" in options.part:
            chain(some(cifar10c(options.data), 1), mini, options.views, folder)
        if "vlcs" in options.part:
            root = folders(options.data, "vlcs_mini_LSC.tar", folder / "v")
            inside = next(
                path for path in (*root.iterdir(), root) if len([p for p in path.iterdir() if p.is_dir()]) == 3
            )
            chain(from_folders(read_folders(inside, allow_missing=True), "vlcs of three domains"), mini, 1, folder)
        if "vit" in options.part:
            chain(some(pacs, 1), random_vit("fp32"), 8, folder)
        if "costs" in options.part:
            costs(some(pacs, 1))
        if "bf16" in options.part:
            compare_precisions(some(pacs, 1))


if __name__ == "__main__":
    sys.exit(main())
