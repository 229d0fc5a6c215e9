"""The published CIFAR-10-C and CIFAR-100-C: a .npy per corruption, five severities of 10,000 images each."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..core.types import Integers
from ..core.validate import choice
from ..errors import InputError, refuse
from ..files.arrays import map_npy
from .corruptions import CORRUPTIONS, SEVERITIES, check_severity

PER_SEVERITY = 10_000
SHAPE = (len(SEVERITIES) * PER_SEVERITY, 32, 32, 3)


def open_cifar_c(folder: str | Path, name: str, severity: int) -> tuple[NDArray[np.uint8], Integers]:
    """Return the 10,000 images (n, 32, 32, 3) of one corruption and severity, mapped from disk, and their
    labels.

    Image i is test image i, whatever the corruption.
    """
    choice("name", name, CORRUPTIONS)
    check_severity(severity)
    images = _map_array(Path(folder) / f"{name}.npy", SHAPE)
    labels = _map_array(Path(folder) / "labels.npy", SHAPE[:1])
    part = slice((severity - 1) * PER_SEVERITY, severity * PER_SEVERITY)
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
