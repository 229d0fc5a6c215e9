"""CIFAR-10 and CIFAR-100: the official archives, unpacked or not, or a folder of class folders.

Binary archives are plain bytes and are preferred. Python archives are pickles; they are read by an unpickler
that accepts arrays of bytes and nothing else (:mod:`.cifar_pickle`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..core.types import Integers
from ..core.validate import choice
from ..errors import refuse
from ..files.archives import open_tar
from ..files.reading import read_bytes
from .cifar_pickle import PIXELS, read_batch
from .classes import load_classnames
from .corruptions.draws import Bytes
from .folders import read_classes
from .pillow import pillow_image

CIFAR10_CLASSNAMES = load_classnames("cifar10")
CIFAR100_CLASSNAMES = load_classnames("cifar100")
CIFAR_SIDE = 32
TRAIN, TEST = 50_000, 10_000
SPLITS = ("train", "test", "all")
MOST_MEMBER_BYTES = 200_000_000  # of one file in an archive; the largest official one has 155 MB


@dataclass(frozen=True, slots=True, eq=False)
class CifarImages:
    """``images`` (n, 32, 32, 3) uint8, ``labels`` (n,), ``index`` (n,): 0 to 49,999 train, 50,000 on test."""

    images: Bytes
    labels: Integers
    index: Integers
    classnames: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ArchiveForm:
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
ARCHIVE_FORMS = {
    "cifar10": (
        ArchiveForm(
            "cifar-10-binary.tar.gz",
            "cifar-10-batches-bin",
            tuple(f"{name}.bin" for name in _TEN),
            ("test_batch.bin",),
            1,
            b"",
        ),
        ArchiveForm("cifar-10-python.tar.gz", "cifar-10-batches-py", _TEN, ("test_batch",), 0, b"labels"),
    ),
    "cifar100": (
        ArchiveForm("cifar-100-binary.tar.gz", "cifar-100-binary", ("train.bin",), ("test.bin",), 2, b""),
        ArchiveForm("cifar-100-python.tar.gz", "cifar-100-python", ("train",), ("test",), 0, b"fine_labels"),
    ),
}


def read_cifar(root: str | Path, name: str = "cifar10", split: str = "all") -> CifarImages:
    """Read an official dataset.

    ``root`` is an archive, an unpacked folder, or a folder that holds one of them.
    """
    choice("name", name, tuple(ARCHIVE_FORMS))
    choice("split", split, SPLITS)
    place, form = _find_archive(Path(root), name, split)
    parts = [_batch(raw, form, f"{place}: {file}") for file, raw in _contents(place, form, split)]
    images, labels = (np.concatenate(column) for column in zip(*parts, strict=True))
    first, last = (TRAIN if split == "test" else 0), (TRAIN if split == "train" else TRAIN + TEST)
    classnames = load_classnames(name)
    if len(images) != last - first:
        raise refuse(str(place), f"{len(images)} images", f"the {last - first} of the official {split} split")
    if labels.max() >= len(classnames):
        raise refuse(str(place), f"label {labels.max()}", f"labels below {len(classnames)}")
    return CifarImages(images, labels, np.arange(first, last), classnames)


def read_cifar_folder(root: str | Path, name: str = "cifar10") -> CifarImages:
    """Read 32 x 32 images from class folders; the index is the place in the sorted list."""
    choice("name", name, tuple(ARCHIVE_FORMS))
    open_image = pillow_image().open
    folders = read_classes(root, load_classnames(name))
    images = np.empty((len(folders), CIFAR_SIDE, CIFAR_SIDE, 3), np.uint8)
    for i, path in enumerate(folders.paths):
        with open_image(path) as picture:
            if picture.size != (CIFAR_SIDE, CIFAR_SIDE):
                raise refuse(str(path), f"{picture.size[0]} x {picture.size[1]} pixels", "32 x 32")
            images[i] = np.asarray(picture.convert("RGB"))
    return CifarImages(images, folders.labels, np.arange(len(folders)), folders.classnames)


# --- finding it ---------------------------------------------------------------------------------------------


def _find_archive(root: Path, name: str, split: str) -> tuple[Path, ArchiveForm]:
    """Return the first place that holds the split: the binary form before the python form."""
    for form in ARCHIVE_FORMS[name]:
        if root.is_file() and root.name == form.archive:
            return root, form
        for folder in (root / form.folder, root):
            if all((folder / file).is_file() for file in form.files(split)):
                return folder, form
        if (root / form.archive).is_file():
            return root / form.archive, form
    want = " or ".join(f"{form.archive} or {form.folder}/" for form in ARCHIVE_FORMS[name])
    raise refuse("root", f"{root} without {name}", f"{want} (latte data fetch {name})")


def _contents(place: Path, form: ArchiveForm, split: str) -> Iterator[tuple[str, bytes]]:
    """Yield the files of the split in their order, with their bytes."""
    if place.is_dir():
        yield from ((file, read_bytes(place / file)) for file in form.files(split))
        return
    contents = dict(_members(place, {f"{form.folder}/{file}": file for file in form.files(split)}))
    missing = [file for file in form.files(split) if file not in contents]
    if missing:
        raise refuse(str(place), f"an archive without {', '.join(missing)}", "the official archive")
    yield from ((file, contents[file]) for file in form.files(split))


def _members(archive: Path, names: dict[str, str]) -> Iterator[tuple[str, bytes]]:
    with open_tar(archive) as tar:
        for member in tar:
            if member.name in names and member.isfile() and member.size <= MOST_MEMBER_BYTES:
                content = tar.extractfile(member)
                if content is not None:
                    yield names[member.name], content.read()


# --- reading it -------------------------------------------------------------------------------------------


def _batch(raw: bytes, form: ArchiveForm, where: str) -> tuple[Bytes, Integers]:
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
    return np.ascontiguousarray(pixels.reshape(-1, 3, CIFAR_SIDE, CIFAR_SIDE).transpose(0, 2, 3, 1))
