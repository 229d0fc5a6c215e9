"""The messages of many clients at once: arrays of one shape are decoded and encoded together."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from ..core.row_copies import Picked
from ..core.types import Reals
from ..errors import InputError
from .array_blocks import NEXT, ZERO, Base, Block, complete, decode, number_block, rounding_of_each
from .expected_arrays import Expected
from .rows import EncodedRows, RowFormat

Blocks: TypeAlias = tuple[Block, ...]
_FLOAT32 = np.dtype(np.float32)


class DecodedUploads(NamedTuple):
    """Uploads that were decoded together: their ``places`` in the batch, and one message with stacked arrays.

    ``roundings`` (m,) is how far encoding can have moved a vector of each upload.
    """

    places: list[int]
    message: Any
    roundings: Reals


# --- decode -------------------------------------------------------------------------------------------------


def decode_many(uploads: Sequence[Blocks | None], expected: Expected, kind: type[Any], task: str) -> Iterator[Any]:
    """Yield :class:`DecodedUploads` for each group of uploads with the same layout and all of their rows.

    Uploads that leave out rows or are not as expected belong to no group. Decode them one by one: the error of
    ``decode`` says what is wrong.
    """
    alike: dict[Any, list[int]] = {}
    for place, blocks in enumerate(uploads):
        if blocks is not None and not any(block.source for block in blocks):
            alike.setdefault(tuple(_layout(block) for block in blocks), []).append(place)
    for places in alike.values():
        try:
            complete(uploads[places[0]] or (), expected, {})  # what holds for one layout holds for all
            stacked = _stack([uploads[place] or () for place in places])
            yield DecodedUploads(places, decode(stacked, kind, task), rounding_of_each(stacked))
        except InputError:
            continue


def _layout(block: Block) -> tuple[object, ...]:
    return block.name, block.dtype, block.shape, block.coding, len(block.data)


def _stack(messages: Sequence[Blocks]) -> Blocks:
    """Return messages of one layout as one, with an axis more in front."""
    return tuple(_stack_one(column) for column in zip(*messages, strict=True))


def _stack_one(blocks: Sequence[Block]) -> Block:
    first = blocks[0]
    data = b"".join([block.data for block in blocks])
    shape = (len(blocks), *first.shape)
    if first.coding == "bits":  # each ends with a whole byte
        count = math.prod(first.shape)
        bits = np.unpackbits(np.frombuffer(data, np.uint8).reshape(len(blocks), -1), axis=1, count=count)
        data = np.packbits(bits.reshape(-1)).tobytes()
    return Block(first.name, first.dtype, shape, first.coding, data)


# --- encode -------------------------------------------------------------------------------------------------


def row_form(precision: str, dim: int) -> Any:
    """Return the function that encodes float32 vectors; None if the bytes in memory can be sent as they are."""
    form = RowFormat.of(precision, dim, _FLOAT32)
    return None if form.stride == 4 * dim and _FLOAT32.newbyteorder("<").isnative else form.encode


def external_blocks(
    picked: Picked, rows: NDArray[Any], precision: str, dim: int, bases: Sequence[Base | None]
) -> list[Blocks]:
    """Return what ``encode`` returns for each of m downloads of Latte; ``rows`` (m, C E, width) are encoded already."""
    encoded = rows.view(np.uint8)
    shape = picked.rows.shape[1:]
    form = ("vectors", "f4", (*shape, dim), precision)
    numbers = zip(
        number_blocks("entropy", picked.entropy, precision),
        number_blocks("valid", picked.valid, precision),
        strict=True,
    )
    valid = picked.valid.reshape(len(encoded), -1)
    return [(Block(*form, *_pack_rows(encoded[i], valid[i], bases[i])), *pair) for i, pair in enumerate(numbers)]


def number_blocks(name: str, arrays: NDArray[Any], precision: str) -> Iterator[Block]:
    """Yield a block for each of ``arrays`` (m, ...)."""
    return (number_block(name, array, precision) for array in arrays)


def _pack_rows(encoded: EncodedRows, valid: NDArray[np.bool_], base: Base | None) -> tuple[bytes, bytes]:
    """Return ``data`` and ``source`` of a block: the rows to send, and where the receiver takes each row from."""
    if base is None and valid.all():
        return cast(bytes, encoded.reshape(-1).data), b""  # msgspec takes a view like bytes, without a copy
    source = np.full(len(encoded), NEXT, np.int32) if base is None else base.find("vectors", encoded)
    source[~valid] = ZERO
    if (source == NEXT).all():
        return encoded.tobytes(), b""
    return encoded[source == NEXT].tobytes(), source.astype("<i4").tobytes()
