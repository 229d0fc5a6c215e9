"""Messages of any method as blocks of bytes, whole or without what the receiver has.

A message is a frozen dataclass of arrays. Each becomes a :class:`Block`: embeddings row by row in a precision
(:mod:`.rows`), truth values as bits, other numbers as they are. A block may leave out rows: ``source`` then says for
every row whether it is the next one of ``data``, a zero row, or one of the rows that the receiver has.

A block is checked against its own lengths and against what is expected before anything is allocated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..core.extras import need
from ..core.types import Message, array_fields
from ..errors import refuse
from .expected_arrays import DTYPE_CODES, Expected, code_of
from .rows import LOSSLESS, PRECISIONS, EncodedRows, RowFormat

try:
    import msgspec
except ModuleNotFoundError:
    need("msgspec", "http")  # its error says how to get it
    raise

NEXT, ZERO = -1, -2  # in ``source``: the next row of ``data``; a row of zeros
_BITS, _RAW, _SINGLE = "bits", "raw", "single"
_MOST_AXES = 8
Code: TypeAlias = Annotated[str, msgspec.Meta(max_length=32)]  # longer than any, and too short to do harm in a log


class Block(msgspec.Struct, frozen=True, array_like=True):
    """One array: ``coding`` is a precision for embeddings, else "raw", "single" (float32) or "bits"."""

    name: Annotated[str, msgspec.Meta(max_length=256)]
    dtype: Code
    shape: Annotated[tuple[int, ...], msgspec.Meta(max_length=32)]
    coding: Code
    data: bytes
    source: bytes = b""  # int32, one per row; empty: all rows are in data, in order


class Base(Protocol):
    """The rows that a receiver has, as the sender knows them."""

    def find(self, name: str, encoded: EncodedRows) -> NDArray[np.int32]:
        """Return the place of each row among the receiver's rows; NEXT for a row that has to be sent."""


# --- encode -------------------------------------------------------------------------------------------------


def encode(message: Message, precision: str, dim: int, base: Base | None = None) -> tuple[Block, ...]:
    """Return a message as blocks; rows of embeddings that the receiver has according to ``base`` are left out."""
    arrays = {name: _sendable(name, getattr(message, name)) for name in array_fields(type(message))}
    vectors = vector_fields(message, dim)
    return tuple(
        _vector_block(name, array, precision, base) if name in vectors else number_block(name, array, precision)
        for name, array in arrays.items()
    )


def _sendable(name: str, array: object) -> NDArray[Any]:
    if not isinstance(array, np.ndarray):
        raise refuse(f"message: {name}", type(array).__name__, "an array")
    code_of(array.dtype)
    return array


def vector_fields(message: Message, dim: int) -> tuple[str, ...]:
    """Return which arrays of a message are embeddings."""
    declared: tuple[str, ...] | None = getattr(type(message), "vector_fields", None)
    if declared is not None:
        return declared
    arrays = {name: getattr(message, name) for name in array_fields(type(message))}
    return tuple(n for n, a in arrays.items() if a.dtype.kind == "f" and a.ndim > 1 and a.shape[-1] == dim)


def number_block(name: str, array: NDArray[Any], precision: str) -> Block:
    """Return an array of numbers or truth values as a block."""
    code = code_of(array.dtype)
    if code == "b1":
        return Block(name, code, array.shape, _BITS, np.packbits(array.reshape(-1)).tobytes())
    if code == "f8" and precision not in (LOSSLESS, "fp32"):
        return Block(name, code, array.shape, _SINGLE, array.astype("<f4").tobytes())
    return Block(name, code, array.shape, _RAW, np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes())


def _vector_block(name: str, array: NDArray[Any], precision: str, base: Base | None) -> Block:
    if array.dtype.kind != "f" or array.ndim < 2 or not array.shape[-1]:
        raise refuse(f"message: {name}", f"{array.dtype} of shape {array.shape}", "vectors: (..., D) real numbers")
    form = RowFormat.of(precision, array.shape[-1], array.dtype)
    rows = array.reshape(-1, array.shape[-1])
    encoded = form.encode(rows)
    whole = Block(name, code_of(array.dtype), array.shape, precision, b"")
    source = np.full(len(rows), NEXT, np.int32) if base is None else base.find(name, encoded)
    source[~rows.any(axis=1)] = ZERO
    if (source == NEXT).all():
        return msgspec.structs.replace(whole, data=encoded.tobytes())
    return msgspec.structs.replace(whole, data=encoded[source == NEXT].tobytes(), source=source.astype("<i4").tobytes())


# --- decode -------------------------------------------------------------------------------------------------


def complete(blocks: Sequence[Block], expected: Expected, base: Mapping[str, EncodedRows]) -> tuple[Block, ...]:
    """Return ``blocks`` with all rows in ``data``; rows that were left out come from ``base``, the receiver's own."""
    return tuple(_complete(block, expected, base) for block in blocks)


def in_place(block: Block) -> Block:
    """Return a block whose rows that are left out are said to be at their own places."""
    if not block.source:
        return block
    if len(block.source) % 4:
        raise refuse(_label(block), f"{len(block.source)} bytes that say where rows are", "4 per row")
    source = np.frombuffer(block.source, "<i4")
    places = np.where(source >= 0, np.arange(len(source)), source).astype("<i4")
    return msgspec.structs.replace(block, source=places.tobytes())


def decode(blocks: Sequence[Block], kind: type[Any], task: str) -> Any:
    """Return the message of ``kind`` that complete ``blocks`` are, for the classifier with the fingerprint ``task``."""
    arrays = {block.name: _array(block) for block in blocks}
    names = array_fields(kind)
    if len(blocks) != len(names) or set(arrays) != set(names):
        raise refuse("message", f"the arrays {', '.join(sorted(arrays)) or 'none'}", f"{', '.join(names)}, each once")
    return kind(**arrays, task=task)


def encoded_rows(blocks: Sequence[Block]) -> dict[str, EncodedRows]:
    """Return the rows of embeddings in complete ``blocks``, by the name of their array."""
    return {block.name: _rows_of(block) for block in blocks if block.coding in PRECISIONS}


def rounding_of(blocks: Sequence[Block]) -> NDArray[np.float64]:
    """Return how far encoding can have moved each row (n,), a vector of unit length, in the direction of another.

    If several arrays have the same number of rows, the larger number counts for each place; if these differ, the
    largest of all (1,).
    """
    return _largest([_format_of(b).roundings(_rows_of(b)) for b in blocks if b.coding in PRECISIONS], (1,))


def rounding_of_each(stacked: Sequence[Block]) -> NDArray[np.float64]:
    """Return :func:`rounding_of` (m, n) of each of m messages that were stacked to one."""
    vectors = [(block, _format_of(block)) for block in stacked if block.coding in PRECISIONS]
    arrays = [form.roundings(_rows_of(b).reshape(b.shape[0], -1, form.stride)) for b, form in vectors]
    return _largest(arrays, (stacked[0].shape[0] if stacked else 0, 1))


def _largest(roundings: Sequence[NDArray[np.float64]], none: tuple[int, ...]) -> NDArray[np.float64]:
    """Return the largest of several arrays at each place of the last axis; if their numbers differ, of all places."""
    if not roundings:
        return np.zeros(none)
    if len({array.shape for array in roundings}) > 1:
        roundings = [array.max(axis=-1, keepdims=True, initial=0.0) for array in roundings]
    largest: NDArray[np.float64] = np.max(roundings, axis=0)
    return largest


def precision_of(blocks: Sequence[Block]) -> str:
    """Return the precision of the embeddings; ``exact`` if there are none."""
    return next((block.coding for block in blocks if block.coding in PRECISIONS), LOSSLESS)


def _check(block: Block, expected: Expected) -> None:
    """Refuse a block whose dtype, shape or coding is not valid."""
    if block.dtype not in DTYPE_CODES or len(block.shape) > _MOST_AXES or any(n < 0 for n in block.shape):
        raise refuse(_label(block), f"{block.dtype[:20]!r} of shape {str(block.shape)[:80]}", "an array")
    expected.check(block.name, block.dtype, block.shape)
    if block.coding not in _codings(block.dtype, block.shape):
        raise refuse(_label(block), f"coding {block.coding[:20]!r} of {block.dtype}", "a coding for that dtype")


def _codings(dtype: str, shape: tuple[int, ...]) -> tuple[str, ...]:
    """Return the codings that such an array may have."""
    if dtype == "b1":
        return (_BITS,)
    vectors = PRECISIONS if dtype[0] == "f" and len(shape) > 1 and shape[-1] > 0 else ()
    return (_RAW, *((_SINGLE,) if dtype == "f8" else ()), *vectors)


def _label(block: Block) -> str:
    return f"array {block.name[:80]!r}"


def _complete(block: Block, expected: Expected, base: Mapping[str, EncodedRows]) -> Block:
    _check(block, expected)
    if block.coding not in PRECISIONS:
        _check_length(block, _number_bytes(block))
        return block
    count, stride = math.prod(block.shape[:-1]), _format_of(block).stride
    if not block.source:
        _check_length(block, count * stride)
        return block
    source = _source(block, count)
    _check_length(block, int((source == NEXT).sum()) * stride)
    rows = _assemble(block, source, base.get(block.name), stride)
    return msgspec.structs.replace(block, data=rows.tobytes(), source=b"")


def _source(block: Block, count: int) -> NDArray[np.int32]:
    if len(block.source) != 4 * count:
        raise refuse(_label(block), f"{len(block.source)} bytes that say where {count} rows are", f"{4 * count}")
    source = np.frombuffer(block.source, "<i4")
    if source.min(initial=NEXT) < ZERO:
        raise refuse(_label(block), "a row from a place below -2", "-2, -1, or the place of a row")
    return source


def _assemble(block: Block, source: NDArray[np.int32], held: EncodedRows | None, stride: int) -> EncodedRows:
    have = np.zeros((0, stride), np.uint8) if held is None else held
    if source.max(initial=NEXT) >= len(have) or (len(have) and have.shape[1] != stride):
        raise refuse(_label(block), "rows that are left out and not here either", "all rows, or a base that is here")
    rows = np.zeros((len(source), stride), np.uint8)
    rows[source == NEXT] = np.frombuffer(block.data, np.uint8).reshape(-1, stride)
    rows[source >= 0] = have[source[source >= 0]]
    return rows


def _check_length(block: Block, want: int) -> None:
    if len(block.data) != want:
        raise refuse(_label(block), f"{len(block.data):,} bytes", f"{want:,} for shape {block.shape}")


def _number_bytes(block: Block) -> int:
    count = math.prod(block.shape)
    return {_BITS: -(-count // 8), _SINGLE: 4 * count}.get(block.coding, count * np.dtype(block.dtype).itemsize)


def _format_of(block: Block) -> RowFormat:
    return RowFormat.of(block.coding, block.shape[-1], np.dtype(f"<{block.dtype}"))


def _rows_of(block: Block) -> EncodedRows:
    stride = _format_of(block).stride
    return np.frombuffer(block.data, np.uint8).reshape(math.prod(block.shape[:-1]), stride)


def _array(block: Block) -> NDArray[Any]:
    if block.coding in PRECISIONS:
        return _format_of(block).decode(_rows_of(block)).reshape(block.shape)
    if block.coding == _BITS:
        bits = np.unpackbits(np.frombuffer(block.data, np.uint8), count=math.prod(block.shape))
        return bits.astype(np.bool_).reshape(block.shape)
    stored = "<f4" if block.coding == _SINGLE else f"<{block.dtype}"
    return np.frombuffer(block.data, stored).astype(np.dtype(block.dtype)).reshape(block.shape)
