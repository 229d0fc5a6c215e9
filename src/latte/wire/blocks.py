"""Messages of any method as blocks of bytes, whole or without what the receiver has.

A message is a frozen dataclass of arrays. Each becomes a :class:`Block`: embeddings row by row in a precision
(:mod:`.rows`), truth values as bits, other numbers as they are. A block may leave out rows: ``source`` then says for
every row whether it is the next one of ``data``, a zero row, or one of the rows that the receiver has.

A block is checked against its own lengths and against what is expected before anything is allocated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Annotated, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..core.types import Message, array_fields, optional_fields
from ..errors import need, refuse
from .rows import LOSSLESS, PRECISIONS, EncodedRows, RowFormat

try:
    import msgspec
except ModuleNotFoundError:
    need("msgspec", "http")  # its error says how to get it
    raise

NEXT, ZERO = -1, -2  # in ``source``: the next row of ``data``; a row of zeros
_DTYPES = {code: np.dtype(f"<{code}") for code in ("b1", "f4", "f8", "i4", "i8", "u1", "u4", "u8")}  # that can travel
_BITS, _RAW, _SINGLE = "bits", "raw", "single"
_NUMBERS = {"b1": (_BITS,), "f8": (_RAW, _SINGLE)}  # the codings of arrays that are not embeddings; others: raw
_MOST_AXES = 8

Code: TypeAlias = Annotated[str, msgspec.Meta(max_length=32)]  # longer than any, and too short to do harm in a log
# The rows that a receiver has, as the sender knows them: from the name of an array and its rows, the place of each
# among the receiver's; NEXT for one that has to be sent.
Base: TypeAlias = Callable[[str, EncodedRows], NDArray[np.int32]]


class Block(msgspec.Struct, frozen=True, array_like=True):
    """One array: ``coding`` is a precision for embeddings, else "raw", "single" (float32) or "bits"."""

    name: Annotated[str, msgspec.Meta(max_length=256)]
    dtype: Code
    shape: Annotated[tuple[int, ...], msgspec.Meta(max_length=32)]
    coding: Code
    data: bytes
    source: bytes = b""  # int32, one per row; empty: all rows are in data, in order


def code_of(dtype: np.dtype[Any]) -> str:
    """Return the code of a dtype in a block; refuse a dtype that cannot travel."""
    code = f"{dtype.kind}{dtype.itemsize}"
    if code not in _DTYPES:
        raise refuse("message", f"an array of {dtype}", "one of " + ", ".join(_DTYPES))
    return code


# --- what a receiver expects of its arrays --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SameShapes:
    """The arrays are those of an example, or fewer: the uploads of all clients have the same shapes."""

    arrays: Mapping[str, tuple[str, tuple[int, ...]]]

    @classmethod
    def of(cls, example: Message) -> SameShapes:
        """Return what is expected of messages like ``example``."""
        arrays = {name: getattr(example, name) for name in array_fields(example)}
        return cls({name: (code_of(array.dtype), array.shape) for name, array in arrays.items()})

    @property
    def size(self) -> int:
        """The bytes of all arrays as they are."""
        return sum(math.prod(shape) * np.dtype(dtype).itemsize for dtype, shape in self.arrays.values())

    def check(self, name: str, dtype: str, shape: tuple[int, ...]) -> None:
        """Refuse another dtype or shape than that of the example."""
        want = self.arrays.get(name)
        if want != (dtype, shape):
            raise refuse(
                name, f"{dtype} of shape {shape}", f"{want[0]} of shape {want[1]}" if want else "no such array"
            )


@dataclass(frozen=True, slots=True)
class AtMost:
    """Each array has at most ``most`` bytes: downloads may have any number of slots."""

    most: int

    def check(self, name: str, dtype: str, shape: tuple[int, ...]) -> None:
        """Refuse an array that is too large."""
        size = math.prod(shape) * np.dtype(dtype).itemsize
        if size > self.most:
            raise refuse(name, f"{size:,} bytes", f"at most {self.most:,}")


# --- encode -------------------------------------------------------------------------------------------------


def encode(message: Message, precision: str, dim: int, base: Base | None = None) -> tuple[Block, ...]:
    """Return a message as blocks; rows of embeddings that the receiver has according to ``base`` are left out."""
    optional = optional_fields(message)
    arrays = {name: getattr(message, name) for name in array_fields(message)}
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):
            raise refuse(f"message: {name}", type(array).__name__, "an array")
    vectors: tuple[str, ...] | None = getattr(type(message), "vector_fields", None)
    found = tuple(n for n, a in arrays.items() if a.dtype.kind == "f" and a.ndim > 1 and a.shape[-1] == dim)
    vectors = found if vectors is None else (*vectors, *(name for name in found if name in optional))
    blocks = []
    for name, array in arrays.items():
        if name not in vectors:
            blocks.append(number_block(name, array, precision))
            continue
        if array.dtype.kind != "f" or array.ndim < 2 or not array.shape[-1]:
            raise refuse(f"message: {name}", f"{array.dtype} of shape {array.shape}", "vectors: (..., D) real numbers")
        rows = array.reshape(-1, array.shape[-1])
        encoded = RowFormat.of(precision, array.shape[-1], array.dtype).encode(rows)
        whole = Block(name, code_of(array.dtype), array.shape, precision, b"")
        blocks.append(vector_block(whole, encoded, ~rows.any(axis=1), base))
    return tuple(blocks)


def number_block(name: str, array: NDArray[Any], precision: str) -> Block:
    """Return an array of numbers or truth values as a block."""
    code = code_of(array.dtype)
    if code == "b1":
        return Block(name, code, array.shape, _BITS, np.packbits(array.reshape(-1)).tobytes())
    if code == "f8" and precision not in (LOSSLESS, "fp32"):
        return Block(name, code, array.shape, _SINGLE, array.astype("<f4").tobytes())
    return Block(name, code, array.shape, _RAW, np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes())


def vector_block(whole: Block, encoded: EncodedRows, zero: NDArray[np.bool_], base: Base | None) -> Block:
    """Return the block ``whole`` with ``encoded`` rows, without those that are ``zero`` or that the receiver has."""
    source = np.full(len(encoded), NEXT, np.int32) if base is None else base(whole.name, encoded)
    source[zero] = ZERO
    sent = source == NEXT
    if sent.all():
        return msgspec.structs.replace(whole, data=encoded.tobytes())
    return msgspec.structs.replace(whole, data=encoded[sent].tobytes(), source=source.astype("<i4").tobytes())


# --- decode -------------------------------------------------------------------------------------------------


def complete(
    blocks: Sequence[Block], expected: SameShapes | AtMost, base: Mapping[str, EncodedRows]
) -> tuple[Block, ...]:
    """Return ``blocks`` with all rows in ``data``; rows that were left out come from ``base``, the receiver's own."""
    return tuple(_complete(block, expected, base) for block in blocks)


def _complete(block: Block, expected: SameShapes | AtMost, base: Mapping[str, EncodedRows]) -> Block:
    dtype, shape = block.dtype, block.shape
    if dtype not in _DTYPES or len(shape) > _MOST_AXES or min(shape, default=0) < 0:
        raise refuse(_label(block), f"{dtype[:20]!r} of shape {str(shape)[:80]}", "an array")
    expected.check(block.name, dtype, shape)
    vectors = block.coding in PRECISIONS
    possible = dtype[0] == "f" and len(shape) > 1 and shape[-1] > 0
    if not possible if vectors else block.coding not in _NUMBERS.get(dtype, (_RAW,)):
        raise refuse(_label(block), f"coding {block.coding[:20]!r} of {dtype}", "a coding for that dtype")
    source = None
    if vectors:
        count, stride = math.prod(shape[:-1]), _format_of(block).stride
        if block.source:
            if len(block.source) != 4 * count:
                raise refuse(
                    _label(block), f"{len(block.source)} bytes that say where {count} rows are", f"{4 * count}"
                )
            source = np.frombuffer(block.source, "<i4")
            if source.min(initial=NEXT) < ZERO:
                raise refuse(_label(block), "a row from a place below -2", "-2, -1, or the place of a row")
        want = stride * (count if source is None else int((source == NEXT).sum()))
    else:
        count = math.prod(shape)
        want = {_BITS: -(-count // 8), _SINGLE: 4 * count}.get(block.coding, count * _DTYPES[dtype].itemsize)
    if len(block.data) != want:
        raise refuse(_label(block), f"{len(block.data):,} bytes", f"{want:,} for shape {shape}")
    if source is None:
        return block
    have = base.get(block.name, np.zeros((0, stride), np.uint8))
    if source.max(initial=NEXT) >= len(have) or (len(have) and have.shape[1] != stride):
        raise refuse(_label(block), "rows that are left out and not here either", "all rows, or a base that is here")
    rows, held = np.zeros((count, stride), np.uint8), source >= 0
    rows[source == NEXT] = np.frombuffer(block.data, np.uint8).reshape(-1, stride)
    rows[held] = have[source[held]]
    return msgspec.structs.replace(block, data=rows.tobytes(), source=b"")


def _label(block: Block) -> str:
    return f"array {block.name[:80]!r}"


def decode(blocks: Sequence[Block], kind: type, task: str) -> Any:
    """Return the message of ``kind`` that complete ``blocks`` are, for the classifier with the fingerprint ``task``."""
    arrays = {block.name: array_of(block) for block in blocks}
    needed, optional = array_fields(kind), optional_fields(kind)
    if len(blocks) != len(arrays) or not set(needed) <= set(arrays) <= {*needed, *optional}:
        more = f", and perhaps {', '.join(optional)}" if optional else ""
        want = f"{', '.join(needed)}, each once{more}"
        raise refuse("message", f"the arrays {', '.join(sorted(arrays)) or 'none'}", want)
    return kind(**arrays, task=task)


def array_of(block: Block) -> NDArray[Any]:
    """Return the array that a complete block is."""
    if block.coding in PRECISIONS:
        return _format_of(block).decode(_rows_of(block)).reshape(block.shape)
    if block.coding == _BITS:
        bits = np.unpackbits(np.frombuffer(block.data, np.uint8), count=math.prod(block.shape))
        return bits.view(np.bool_).reshape(block.shape)
    stored = "<f4" if block.coding == _SINGLE else f"<{block.dtype}"
    return np.frombuffer(block.data, stored).astype(np.dtype(block.dtype)).reshape(block.shape)


def encoded_rows(blocks: Sequence[Block]) -> dict[str, EncodedRows]:
    """Return the rows of embeddings in complete ``blocks``, by the name of their array."""
    return {block.name: _rows_of(block) for block in blocks if block.coding in PRECISIONS}


def rounding_of(blocks: Sequence[Block]) -> NDArray[np.float64]:
    """Return how far encoding can have moved each row (n,), a vector of unit length, in the direction of another.

    If several arrays have the same number of rows, the larger number counts for each place; if these differ, the
    largest of all (1,).
    """
    roundings = [_format_of(b).roundings(_rows_of(b)) for b in blocks if b.coding in PRECISIONS]
    if not roundings:
        return np.zeros(1)
    if len({len(array) for array in roundings}) > 1:
        roundings = [array.max(keepdims=True, initial=0.0) for array in roundings]
    return reduce(np.maximum, roundings)


def _format_of(block: Block) -> RowFormat:
    return RowFormat.of(block.coding, block.shape[-1], _DTYPES[block.dtype])


def _rows_of(block: Block) -> EncodedRows:
    return np.frombuffer(block.data, np.uint8).reshape(-1, _format_of(block).stride)
