"""Hashes of rows: short numbers by which two machines compare what they have."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray


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


def mix_bits(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Spread every bit over all 64, one to one."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        numbers = (numbers ^ (numbers >> np.uint64(shift))) * np.uint64(factor)
    return numbers ^ (numbers >> np.uint64(31))
