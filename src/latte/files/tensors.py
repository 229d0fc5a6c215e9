"""Safetensors files: eight bytes of header length, a JSON header, the raw arrays.

The format is read and written here. The library gives no place at which an array could be mapped, panics at one that
memory cannot hold, and shuffles the metadata, so that the same task would not be the same bytes. Tests compare with it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from io import BufferedReader, BytesIO
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import refuse
from .arrays import check_shape
from .atomic import writing
from .documents import MOST_DOCUMENT_BYTES, open_file, parse_json, shorten, size_of, structure

METADATA = "__metadata__"
_DTYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BOOL": "|b1", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "|u1",
}  # fmt: skip
_NAMES = {np.dtype(code).name: name for name, code in _DTYPES.items()}


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """An entry of the header: ``data_offsets`` count from the end of the header."""

    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]

    def __post_init__(self) -> None:
        if self.dtype not in _DTYPES:
            raise refuse("dtype", shorten(repr(self.dtype)), "one of " + ", ".join(_DTYPES))
        check_shape(self.shape, "tensor")
        size = math.prod(self.shape) * np.dtype(_DTYPES[self.dtype]).itemsize
        start, stop = self.data_offsets
        if stop - start != size or start < 0:
            raise refuse("data_offsets", shorten(self.data_offsets), f"the start and the end of {size} bytes")


@dataclass(frozen=True, slots=True, eq=False)
class Tensors:
    """The contents of a safetensors file."""

    arrays: dict[str, NDArray[Any]]
    metadata: dict[str, str]


def read_safetensors(
    path: Path, kind: str = "file", mapped: Collection[str] = (), only: Collection[str] | None = None
) -> Tensors:
    """Read a safetensors file, or ``only`` some of its arrays; ``mapped`` arrays stay on disk until they are used."""
    with open_file(path, kind) as file:
        return _read(file, size_of(file), str(path), mapped, only)


def parse_safetensors(content: bytes, name: str) -> Tensors:
    """Return the contents of a safetensors file from its bytes; ``name`` is their origin, for refusals."""
    return _read(BytesIO(content), len(content), name)


def _read(
    file: BufferedReader | BytesIO,
    size: int,
    name: str,
    mapped: Collection[str] = (),
    only: Collection[str] | None = None,
) -> Tensors:
    """Read a file of ``size`` bytes; entries that do not fit each other or its length are refused before any array."""
    whole = "a whole safetensors file"
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > size - 8:
        raise refuse(name, f"a damaged or truncated file ({size:,} bytes)", whole)
    if length > MOST_DOCUMENT_BYTES:
        raise refuse(name, f"a header of {length:,} bytes", f"at most {MOST_DOCUMENT_BYTES:,}")
    header: dict[str, Any] = parse_json(file.read(length), f"{name}: header", dict[str, Any])
    metadata = structure(header.pop(METADATA, {}), dict[str, str], f"{name}: metadata")
    entries = structure(header, dict[str, TensorEntry], f"{name}: header")
    bounds = [0, *chain.from_iterable(sorted(entry.data_offsets for entry in entries.values()))]
    if bounds[:-1:2] != bounds[1::2] or bounds[-1] != size - 8 - length:
        raise refuse(name, "a damaged or truncated file (arrays with gaps, overlaps or a wrong end)", whole)
    arrays: dict[str, NDArray[Any]] = {}
    for key, entry in entries.items():
        if only is not None and key not in only:
            continue
        begin, kind = 8 + length + entry.data_offsets[0], np.dtype(_DTYPES[entry.dtype])
        if key in mapped and 0 not in entry.shape:
            array: NDArray[Any] = np.memmap(file, kind, "r", begin, entry.shape)
        else:
            try:
                array = np.empty(entry.shape, kind)
            except MemoryError:
                size = entry.data_offsets[1] - entry.data_offsets[0]
                raise refuse(name, f"{size:,} bytes in one array", "as much free memory") from None
            file.seek(begin)
            if file.readinto(array.reshape(-1).view(np.uint8).data) != array.nbytes:
                raise refuse(name, "a file that became shorter", "a file that nobody writes to")
        if entry.dtype == "BOOL" and array.view(np.uint8).max(initial=0) > 1:
            raise refuse(f"{name}: {shorten(key)}", "bytes other than 0 and 1", "truth values")
        arrays[key] = array
    return Tensors(arrays, metadata)


def write_safetensors(path: Path, arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]) -> None:
    """Write a safetensors file, which appears under its name only when it is complete.

    The same arrays and metadata always give the same bytes.
    """
    with writing(path) as file:
        for part in _parts(arrays, metadata):
            file.write(part)


def safetensors_bytes(arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]) -> bytes:
    """Return the bytes of the file that :func:`write_safetensors` writes."""
    return b"".join(_parts(arrays, metadata))


def _parts(arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]) -> Iterator[bytes | memoryview]:
    """Yield the length and the header, padded with spaces to a multiple of eight bytes, then the arrays."""
    names = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))  # widest first: all stay aligned
    header: dict[str, Any] = {METADATA: dict(sorted(metadata.items()))}
    offset = 0
    for name in names:
        dtype, shape, end = arrays[name].dtype, arrays[name].shape, offset + arrays[name].nbytes
        if dtype.name not in _NAMES:
            raise refuse(name, f"dtype {dtype}", "one of " + ", ".join(_NAMES))
        header[name] = {"dtype": _NAMES[dtype.name], "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for name in names:
        array = np.ascontiguousarray(arrays[name])
        yield array.astype(array.dtype.newbyteorder("<"), copy=False).reshape(-1).view(np.uint8).data
