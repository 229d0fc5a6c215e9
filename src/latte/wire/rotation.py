"""A rotation of vectors after which no dimension stands out.

Signs that depend on the place, then a Walsh-Hadamard transform: every machine gets the same bits.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from .hashes import mix_bits


def rotate(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return ``rows`` (n, D) in a basis where no dimension stands out; lengths and angles stay.

    Signs that depend on the place, then a Walsh-Hadamard transform of the first P dimensions. If D is larger than P,
    the signs once more and a transform of the last P dimensions. P is the largest power of two up to D.

    >>> rotate(np.array([[1.0, 0.0, 0.0, 0.0]], np.float32)).tolist()
    [[0.5, 0.5, 0.5, 0.5]]
    """
    columns, signs = (
        np.array(rows.T, np.float32, order="C"),
        _signs(rows.shape[1])[:, None],
    )
    power = _power_below(len(columns))
    columns *= signs
    _transform(columns[:power])
    if power < len(columns):
        columns *= signs
        _transform(columns[-power:])
    return np.ascontiguousarray(columns.T)


def rotate_back(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the rows (n, D) whose rotation ``rows`` are."""
    columns, signs = np.array(rows.T, np.float32, order="C"), _signs(rows.shape[1])[:, None]
    power = _power_below(len(columns))
    if power < len(columns):
        _transform(columns[-power:])
        columns *= signs
    _transform(columns[:power])
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


def _power_below(dim: int) -> int:
    return 1 << (dim.bit_length() - 1)


@lru_cache(16)
def _signs(dim: int) -> NDArray[np.float32]:
    """Return 1 or -1 for each place (D,): by the highest bit of its mixed number, so that any program can make them."""
    high = mix_bits(np.arange(dim, dtype=np.uint64)) >> np.uint64(63)
    return np.where(high == 0, np.float32(1), np.float32(-1))
