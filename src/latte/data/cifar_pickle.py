"""Read a batch file of the official CIFAR python archives, without trusting it.

A pickle is a program. This unpickler can build dictionaries, lists, numbers, byte strings and arrays of
bytes; any other name in the file is refused before it is looked up.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.types import Integers
from ..errors import refuse

PIXELS = 3 * 32 * 32  # bytes of an image


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
