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

import math
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..core.validate import choice
from ..errors import refuse
from .rotation import rotate, rotate_back

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


class RowFormat(NamedTuple):
    """How the vectors of one array travel: ``dim`` numbers each, in a ``precision``; ``dtype`` is that in memory."""

    precision: str
    dim: int
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, precision: str, dim: int, dtype: np.dtype[Any]) -> RowFormat:
        """Return the format of vectors of ``dim`` numbers; an unknown precision is refused."""
        choice("precision", precision, PRECISIONS)
        return cls(precision, dim, dtype)

    @property
    def stride(self) -> int:
        """The bytes of one row."""
        return self._record.itemsize

    @property
    def _record(self) -> np.dtype[Any]:
        return _record_of(self)

    def encode(self, rows: NDArray[Any]) -> EncodedRows:
        """Return ``rows`` (n, D) as bytes (n, stride); a row that is not finite stays so."""
        if self.precision in _STEPS:
            return self._quantise(rows)
        numbers = np.ascontiguousarray(rows, self._record.base)
        return numbers.view(np.uint8).reshape(len(rows), self.stride)

    def decode(self, encoded: EncodedRows) -> NDArray[Any]:
        """Return the rows (n, D); whole numbers that encoding cannot have given are refused."""
        if self.precision in _STEPS:
            return self._restore(encoded)
        count = len(encoded)
        numbers = np.ascontiguousarray(encoded).reshape(-1).view(self._record.base).reshape(count, self.dim)
        return numbers.astype(self.dtype.newbyteorder("="))

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
        scale = _round_scales(_lengths(wide) / np.maximum(_lengths(whole), 1.0))  # keeps the length of the row
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
            rows: NDArray[Any] = rotate_back(values * scale[:, None])
        return rows.astype(self.dtype.newbyteorder("="), copy=False)


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


@lru_cache(256)
def _record_of(form: RowFormat) -> np.dtype[Any]:
    """Return one row as a dtype."""
    if form.precision in _STEPS:
        values = ("i1", form.dim) if form.precision == "int8" else ("u1", (form.dim + 1) // 2)
        return np.dtype([("scale", "<f4"), ("values", *values)])
    number = form.dtype.newbyteorder("<") if form.precision == LOSSLESS else np.dtype(_FLOATS[form.precision])
    return np.dtype((number, (form.dim,)))


def _round_scales(scale: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return scales rounded to 16 significant bits, so that encoding a decoded row gives the same scale again."""
    bits = scale.astype(np.float32).view(np.uint32)
    rounded: NDArray[np.float32] = ((bits + np.uint32(0x80)) & np.uint32(0xFFFFFF00)).view(np.float32)
    return rounded


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
