"""Numpy's own files: the header of a .npy file, and the members of a .npz file.

A .npz file is compressed, so its description of itself is checked before anything is unpacked: the directory of the zip
file, then the header of each requested member. Other members are never unpacked. No pickle is read.
"""

from __future__ import annotations

import gzip
import lzma
import math
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from ..errors import InputError, refuse
from .documents import open_file, shorten, size_of

FREE_BYTES = 256 << 20  # that any file may unpack to
MOST_GROWTH = 20  # beyond FREE_BYTES. Eleven files of real embeddings grow 1.1-fold, a zip bomb a thousandfold
MOST_DIMENSIONS = 8
MOST_ARRAY_ITEMS = 1 << 56  # of an array, zeros in its shape left out: numpy counts bytes in 63 bits
_MOST_HEADER = 1 << 16
_BLOCK = 1 << 20
_ENCRYPTED = 1
# what zipfile raises for damage that its directory does not show
_DAMAGE = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError, ValueError, NotImplementedError)


@dataclass(frozen=True, slots=True)
class ArrayHeader:
    """The header of a .npy file; the data begins ``offset`` bytes into the file."""

    dtype: np.dtype[Any]
    fortran: bool
    shape: tuple[int, ...]
    offset: int

    @property
    def nbytes(self) -> int:
        """The number of bytes of the array, exact for any numbers in the header."""
        return self.dtype.itemsize * math.prod(self.shape)

    def arrange(self, flat: NDArray[Any]) -> NDArray[Any]:
        """Return the values of the file in the shape and the byte order that numpy works with."""
        array = flat.reshape(self.shape[::-1]).T if self.fortran else flat.reshape(self.shape)
        return array.astype(array.dtype.newbyteorder("="), copy=False)


def read_npy_header(file: IO[bytes], name: str) -> ArrayHeader:
    """Read the header of a .npy file up to where the data begins."""
    try:
        version = npy.read_magic(file)
        read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}[version]
        shape, fortran, dtype = read(file)
    except Exception as error:  # of ast, of tokenize: numpy lets pass what they raise
        raise refuse(name, f"no array header ({shorten(error)})", "an array as numpy writes it") from None
    if dtype.kind not in "fiubUS" or not dtype.itemsize or (dtype.kind == "f" and dtype.itemsize > 8):
        raise refuse(name, f"the type {dtype.str!r}", "numbers, truth values or text: no objects, no records")
    check_shape(shape, name)
    return ArrayHeader(dtype, fortran, shape, file.tell())


def check_shape(shape: tuple[int, ...], name: str) -> None:
    """Refuse a shape that numpy cannot hold, even if one of its lengths is zero."""
    if len(shape) > MOST_DIMENSIONS or min(shape, default=0) < 0:
        raise refuse(name, f"shape {shorten(shape)}", f"at most {MOST_DIMENSIONS} lengths >= 0")
    if math.prod(length or 1 for length in shape) > MOST_ARRAY_ITEMS:
        raise refuse(name, f"shape {shorten(shape)}", "an array that memory can hold")


@contextmanager
def open_npz(path: Path, kind: str = "file") -> Iterator[Npz]:
    """Open a .npz file; only its directory is read."""
    with open_file(path, kind) as file:
        try:
            archive = zipfile.ZipFile(file)
        except _DAMAGE as error:
            raise _damaged(path, error) from None
        with archive:
            yield Npz(path, archive, size_of(file))


@dataclass(frozen=True, slots=True, eq=False)
class Npz:
    """An open .npz file of ``size`` bytes."""

    path: Path
    archive: zipfile.ZipFile
    size: int

    def names(self) -> list[str]:
        """Return the names of the arrays."""
        return [name.removesuffix(".npy") for name in self.archive.namelist()]

    def headers(self, names: Iterable[str]) -> dict[str, ArrayHeader]:
        """Return the headers of the arrays ``names``; nothing else is unpacked."""
        return {name: self._header(name, self._member(name)) for name in names}

    def read(self, headers: Mapping[str, ArrayHeader]) -> dict[str, NDArray[Any]]:
        """Unpack arrays; growth that only a zip bomb has is refused."""
        members = {name: self._member(name) for name in headers}
        packed = sum(member.compress_size for member in members.values())
        total = sum(member.file_size for member in members.values())
        if packed > self.size:
            raise _damaged(self.path, "members that overlap")
        if total > max(FREE_BYTES, MOST_GROWTH * packed):
            got = f"{packed:,} bytes that unpack to {total:,}"
            raise refuse(str(self.path), got, f"at most {MOST_GROWTH} times as much, which no embeddings exceed")
        return {name: self._unpack(members[name], header) for name, header in headers.items()}

    def _member(self, name: str) -> zipfile.ZipInfo:
        """Return the entry of the directory; refuse an entry that cannot be unpacked."""
        members = [info for info in self.archive.infolist() if info.filename.removesuffix(".npy") == name]
        label = f"{self.path}: {name}"
        if len(members) != 1:
            raise refuse(label, f"{len(members)} arrays of this name", "one")
        (member,) = members
        if member.flag_bits & _ENCRYPTED:
            raise refuse(label, "an encrypted array", "a file without a password")
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise refuse(label, f"compression method {member.compress_type}", "what numpy writes: stored or deflated")
        return member

    def _header(self, name: str, member: zipfile.ZipInfo) -> ArrayHeader:
        try:
            with self.archive.open(member) as stream:
                head = stream.read(_MOST_HEADER + 12)
        except _DAMAGE as error:
            raise _damaged(self.path, error) from None
        header = read_npy_header(BytesIO(head), f"{self.path}: {name}")
        if header.offset + header.nbytes != member.file_size:
            got = f"{member.file_size:,} bytes for {header.dtype} of shape {header.shape}"
            raise refuse(f"{self.path}: {name}", got, f"{header.offset + header.nbytes:,}")
        return header

    def _unpack(self, member: zipfile.ZipInfo, header: ArrayHeader) -> NDArray[Any]:
        try:
            flat = np.empty(math.prod(header.shape), header.dtype)
            with self.archive.open(member) as stream:
                stream.read(header.offset)
                complete = _fill(flat, stream)
        except _DAMAGE as error:
            raise _damaged(self.path, error) from None
        except MemoryError:
            raise refuse(str(self.path), f"{header.nbytes:,} bytes in one array", "as much free memory") from None
        if not complete:
            raise _damaged(self.path, "an array that ends early")
        return header.arrange(flat)


def map_npy(path: Path) -> NDArray[Any]:
    """Map the array of a .npy file from disk."""
    with open_file(path, "file") as file:
        header = read_npy_header(file, str(path))
        if header.offset + header.nbytes != size_of(file):
            got = f"{size_of(file):,} bytes for {header.dtype} of shape {header.shape}"
            raise refuse(str(path), got, f"{header.offset + header.nbytes:,}")
        if not header.nbytes:
            return np.empty(header.shape, header.dtype)
        order: Literal["F", "C"] = "F" if header.fortran else "C"
        return np.memmap(file, header.dtype, "r", header.offset, header.shape, order)


def _fill(array: NDArray[Any], stream: IO[bytes]) -> bool:
    """Read until ``array`` is full, a block at a time; return whether it is."""
    view, done = array.view(np.uint8).data, 0
    while done < len(view) and (block := stream.read(min(_BLOCK, len(view) - done))):
        view[done : done + len(block)] = block
        done += len(block)
    return done == len(view)


def _damaged(path: Path, reason: object) -> InputError:
    return refuse(str(path), f"a damaged or truncated file ({shorten(reason)})", "a whole .npz file")


_ARCHIVE_DAMAGE = (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError)


@contextmanager
def open_tar(path: Path) -> Iterator[tarfile.TarFile]:
    """Open an archive; damage that shows while it is open is an error that names the file."""
    with open_file(path, "archive") as file:
        try:
            with tarfile.open(fileobj=file) as tar:
                yield tar
        except _ARCHIVE_DAMAGE as error:
            raise refuse(str(path), f"a damaged archive ({shorten(error)})", "the official file") from None
