"""Writing files that are there whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.validate import refuse

_NAMES = {
    "float16": "F16", "float32": "F32", "float64": "F64", "bool": "BOOL",
    "uint8": "U8", "uint64": "U64", "int32": "I32", "int64": "I64",
}  # fmt: skip


def write_safetensors(path: Path, arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]) -> None:
    """Write a safetensors file; it appears under its name only when it is complete.

    The same arrays and metadata always give the same bytes. The library's own writer shuffles the metadata and holds a
    second copy of everything, so the format (a length, a JSON header, the raw arrays) is written here.
    """
    part = Path(f"{path}.part")
    names = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))  # widest first: all stay aligned
    with part.open("wb") as file:
        file.write(_header(arrays, names, metadata))
        for name in names:
            array = np.ascontiguousarray(arrays[name])
            file.write(array.astype(array.dtype.newbyteorder("<"), copy=False).reshape(-1).view(np.uint8).data)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def _header(arrays: Mapping[str, NDArray[Any]], names: list[str], metadata: Mapping[str, str]) -> bytes:
    """Return the length and the header, padded with spaces to a multiple of eight bytes."""
    entries: dict[str, Any] = {"__metadata__": dict(sorted(metadata.items()))}
    offset = 0
    for name in names:
        array = arrays[name]
        if array.dtype.name not in _NAMES:
            raise refuse(name, f"dtype {array.dtype}", "one of " + ", ".join(_NAMES))
        end = offset + array.nbytes
        entries[name] = {"dtype": _NAMES[array.dtype.name], "shape": list(array.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text
