"""Hashes of rows: short numbers by which two machines compare what they have."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray


def row_ids(encoded: NDArray[np.uint8], seed: int) -> NDArray[np.uint64]:
    """Return 64 bits (n,) that stand for the bytes of each row.

    Three multilinear hashes with keys from the receiver's own random ``seed``, so that nobody can choose two rows with
    the same id: two rows that differ agree in all three with a probability of at most 2⁻⁷⁸. The sums are whole numbers
    below 2⁵³, which a product of float64 numbers gives exactly.

    >>> rows = np.array([[1, 2], [1, 3], [1, 2]], np.uint8)
    >>> ids = row_ids(rows, seed=7)
    >>> ids[0] == ids[2], ids[0] == ids[1]
    (np.True_, np.False_)
    """
    n, stride = encoded.shape
    even = encoded if stride % 2 == 0 else np.pad(encoded, ((0, 0), (0, 1)))
    words = np.ascontiguousarray(even).view("<u2").astype(np.float64)
    ids = np.zeros(n, np.uint64)
    for column in (words @ _keys(seed, words.shape[1])).astype(np.uint64).T:
        ids = mix_bits(ids + column)
    return ids


@lru_cache(64)
def _keys(seed: int, words: int) -> NDArray[np.float64]:
    """Return the keys (words, 3) of three hashes."""
    bits = 37 - words.bit_length()  # 2^16 for a word and 2^bits for a key: the sum is below 2^53
    keys = np.random.Generator(np.random.Philox(seed)).integers(0, 2 ** min(bits, 26), (words, 3))
    return keys.astype(np.float64)


def mix_bits(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Spread every bit over all 64, one to one."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        numbers = (numbers ^ (numbers >> np.uint64(shift))) * np.uint64(factor)
    return numbers ^ (numbers >> np.uint64(31))
