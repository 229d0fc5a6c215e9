"""Near copies: how similar they are, what they do to a memory, and what leaving them out does.

python benchmarks/robustness/near_copies.py cosines onnx:MODEL PICTURES  # of copies, frames, other pictures
python benchmarks/robustness/near_copies.py frames onnx:MODEL PICTURES  # how many of 150 frames a memory takes
python benchmarks/robustness/near_copies.py repeat pacs.npz              # a device that sees its pictures nine times
python benchmarks/robustness/near_copies.py camera onnx:MODEL PICTURES   # a camera in front of one scene after another

PICTURES is a folder DIR/domain/class/picture, such as PACS. On streams without copies, compare with the command line:

latte run --benchmark pacs --methods latte,left-out=latte+near_copy=0.99 --seeds 0-4
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageEnhance

from latte import ZeroShot
from latte.core.memory import NEAR_COPY, near_copies
from latte.core.types import Vectors
from latte.data.catalogue import BenchmarkFile, default_clients, read_benchmark
from latte.data.federation import federate
from latte.data.images import read_folders
from latte.edge import create_alone
from latte.encoders import Encoder, load_encoder, open_picture, zero_shot

METHODS = ("latte", "ristretto", "tda", "dmn")
THRESHOLDS = (0.95, 0.97, 0.98, 0.99, 0.995)
PASSES = 9
SCENES, FRAMES = 5, 40  # scenes per class of a domain, frames per scene


# --- changed copies -------------------------------------------------------------------------------------------


def jpeg(picture: Any, quality: int) -> Any:
    stream = io.BytesIO()
    picture.save(stream, "JPEG", quality=quality)
    return Image.open(io.BytesIO(stream.getvalue())).convert("RGB")


def scaled(picture: Any, share: float) -> Any:
    return picture.resize((round(picture.width * share), round(picture.height * share)), Image.Resampling.BICUBIC)


def shifted(picture: Any, share: float) -> Any:
    """Return the picture of a camera that turned by this share of the width."""
    x, y = round(picture.width * share), round(picture.height * share)
    return picture.crop((x, y, picture.width, picture.height))


def noisy(picture: Any, spread: float, rng: np.random.Generator) -> Any:
    pixels = np.asarray(picture, np.float32)
    return Image.fromarray((pixels + rng.normal(0, spread, pixels.shape)).clip(0, 255).astype(np.uint8))


def frame(picture: Any, rng: np.random.Generator) -> Any:
    """Return one more frame of a camera that does not move: it shakes by 1 %, has noise, flickers, writes JPEG."""
    shaken = noisy(shifted(picture, rng.uniform(0, 0.01)), 3, rng)
    return jpeg(ImageEnhance.Brightness(shaken).enhance(rng.uniform(0.98, 1.02)), 85)


CHANGES: dict[str, Callable[[Any, np.random.Generator], Any]] = {
    "JPEG, quality 95": lambda p, _: jpeg(p, 95),
    "JPEG, quality 75": lambda p, _: jpeg(p, 75),
    "JPEG, quality 50": lambda p, _: jpeg(p, 50),
    "three quarters of the size": lambda p, _: scaled(p, 0.75),
    "half of the size": lambda p, _: scaled(p, 0.5),
    "shifted by 1 %": lambda p, _: shifted(p, 0.01),
    "shifted by 5 %": lambda p, _: shifted(p, 0.05),
    "5 % brighter": lambda p, _: ImageEnhance.Brightness(p).enhance(1.05),
    "noise of 3 levels": lambda p, rng: noisy(p, 3, rng),
    "mirrored": lambda p, _: p.transpose(Image.Transpose.FLIP_LEFT_RIGHT),
    "a frame of a fixed camera": frame,
}


def shares(cosines: Any) -> str:
    return " | ".join(f"{100 * np.mean(np.asarray(cosines) >= t):.4g}" for t in THRESHOLDS)


def print_cosines(encoder: Encoder, folder: Path) -> None:
    images = read_folders(folder)
    rng = np.random.default_rng(0)
    chosen = list(range(0, len(images), 8))
    pictures = [open_picture(images.paths[i]) for i in chosen]
    plain = encoder.images(pictures)
    print("| | 1 % quantile | median |", " | ".join(f">= {t} %" for t in THRESHOLDS), "|")
    for name, change in CHANGES.items():
        cosines = (encoder.images([change(p, rng) for p in pictures]) * plain).sum(axis=1)
        low, middle = np.quantile(cosines, [0.01, 0.5])
        print(f"| {name} | {low:.3f} | {middle:.4f} | {shares(cosines)} |", flush=True)
    others = np.concatenate(list(same_class(encoder.images(images.paths), images.labels, images.domain)))
    low, middle = np.quantile(others, [0.01, 0.5])
    print(f"| another picture of the class and domain | {low:.3f} | {middle:.4f} | {shares(others)} |")


def same_class(rows: Vectors, labels: Any, domain: Any) -> Iterator[Any]:
    """Yield the cosines of all pairs of one class and domain."""
    for key in sorted(set(zip(labels.tolist(), domain.tolist(), strict=True))):
        group = rows[(labels == key[0]) & (domain == key[1])]
        yield (group @ group.T)[np.triu_indices(len(group), 1)]


def print_frames(encoder: Encoder, folder: Path) -> None:
    """Print how many of 150 frames of a scene are no near copy of an earlier one, by domain and threshold."""
    images, rng = read_folders(folder), np.random.default_rng(0)
    print("| domain | scenes |", " | ".join(f"at {t}: mean, most" for t in THRESHOLDS), "|")
    for domain, name in enumerate(images.domains):
        scenes = np.flatnonzero(images.domain == domain)[::60]
        taken = {t: [] for t in THRESHOLDS}
        for i in scenes:
            picture = open_picture(images.paths[i])
            rows = encoder.images([frame(picture, rng) for _ in range(150)])
            for t in THRESHOLDS:
                taken[t].append(different(rows, t))
        cells = (f"{np.mean(counts):.1f}, {max(counts)}" for counts in taken.values())
        print(f"| {name} | {len(scenes)} |", " | ".join(cells), "|", flush=True)


def different(rows: Vectors, cosine: float) -> int:
    stored = rows[:0]
    for row in rows:
        if not near_copies(stored, row, cosine).any():
            stored = np.concatenate([stored, row[None]])
    return len(stored)


# --- streams with copies --------------------------------------------------------------------------------------


class Device(NamedTuple):
    """The pictures that a device sees, in order, and others of its domain to test it on."""

    rows: Vectors
    labels: Any
    new_rows: Vectors
    new_labels: Any


def walk(task: ZeroShot, method: str, near_copy: float, device: Device) -> tuple[Any, float, float]:
    """Return which answers were right, the accuracy on new pictures in per cent, and that of distinct stored items."""
    client = create_alone(method, task, {"near_copy": near_copy})
    right = np.array([client.predict(row).label for row in device.rows]) == device.labels
    new = [client.predict(row, remember=False).label for row in device.new_rows]
    accuracy = 100 * float(np.mean(np.array(new) == device.new_labels)) if len(new) else float("nan")
    return right, accuracy, distinct(client.state())


def distinct(state: Any) -> float:
    """Return how many of the stored items are no near copy of an earlier one of their class, in per cent."""
    name = next((key for key in state if key.endswith("valid") and not key.startswith("external")), None)
    if name is None:
        return float("nan")
    valid, vectors = state[name], state[name.replace("valid", "vectors")]
    good = sum(
        not near_copies(vectors[c, :s][valid[c, :s]], vectors[c, s], NEAR_COPY).any() for c, s in np.argwhere(valid)
    )
    return 100 * good / max(1, valid.sum())


def repeat(file: Path, seed: int, methods: list[str]) -> None:
    embeddings = read_benchmark(BenchmarkFile(file.stem, file))
    federation = federate(embeddings, default_clients(embeddings, file.stem), seed)
    print("| method | copies | first pass | last pass | distinct items % |")
    for method in methods:
        for near_copy in (0.0, NEAR_COPY):
            results = []
            for client in federation.clients:
                rows, labels = federation.stream(client)[:, 0], federation.labels(client)
                device = Device(np.tile(rows, (PASSES, 1)), np.tile(labels, PASSES), rows[:0], labels[:0])
                right, _, different = walk(embeddings.zero_shot, method, near_copy, device)
                passes = right.reshape(PASSES, -1)
                results.append((len(labels), passes[0].sum(), passes[-1].sum(), different))
            total, first, last, different = np.array(results).T
            accuracies = f"{100 * first.sum() / total.sum():.2f} | {100 * last.sum() / total.sum():.2f}"
            print(f"| {method} | {words(near_copy)} | {accuracies} | {different.mean():.0f} |", flush=True)


def words(near_copy: float) -> str:
    return "left out" if near_copy else "learnt"


def devices(encoder: Encoder, folder: Path) -> tuple[ZeroShot, list[Device]]:
    """Return a device per domain: its frames, scene after scene, and the pictures that are no scene."""
    images, rng, made = read_folders(folder), np.random.default_rng(0), []
    for domain in range(len(images.domains)):
        inside = np.flatnonzero(images.domain == domain)
        scenes = np.concatenate([inside[images.labels[inside] == c][:SCENES] for c in range(len(images.classnames))])
        rng.shuffle(scenes)
        frames = [frame(open_picture(images.paths[i]), rng) for i in scenes for _ in range(FRAMES)]
        others = np.setdiff1d(inside, scenes)
        rest = encoder.images([images.paths[i] for i in others])
        labels = np.repeat(images.labels[scenes], FRAMES)
        made.append(Device(encoder.images(frames), labels, rest, images.labels[others]))
    return zero_shot(encoder, list(images.classnames)), made


def camera(encoder: Encoder, folder: Path, methods: list[str]) -> None:
    task, made = devices(encoder, folder)
    print("| method | copies | frames | new pictures | distinct items % |")
    for method in ("clip", *methods):
        for near_copy in (0.0, NEAR_COPY) if method != "clip" else (0.0,):
            results = []
            for device in made:
                if method == "clip":
                    plain = [(task.logits(rows).argmax(axis=1) == y).mean() for rows, y in (device[:2], device[2:])]
                    results.append((100 * plain[0], 100 * plain[1], np.nan))
                else:
                    right, new, different = walk(task, method, near_copy, device)
                    results.append((100 * right.mean(), new, different))
            frames, new, different = np.array(results).mean(axis=0)
            print(f"| {method} | {words(near_copy)} | {frames:.2f} | {new:.2f} | {different:.0f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("cosines", "frames", "repeat", "camera"))
    parser.add_argument("source", help="an encoder, or an embedding file")
    parser.add_argument("pictures", nargs="?", type=Path)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--seed", type=int, default=0)
    a = parser.parse_args()
    methods = a.methods.split(",")
    if a.what == "repeat":
        repeat(Path(a.source), a.seed, methods)
    elif a.what == "camera":
        camera(load_encoder(a.source, threads=1), a.pictures, methods)
    else:
        {"cosines": print_cosines, "frames": print_frames}[a.what](load_encoder(a.source, threads=1), a.pictures)


if __name__ == "__main__":
    main()
