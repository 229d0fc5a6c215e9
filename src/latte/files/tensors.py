"""Safetensors files: eight bytes of header length, a JSON header, the raw arrays.

The format is read and written here, because the header is checked against the length of the file before anything is
allocated, arrays can be mapped, and the same content always gives the same bytes. Tests compare both directions with
the safetensors library.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..errors import refuse
from .arrays import check_shape
from .atomic import writing
from .documents import MOST_DOCUMENT_BYTES, parse_json
from .reading import open_file, size_of
from .schema import shorten, structure

ReadableFile: TypeAlias = BufferedReader | BytesIO

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
    data_offsets: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.dtype not in _DTYPES:
            raise refuse("dtype", shorten(repr(self.dtype)), "one of " + ", ".join(_DTYPES))
        check_shape(self.shape, "tensor")
        size = math.prod(self.shape) * self.type.itemsize
        if len(self.data_offsets) != 2 or self.stop - self.start != size or self.start < 0:
            raise refuse("data_offsets", shorten(self.data_offsets), f"the start and the end of {size} bytes")

    @property
    def type(self) -> np.dtype[Any]:
        """The numpy type."""
        return np.dtype(_DTYPES[self.dtype])

    @property
    def start(self) -> int:
        """Where its bytes begin."""
        return self.data_offsets[0]

    @property
    def stop(self) -> int:
        """Where its bytes end."""
        return self.data_offsets[-1]


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
        header = _read_header(file, size_of(file), str(path))
        arrays: dict[str, NDArray[Any]] = {}
        for name, entry in header.entries.items():
            if only is not None and name not in only:
                continue
            if name in mapped and 0 not in entry.shape:
                arrays[name] = np.memmap(file, entry.type, "r", header.begin + entry.start, entry.shape)
            else:
                arrays[name] = _read(file, header.begin, entry, str(path))
            _check_booleans(arrays[name], entry, f"{path}: {shorten(name)}")
    return Tensors(arrays, header.metadata)


def parse_safetensors(content: bytes, name: str) -> Tensors:
    """Return the contents of a safetensors file from its bytes; ``name`` is their origin, for refusals."""
    file = BytesIO(content)
    header = _read_header(file, len(content), name)
    arrays = {key: _read(file, header.begin, entry, name) for key, entry in header.entries.items()}
    for key, entry in header.entries.items():
        _check_booleans(arrays[key], entry, f"{name}: {shorten(key)}")
    return Tensors(arrays, header.metadata)


def _check_booleans(array: NDArray[Any], entry: TensorEntry, name: str) -> None:
    if entry.dtype == "BOOL" and array.view(np.uint8).max(initial=0) > 1:
        raise refuse(name, "bytes other than 0 and 1", "truth values")


class TensorHeader(NamedTuple):
    """The header of a file: the byte at which the data begin, the entries by name, and the metadata."""

    begin: int
    entries: dict[str, TensorEntry]
    metadata: dict[str, str]


def _read_header(file: ReadableFile, size: int, name: str) -> TensorHeader:
    """Return the header; refuse entries that do not fit each other or the length of the file."""
    whole = "a whole safetensors file"
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > size - 8:
        raise refuse(name, f"a damaged or truncated file ({size:,} bytes)", whole)
    if length > MOST_DOCUMENT_BYTES:
        raise refuse(name, f"a header of {length:,} bytes", f"at most {MOST_DOCUMENT_BYTES:,}")
    raw = parse_json(file.read(length), f"{name}: header")
    if not isinstance(raw, dict):
        raise refuse(f"{name}: header", shorten(raw), "an object")
    metadata = structure(raw.pop(METADATA, {}), dict[str, str], f"{name}: metadata")
    entries = structure(raw, dict[str, TensorEntry], f"{name}: header")
    if _end(entries) != size - 8 - length:
        raise refuse(name, "a damaged or truncated file (arrays with gaps, overlaps or a wrong end)", whole)
    return TensorHeader(8 + length, entries, metadata)


def _end(entries: Mapping[str, TensorEntry]) -> int:
    """Return where the last array ends; -1 if there are gaps or overlaps."""
    end = 0
    for entry in sorted(entries.values(), key=lambda entry: entry.data_offsets):
        if entry.start != end:
            return -1
        end = entry.stop
    return end


def _read(file: ReadableFile, begin: int, entry: TensorEntry, name: str) -> NDArray[Any]:
    try:
        array = np.empty(entry.shape, entry.type)
    except MemoryError:
        size = entry.stop - entry.start
        raise refuse(name, f"{size:,} bytes in one array", "as much free memory") from None
    file.seek(begin + entry.start)
    if file.readinto(array.reshape(-1).view(np.uint8).data) != array.nbytes:
        raise refuse(name, "a file that became shorter", "a file that nobody writes to")
    return array


def write_safetensors(path: Path, arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]) -> None:
    """Write a safetensors file; it appears under its name only when it is complete.

    The same arrays and metadata always give the same bytes. The library's own writer shuffles the metadata and holds a
    second copy of everything.
    """
    with writing(path) as file:
        for part in _parts(arrays, metadata):
            file.write(part)


def safetensors_bytes(arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]) -> bytes:
    """Return the bytes of the file that :func:`write_safetensors` writes."""
    return b"".join(_parts(arrays, metadata))


def _parts(arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]) -> Iterator[bytes | memoryview]:
    names = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))  # widest first: all stay aligned
    kinds = tuple((name, arrays[name].dtype, arrays[name].shape) for name in names)
    yield _header(kinds, tuple(sorted(metadata.items())))
    for name in names:
        array = np.ascontiguousarray(arrays[name])
        yield array.astype(array.dtype.newbyteorder("<"), copy=False).reshape(-1).view(np.uint8).data


@lru_cache(32)  # a device writes the same header after every sync
def _header(
    kinds: tuple[tuple[str, np.dtype[Any], tuple[int, ...]], ...], metadata: tuple[tuple[str, str], ...]
) -> bytes:
    """Return the length and the header, padded with spaces to a multiple of eight bytes."""
    entries: dict[str, Any] = {METADATA: dict(metadata)}
    offset = 0
    for name, dtype, shape in kinds:
        if dtype.name not in _NAMES:
            raise refuse(name, f"dtype {dtype}", "one of " + ", ".join(_NAMES))
        end = offset + math.prod(shape) * dtype.itemsize
        entries[name] = {"dtype": _NAMES[dtype.name], "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text
