"""Messages of any method as Flower's records, and back.

An array of a message becomes an ``Array`` of an ``ArrayRecord``, under the name of its field. At full precision it is a
plain numpy array, which any program of Flower can read; in another precision its ``stype`` is ``latte.`` and the coding
of :mod:`latte.wire.array_blocks`, its ``data`` are those bytes. Both are checked against their own lengths before
memory is taken, and nothing is unpickled.
"""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord
from numpy.typing import NDArray

from ..core.types import Arrays, Message
from ..errors import refuse
from ..files.arrays import read_npy_header
from ..wire.array_blocks import Block, complete, decode, encode
from ..wire.expected_arrays import AtMost
from ..wire.rows import LOSSLESS

NUMPY = "numpy.ndarray"  # the stype of a plain array
CODED = "latte."  # what the stype of a coded array begins with
MOST_BYTES = 1 << 30  # of one array
_BITS, _RAW = "bits", "raw"


# --- blocks -------------------------------------------------------------------------------------------------


def record_of(blocks: Sequence[Block]) -> ArrayRecord:
    """Return blocks without left-out rows as a record: numpy arrays if nothing was rounded, coded arrays otherwise."""
    whole = complete(blocks, AtMost(MOST_BYTES), {})  # rows of zeros come back
    return ArrayRecord({block.name: _array_of(block) for block in whole})


def _array_of(block: Block) -> Array:
    if block.coding in (LOSSLESS, _RAW):
        return Array(np.frombuffer(block.data, f"<{block.dtype}").reshape(block.shape))
    if block.coding == _BITS:
        bits = np.unpackbits(np.frombuffer(block.data, np.uint8), count=int(np.prod(block.shape)))
        return Array(bits.astype(np.bool_).reshape(block.shape))
    return Array(block.dtype, block.shape, CODED + block.coding, bytes(block.data))


def blocks_of(record: ArrayRecord) -> tuple[Block, ...]:
    """Return the arrays of a record as complete blocks."""
    return tuple(_block_of(name, array) for name, array in record.items())


def _block_of(name: str, array: Array) -> Block:
    stype, shape = str(array.stype), tuple(int(length) for length in array.shape)
    if stype == NUMPY:
        return numpy_block(name, array_of_bytes(name, array.data))
    if not stype.startswith(CODED):
        raise refuse(f"array {name[:80]!r}", f"stype {stype[:40]!r}", f"{NUMPY!r}, or {CODED!r} and a precision")
    return Block(name, str(array.dtype), shape, stype.removeprefix(CODED), array.data)


def array_of_bytes(name: str, data: bytes) -> NDArray[Any]:
    """Return the array in the bytes of a .npy file, which its header has to describe exactly."""
    header = read_npy_header(BytesIO(data), f"array {name[:80]!r}")
    if header.nbytes != len(data) - header.offset or header.dtype.kind not in "fiub":
        raise refuse(f"array {name[:80]!r}", f"{len(data):,} bytes", f"numbers of shape {header.shape}")
    return header.arrange(np.frombuffer(data, header.dtype, offset=header.offset))


def numpy_block(name: str, array: NDArray[Any]) -> Block:
    """Return an array as a block, without loss."""
    code = f"{array.dtype.kind}{array.dtype.itemsize}"
    if code == "b1":
        return Block(name, code, array.shape, _BITS, np.packbits(array.reshape(-1)).tobytes())
    little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    return Block(name, code, array.shape, _RAW, little.tobytes())


# --- messages -----------------------------------------------------------------------------------------------


def message_record(message: Message, dim: int, precision: str = LOSSLESS) -> ArrayRecord:
    """Return a message as a record; ``dim`` is that of the embeddings."""
    return record_of(encode(message, precision, dim))


def record_message(record: ArrayRecord, kind: type[Any], task: str) -> Any:
    """Return the message of ``kind`` in a record, for the classifier with the fingerprint ``task``."""
    return decode(complete(blocks_of(record), AtMost(MOST_BYTES), {}), kind, task)


def state_record(arrays: Arrays) -> ArrayRecord:
    """Return the state of a method as a record."""
    return ArrayRecord({name: Array(np.asarray(array, order="C")) for name, array in arrays.items()})


def record_state(record: ArrayRecord) -> dict[str, NDArray[Any]]:
    """Return the state of a method in a record."""
    return {name: array_of_bytes(name, array.data).copy() for name, array in record.items()}
