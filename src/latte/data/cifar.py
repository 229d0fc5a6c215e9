"""CIFAR-10 and CIFAR-100: the official archives, unpacked or not, or a folder of class folders.

The binary archives are plain bytes and come first. The python archives are pickles; they are read by an
unpickler that knows arrays of bytes and nothing else (:mod:`.cifar_pickle`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.types import Integers
from ..core.validate import choice, refuse
from ..files.archives import open_tar
from ..files.reading import read_bytes
from .cifar_pickle import read_batch
from .classes import class_names
from .folders import read_classes
from .pillow import pillow_image

Bytes = NDArray[np.uint8]

CIFAR10_CLASSES = class_names("cifar10")
CIFAR100_CLASSES = class_names("cifar100")
SIDE = 32
PIXELS = 3 * SIDE * SIDE
TRAIN, TEST = 50_000, 10_000
SPLITS = ("train", "test", "all")
MOST_BYTES = 200_000_000  # of one file in an archive; the largest official one has 155 MB


@dataclass(frozen=True, slots=True, eq=False)
class CifarImages:
    """``images`` (n, 32, 32, 3) uint8, ``labels`` (n,), ``index`` (n,): 0 to 49,999 train, 50,000 on test."""

    images: Bytes
    labels: Integers
    index: Integers
    classes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Form:
    """One official form of a dataset: an archive, the folder in it, and the files of each split in order."""

    archive: str
    folder: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    label_bytes: int  # in front of each image; the last is the label. 0 for the python form
    label_key: bytes  # of the python form

    def files(self, split: str) -> tuple[str, ...]:
        """Return the files of a split."""
        return {"train": self.train, "test": self.test, "all": self.train + self.test}[split]


_TEN = tuple(f"data_batch_{i}" for i in range(1, 6))
FORMS = {
    "cifar10": (
        Form(
            "cifar-10-binary.tar.gz",
            "cifar-10-batches-bin",
            tuple(f"{name}.bin" for name in _TEN),
            ("test_batch.bin",),
            1,
            b"",
        ),
        Form("cifar-10-python.tar.gz", "cifar-10-batches-py", _TEN, ("test_batch",), 0, b"labels"),
    ),
    "cifar100": (
        Form("cifar-100-binary.tar.gz", "cifar-100-binary", ("train.bin",), ("test.bin",), 2, b""),
        Form("cifar-100-python.tar.gz", "cifar-100-python", ("train",), ("test",), 0, b"fine_labels"),
    ),
}


def read_cifar(root: str | Path, name: str = "cifar10", split: str = "all") -> CifarImages:
    """Read an official dataset.

    ``root`` is an archive, an unpacked folder, or a folder that holds one of them.
    """
    choice("name", name, tuple(FORMS))
    choice("split", split, SPLITS)
    place, form = _find(Path(root), name, split)
    parts = [_batch(raw, form, f"{place}: {file}") for file, raw in _contents(place, form, split)]
    images, labels = (np.concatenate(column) for column in zip(*parts, strict=True))
    first, last = (TRAIN if split == "test" else 0), (TRAIN if split == "train" else TRAIN + TEST)
    classes = class_names(name)
    if len(images) != last - first:
        raise refuse(str(place), f"{len(images)} images", f"the {last - first} of the official {split} split")
    if labels.max() >= len(classes):
        raise refuse(str(place), f"label {labels.max()}", f"labels below {len(classes)}")
    return CifarImages(images, labels, np.arange(first, last), classes)


def read_cifar_folder(root: str | Path, name: str = "cifar10") -> CifarImages:
    """Read 32 x 32 images from class folders; the index is the place in the sorted list."""
    choice("name", name, tuple(FORMS))
    open_image = pillow_image().open
    listed = read_classes(root, class_names(name))
    images = np.empty((len(listed), SIDE, SIDE, 3), np.uint8)
    for i, path in enumerate(listed.paths):
        with open_image(path) as picture:
            if picture.size != (SIDE, SIDE):
                raise refuse(str(path), f"{picture.size[0]} x {picture.size[1]} pixels", "32 x 32")
            images[i] = np.asarray(picture.convert("RGB"))
    return CifarImages(images, listed.labels, np.arange(len(listed)), listed.classes)


# --- where it is --------------------------------------------------------------------------------------------


def _find(root: Path, name: str, split: str) -> tuple[Path, Form]:
    """Return the first place that holds the split: the binary form before the python form."""
    for form in FORMS[name]:
        if root.is_file() and root.name == form.archive:
            return root, form
        for folder in (root / form.folder, root):
            if all((folder / file).is_file() for file in form.files(split)):
                return folder, form
        if (root / form.archive).is_file():
            return root / form.archive, form
    wanted = " or ".join(f"{form.archive} or {form.folder}/" for form in FORMS[name])
    raise refuse("root", f"{root} without {name}", f"{wanted} (latte data fetch {name})")


def _contents(place: Path, form: Form, split: str) -> Iterator[tuple[str, bytes]]:
    """Yield the files of the split in their order, with their bytes."""
    if place.is_dir():
        yield from ((file, read_bytes(place / file)) for file in form.files(split))
        return
    wanted = {f"{form.folder}/{file}": file for file in form.files(split)}
    found = dict(_members(place, wanted))
    missing = [file for file in form.files(split) if file not in found]
    if missing:
        raise refuse(str(place), f"an archive without {', '.join(missing)}", "the official archive")
    yield from ((file, found[file]) for file in form.files(split))


def _members(archive: Path, wanted: dict[str, str]) -> Iterator[tuple[str, bytes]]:
    with open_tar(archive) as tar:
        for member in tar:
            if member.name in wanted and member.isfile() and member.size <= MOST_BYTES:
                opened = tar.extractfile(member)
                if opened is not None:
                    yield wanted[member.name], opened.read()


# --- what is in it ------------------------------------------------------------------------------------------


def _batch(raw: bytes, form: Form, where: str) -> tuple[Bytes, Integers]:
    """Return images and labels of one file."""
    if form.label_bytes == 0:
        pixels, labels = read_batch(raw, form.label_key, where)
        return _upright(pixels), labels
    record = form.label_bytes + PIXELS
    if not raw or len(raw) % record:
        raise refuse(where, f"{len(raw)} bytes", f"a whole number of records of {record} bytes")
    rows = np.frombuffer(raw, np.uint8).reshape(-1, record)
    return _upright(rows[:, form.label_bytes :]), rows[:, form.label_bytes - 1].astype(np.int64)


def _upright(pixels: Any) -> Bytes:
    """(n, 3072), all red then all green then all blue, to (n, 32, 32, 3)."""
    return np.ascontiguousarray(pixels.reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1))
