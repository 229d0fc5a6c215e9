"""CIFAR-10 and CIFAR-100, the official archives, unpacked or not; and the published CIFAR-10-C and CIFAR-100-C.

Binary archives are plain bytes and are preferred. Python archives are pickles; they are read by an unpickler
that accepts arrays of bytes and nothing else. CIFAR-C is a .npy per corruption, five severities of 10,000 images each.
"""

from __future__ import annotations

import io
import pickle
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.types import Integers
from ..core.validate import choice
from ..errors import InputError, refuse
from ..files.arrays import map_npy, open_tar
from ..files.documents import read_bytes
from .corruptions import CORRUPTIONS, SEVERITIES, check_severity
from .corruptions.filters import Bytes

TRAIN, TEST = 50_000, 10_000
CIFAR_SIDE = 32
PIXELS = 3 * CIFAR_SIDE * CIFAR_SIDE  # bytes of an image
SPLITS = ("train", "test", "all")
MOST_MEMBER_BYTES = 200_000_000  # of one file in an archive; the largest official one has 155 MB
C_SHAPE = (len(SEVERITIES) * TEST, CIFAR_SIDE, CIFAR_SIDE, 3)  # of a corruption in CIFAR-C


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
    label_bytes: int = 0  # in front of each image; the last is the label. 0 for the python form
    label_key: bytes = b""  # of the python form

    def files(self, split: str) -> tuple[str, ...]:
        """Return the files of a split."""
        return {"train": self.train, "test": self.test, "all": self.train + self.test}[split]


_TEN = tuple(f"data_batch_{i}" for i in range(1, 6))
_TEN_BINARY = tuple(f"{name}.bin" for name in _TEN)
ARCHIVE_FORMS = {
    "cifar10": (
        ArchiveForm("cifar-10-binary.tar.gz", "cifar-10-batches-bin", _TEN_BINARY, ("test_batch.bin",), 1),
        ArchiveForm("cifar-10-python.tar.gz", "cifar-10-batches-py", _TEN, ("test_batch",), label_key=b"labels"),
    ),
    "cifar100": (
        ArchiveForm("cifar-100-binary.tar.gz", "cifar-100-binary", ("train.bin",), ("test.bin",), 2),
        ArchiveForm("cifar-100-python.tar.gz", "cifar-100-python", ("train",), ("test",), label_key=b"fine_labels"),
    ),
}


def load_classnames(name: str) -> tuple[str, ...]:
    """Return the class names of ``name``, in label order.

    >>> load_classnames("cifar10")[:3]
    ('airplane', 'automobile', 'bird')
    """
    return tuple((files(__package__) / "classes" / f"{name}.txt").read_text("utf-8").split("\n")[:-1])


def read_cifar(root: str | Path, name: str = "cifar10", split: str = "all") -> CifarImages:
    """Read an official dataset.

    ``root`` is an archive, an unpacked folder, or a folder that holds one of them.
    """
    choice("name", name, tuple(ARCHIVE_FORMS))
    choice("split", split, SPLITS)
    place, form = _find_archive(Path(root), name, split)
    contents = _contents(place, form, form.files(split))
    parts = [_batch(contents[file], form, f"{place}: {file}") for file in form.files(split)]
    images, labels = (np.concatenate(column) for column in zip(*parts, strict=True))
    first, last = (TRAIN if split == "test" else 0), (TRAIN if split == "train" else TRAIN + TEST)
    classnames = load_classnames(name)
    if len(images) != last - first:
        raise refuse(str(place), f"{len(images)} images", f"the {last - first} of the official {split} split")
    if labels.max() >= len(classnames):
        raise refuse(str(place), f"label {labels.max()}", f"labels below {len(classnames)}")
    return CifarImages(images, labels, np.arange(first, last), classnames)


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


def _contents(place: Path, form: ArchiveForm, names: tuple[str, ...]) -> dict[str, bytes]:
    """Return the files ``names`` of a folder or an archive, with their bytes."""
    if place.is_dir():
        return {name: read_bytes(place / name) for name in names}
    contents = {}
    with open_tar(place) as tar:
        for member in tar:
            folder, _, name = member.name.rpartition("/")
            if folder == form.folder and name in names and member.isfile() and member.size <= MOST_MEMBER_BYTES:
                content = tar.extractfile(member)
                assert content is not None  # a regular file has contents
                contents[name] = content.read()
    if missing := [name for name in names if name not in contents]:
        raise refuse(str(place), f"an archive without {', '.join(missing)}", "the official archive")
    return contents


def _batch(raw: bytes, form: ArchiveForm, where: str) -> tuple[Bytes, Integers]:
    """Return images and labels of one file."""
    if form.label_bytes == 0:
        pixels, labels = read_batch(raw, form.label_key, where)
    else:
        record = form.label_bytes + PIXELS
        if not raw or len(raw) % record:
            raise refuse(where, f"{len(raw)} bytes", f"a whole number of records of {record} bytes")
        rows = np.frombuffer(raw, np.uint8).reshape(-1, record)
        pixels, labels = rows[:, form.label_bytes :], rows[:, form.label_bytes - 1].astype(np.int64)
    # all red, then all green, then all blue
    return np.ascontiguousarray(pixels.reshape(-1, 3, CIFAR_SIDE, CIFAR_SIDE).transpose(0, 2, 3, 1)), labels


def _byte_type(code: bytes | str, align: int = 0, copy: int = 1) -> np.dtype[Any]:
    """Stand in for numpy.dtype: the files hold arrays of bytes only."""
    if code not in (b"u1", "u1"):
        raise pickle.UnpicklingError(f"an array of {code!r}")
    return np.dtype(np.uint8, copy=True)


class _Strict(pickle.Unpickler):
    """An unpickler that accepts the three names which an array of bytes needs."""

    def find_class(self, module: str, name: str) -> Any:
        """Return one of the accepted names; any other is refused."""
        reconstruct = np.empty(0, np.uint8).__reduce__()[0]  # its module moved between versions of numpy
        known = {"_reconstruct": reconstruct, "ndarray": np.ndarray, "dtype": _byte_type}
        if module.split(".")[0] != "numpy" or name not in known:
            raise pickle.UnpicklingError(f"the name {module}.{name}")
        return known[name]


def read_batch(raw: bytes, label_key: bytes, where: str) -> tuple[NDArray[np.uint8], Integers]:
    """Return the pixels (n, 3072) and the labels (n,) of one file."""
    want = f"an official batch with data and {label_key.decode()}"
    try:
        batch = _Strict(io.BytesIO(raw), encoding="bytes").load()
        pixels, labels = np.asarray(batch[b"data"]), np.asarray(batch[label_key], np.int64)
    except Exception as error:  # a broken pickle can raise almost anything
        raise refuse(where, f"a file that cannot be read ({type(error).__name__}: {error})", want) from None
    if pixels.dtype != np.uint8 or pixels.shape != (len(labels), PIXELS) or labels.ndim != 1:
        raise refuse(where, f"data {pixels.dtype} {pixels.shape}, labels {labels.shape}", want)
    if len(labels) and labels.min() < 0:
        raise refuse(where, f"label {labels.min()}", want)
    return pixels, labels


def open_cifar_c(folder: str | Path, name: str, severity: int) -> tuple[NDArray[np.uint8], Integers]:
    """Return the 10,000 images (n, 32, 32, 3) of one corruption and severity, mapped from disk, and their labels.

    Image i is test image i, whatever the corruption.
    """
    choice("name", name, CORRUPTIONS)
    check_severity(severity)
    images = _map_array(Path(folder) / f"{name}.npy", C_SHAPE)
    labels = _map_array(Path(folder) / "labels.npy", C_SHAPE[:1])
    part = slice((severity - 1) * TEST, severity * TEST)
    return images[part], labels[part].astype(np.int64)


def _map_array(file: Path, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    want = f"the published uint8 array of shape {shape} (latte data fetch cifar10c or cifar100c)"
    if not file.is_file():
        raise refuse(str(file), "no such file", want)
    try:
        array = map_npy(file)
    except InputError as error:
        raise refuse(str(file), f"an unreadable file ({error})", want) from None
    if array.dtype != np.uint8 or array.shape != shape:
        raise refuse(str(file), f"{array.dtype} of shape {array.shape}", want)
    return np.asarray(array) if array.ndim == 1 else array
