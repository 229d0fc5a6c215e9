"""Vectors as bytes, row by row, in five precisions.

============ ======================== ====================================================================
precision    bytes of a row            what comes back
============ ======================== ====================================================================
``exact``    8 D or 4 D                the same bits
``fp32``     4 D                       rounded to single precision
``fp16``     2 D                       rounded to half precision
``int8``     D + 4                     whole numbers from -127 to 127 times a scale of the row
``int4``     D / 2 + 4                 whole numbers from -7 to 7 times a scale of the row
============ ======================== ====================================================================

The scale of a row keeps its length: a unit row comes back as a unit row, whatever its precision. What was decoded can
be encoded again in the same precision without further loss.

A row is rotated (:func:`.rotation.rotate`) before it becomes whole numbers. A few dimensions of CLIP's embeddings are
many times as large as the others; without the rotation they would set the scale, and leave the others almost no steps.
"""

from __future__ import annotations

import hashlib
import math
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..core.validate import choice
from ..errors import refuse

PRECISIONS = ("exact", "fp32", "fp16", "int8", "int4")
LOSSLESS = "exact"
_STEPS = {"int8": 127, "int4": 7}  # the largest whole number of a row
# Numbers above one of these shares of the largest number are cut. The few that are cut have a larger error then, all
# others a smaller one. A row that was cut before is not cut again: without a cut, its whole numbers are exact.
_LIMITS = {"int8": (1.0,), "int4": (1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65)}
_CLEAR = 1e-9  # by which a cut has to be better than none
_DEVIATION = {"int8": 1 / np.sqrt(12.0), "int4": 0.333}  # of what rounding adds, in steps
_WIDEST = 4.0  # times the mean size of a row's numbers, in int4: see RowFormat.widest_step
_LEAST = 1e-30  # a row without a larger number is zero: single precision cannot divide by it
_FLOATS = {"fp32": "<f4", "fp16": "<f2"}

EncodedRows: TypeAlias = NDArray[np.uint8]  # (n, bytes of a row)


def row_ids(encoded: NDArray[np.uint8], seed: int) -> NDArray[np.uint64]:
    """Return 64 bits (n,) that stand for the bytes of each row: the first of SHA-256 of the ``seed`` and the row.

    The seed, eight bytes, is the receiver's own random number, so that nobody can choose two rows with the same id.

    >>> rows = np.array([[1, 2], [1, 3], [1, 2]], np.uint8)
    >>> row_ids(rows, seed=7).astype("<u8").tobytes().hex(" ", 8)
    'fffbeadacebcd695 57ff74203d068403 fffbeadacebcd695'
    """
    begun, ids = hashlib.sha256(seed.to_bytes(8, "little")), []
    for row in np.ascontiguousarray(encoded):
        digest = begun.copy()
        digest.update(row)
        ids.append(digest.digest()[:8])
    return np.frombuffer(b"".join(ids), "<u8").astype(np.uint64)


def rotate(rows: NDArray[np.float32], back: bool = False) -> NDArray[np.float32]:
    """Return ``rows`` (n, D) in a basis where no dimension stands out, or ``back`` from it; lengths and angles stay.

    Signs that depend on the place, then a Walsh-Hadamard transform of the first P dimensions. If D is larger than P,
    the signs once more and a transform of the last P dimensions. P is the largest power of two up to D.

    >>> rotate(np.array([[1.0, 0.0, 0.0, 0.0]], np.float32)).tolist()
    [[0.5, 0.5, 0.5, 0.5]]
    """
    columns, dim = np.array(rows.T, np.float32, order="C"), rows.shape[1]
    signs, power = _signs(dim)[:, None], 1 << (dim.bit_length() - 1)
    parts = [slice(power)] if power == dim else [slice(power), slice(dim - power, dim)]
    for part in reversed(parts) if back else parts:
        if not back:
            columns *= signs
        _transform(columns[part])
        if back:
            columns *= signs
    return np.ascontiguousarray(columns.T)


def _transform(columns: NDArray[np.float32]) -> None:
    """Multiply (P, n) in place by the Walsh-Hadamard matrix over √P, which is its own inverse.

    Only sums of two numbers, in a fixed order: every machine gets the same bits.
    """
    half, (power, n) = 1, columns.shape
    source, target = columns, np.empty_like(columns)
    while half < power:
        shape = power // (2 * half), 2, half * n
        pairs, results = source.reshape(shape), target.reshape(shape)
        np.add(pairs[:, 0], pairs[:, 1], out=results[:, 0])
        np.subtract(pairs[:, 0], pairs[:, 1], out=results[:, 1])
        source, target = target, source
        half *= 2
    np.multiply(source, np.float32(1 / np.sqrt(power)), out=columns)


@lru_cache(16)
def _signs(dim: int) -> NDArray[np.float32]:
    """Return 1 or -1 for each place (D,): by the highest bit of its mixed number, so that any program can make them."""
    mixed = np.arange(dim, dtype=np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    return np.where(mixed >> np.uint64(63) == 0, np.float32(1), np.float32(-1))


class RowFormat:
    """How the vectors of one array travel: ``dim`` numbers each, in a ``precision``; ``dtype`` is that in memory.

    ``stride`` is the bytes of one row. :meth:`of` keeps the formats that were used last.
    """

    def __init__(self, precision: str, dim: int, dtype: np.dtype[Any]) -> None:
        choice("precision", precision, PRECISIONS)
        self.precision, self.dim, self.dtype = precision, dim, dtype
        if precision in _STEPS:
            values = ("i1", dim) if precision == "int8" else ("u1", (dim + 1) // 2)
            self._record = np.dtype([("scale", "<f4"), ("values", *values)])  # one row
        else:
            number = dtype.newbyteorder("<") if precision == LOSSLESS else np.dtype(_FLOATS[precision])
            self._record = np.dtype((number, (dim,)))
        self.stride, self._native = self._record.itemsize, dtype.newbyteorder("=")

    @staticmethod
    @lru_cache(256)
    def of(precision: str, dim: int, dtype: np.dtype[Any]) -> RowFormat:
        """Return the format of vectors of ``dim`` numbers; an unknown precision is refused."""
        return RowFormat(precision, dim, dtype)

    def encode(self, rows: NDArray[Any]) -> EncodedRows:
        """Return ``rows`` (n, D) as bytes (n, stride); a row that is not finite stays so."""
        if self.precision in _STEPS:
            return self._quantise(rows)
        return np.ascontiguousarray(rows, self._record.base).view(np.uint8).reshape(len(rows), self.stride)

    def decode(self, encoded: EncodedRows) -> NDArray[Any]:
        """Return the rows (n, D); whole numbers that encoding cannot have given are refused."""
        if self.precision in _STEPS:
            return self._restore(encoded)
        return np.ascontiguousarray(encoded).view(self._record.base).astype(self._native)

    def roundings(self, encoded: NDArray[np.uint8]) -> NDArray[np.float64]:
        """Return how far encoding can have moved rows (..., stride) of length 1 in the direction of another vector.

        A whole number is off by at most half a step, evenly spread: a standard deviation of 1/√12 of a step in every
        direction. Six of these are not exceeded once in 10⁸ rows. In ``int4``, where the largest numbers may be cut, an
        error has a standard deviation of up to 0.32 of a step.

        A step is the scale of the row, and counts up to :attr:`widest_step`.
        """
        rows = encoded.shape[:-1]
        if self.precision not in _STEPS:
            return np.full(rows, {LOSSLESS: 0.0, "fp32": 2.0**-24, "fp16": 2.0**-11}[self.precision])
        scale = np.ascontiguousarray(encoded).reshape(-1).view(self._record)["scale"].astype(np.float64).reshape(rows)
        step = np.where(np.isfinite(scale), np.minimum(np.abs(scale), self.widest_step), 0.0)  # not finite: refused
        roundings: NDArray[np.float64] = 6 * _DEVIATION[self.precision] * step
        return roundings

    @property
    def widest_step(self) -> float:
        """The largest step that is allowed for.

        Any unit row may be honest, and one with a single number has steps of 1/127 or 1/7; a row with wider ones is
        refused, because it is no unit row. In ``int8`` that is little enough. In ``int4`` it would be a gift to whoever
        enlarges one number of a row for the sake of its steps, so that what counts is a row whose largest number, cut
        as it is, has four times their mean size 1/√D. On PACS the median is 2.4 and the largest 2.8. After the rotation
        numbers are spread like normal ones, of which the largest are cut by up to a third: of 100,000 such rows none
        exceeds four times with D = 512, one with 256, and 35 with 64, the largest with 4.9. These are not refused for
        it either: five standard deviations of their errors are allowed for, where others have six.
        """
        narrow = _WIDEST / math.sqrt(self.dim) if self.precision == "int4" else 1.0
        return min(narrow, 1.0) / _STEPS[self.precision]

    # --- whole numbers ------------------------------------------------------------------------------------

    def _quantise(self, rows: NDArray[Any]) -> EncodedRows:
        steps, finite = _STEPS[self.precision], np.isfinite(rows).all(axis=1)
        wide = rotate(np.where(finite[:, None], rows, 0.0).astype(np.float32, copy=False))
        largest = np.abs(wide).max(axis=1, initial=0.0)
        factor = np.divide(steps, largest, out=np.zeros_like(largest), where=largest > _LEAST)
        whole = _nearest(wide, factor, steps, _LIMITS[self.precision])
        record = np.zeros(len(rows), self._record)
        scale = _lengths(wide) / np.maximum(_lengths(whole), 1.0)  # keeps the length of the row
        bits = scale.astype(np.float32).view(np.uint32)  # of which 16 count, so that a decoded row gives the same again
        scale = ((bits + np.uint32(0x80)) & np.uint32(0xFFFFFF00)).view(np.float32)
        record["scale"] = np.where(finite, np.where(factor > 0, scale, 0.0), np.nan)
        values = whole.astype(np.int8)
        record["values"] = values if self.precision == "int8" else _pack_nibbles(values)
        return record.view(np.uint8).reshape(len(rows), self.stride)

    def _restore(self, encoded: EncodedRows) -> NDArray[Any]:
        record = np.ascontiguousarray(encoded).reshape(-1).view(self._record)
        scale = record["scale"]
        values = record["values"] if self.precision == "int8" else _unpack_nibbles(record["values"], self.dim)
        largest = np.abs(values.astype(np.int16)).max(axis=1, initial=0)
        if (largest[np.isfinite(scale) & (scale != 0)] != _STEPS[self.precision]).any():
            raise refuse("a row", "whole numbers that do not use their range", "what encoding a row gives")
        with np.errstate(invalid="ignore", over="ignore"):  # 0 times infinity: what is not finite is refused later
            rows: NDArray[Any] = rotate(values * scale[:, None], back=True)
        return rows.astype(self._native, copy=False)


def _nearest(
    rows: NDArray[np.float32], factor: NDArray[np.float32], steps: int, limits: tuple[float, ...]
) -> NDArray[np.float32]:
    """Return the whole numbers (n, D) nearest in direction to each row, cut at one of the ``limits``."""
    best, highest = np.zeros_like(rows), np.full(len(rows), -1.0)
    for limit in limits:
        whole = np.rint(rows * (factor / np.float32(limit))[:, None]).clip(-steps, steps)
        cosines = np.einsum("nd,nd->n", rows, whole, dtype=np.float64) / np.maximum(_lengths(whole), 1.0)
        better = cosines > highest if limit == 1.0 else cosines > highest * (1 + _CLEAR)
        best[better], highest[better] = whole[better], cosines[better]
    return best


def _lengths(rows: NDArray[Any]) -> NDArray[np.float64]:
    wide = rows.astype(np.float64)
    lengths: NDArray[np.float64] = np.sqrt(np.einsum("nd,nd->n", wide, wide))
    return lengths


def _pack_nibbles(values: NDArray[np.int8]) -> NDArray[np.uint8]:
    """Return whole numbers from -7 to 7 (n, D) as half a byte each, the first in the low half."""
    even = np.zeros((len(values), values.shape[1] + values.shape[1] % 2), np.uint8)
    even[:, : values.shape[1]] = values + 8
    packed: NDArray[np.uint8] = even[:, ::2] | (even[:, 1::2] << 4)
    return packed


def _unpack_nibbles(packed: NDArray[np.uint8], dim: int) -> NDArray[np.int8]:
    values = np.empty((len(packed), 2 * packed.shape[1]), np.int8)
    values[:, ::2] = packed & 15
    values[:, 1::2] = packed >> 4
    return values[:, :dim] - np.int8(8)
