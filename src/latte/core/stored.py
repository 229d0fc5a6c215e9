"""Reading back what ``state()`` returned.

Everything is checked before anything changes. Used slots come back bit for bit. The contents of a free slot have no
meaning: they are not read, and come back as a zero vector with the entropy 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..errors import refuse
from .types import Arrays, Mask, Reals, Vectors
from .validate import entropies, unit_rows


def require(arrays: Arrays, names: Iterable[str]) -> Arrays:
    """Return ``arrays``, which must be exactly those of ``names``."""
    if not isinstance(arrays, Mapping):
        raise refuse("arrays", type(arrays).__name__, "a mapping of names to arrays, as state() returns")
    present, expected = set(arrays), set(names)
    if expected - present:
        raise refuse("arrays", f"no {', '.join(sorted(expected - present))}", "what state() returns")
    if present - expected:
        raise refuse("arrays", f"also {', '.join(sorted(map(str, present - expected)))}", "what state() returns")
    return arrays


def exactly(name: str, value: object, dtype: DTypeLike, shape: tuple[int, ...]) -> NDArray[Any]:
    """Return ``value``, which must be an array of this dtype and shape."""
    if not isinstance(value, np.ndarray):
        raise refuse(name, type(value).__name__, "an array")
    if value.dtype != dtype or value.shape != shape:
        raise refuse(name, f"{value.dtype} of shape {value.shape}", f"{np.dtype(dtype)} of shape {shape}")
    return value


def positive(name: str, value: object, shape: tuple[int, ...]) -> Reals:
    """Return a copy of float64 numbers of this shape, which must be finite and above 0."""
    array = exactly(name, value, np.float64, shape)
    if not (np.isfinite(array) & (array > 0)).all():
        raise refuse(name, "a value that is not positive", "finite numbers above 0")
    return array.copy()


def stored_mask(name: str, value: object, shape: tuple[int, ...]) -> Mask:
    """Return a copy of a mask."""
    return exactly(name, value, np.bool_, shape).copy()


def stored_entropies(name: str, value: object, mask: Mask) -> Reals:
    """Return a copy of entropies that must be in [0, 1] up to rounding where ``mask``; 1 elsewhere."""
    array = exactly(name, value, np.float64, mask.shape)
    entropies(name, array, mask)
    result: Reals = np.where(mask, array, 1.0)
    return result


def stored_vectors(name: str, value: object, mask: Mask, dim: int) -> Vectors:
    """Return a copy of vectors (..., D) that must be of unit length where ``mask``; zero elsewhere."""
    vectors = finite_vectors(name, value, mask, dim)
    if mask.any():
        unit_rows(name, vectors[mask], dim)
    return vectors


def finite_vectors(name: str, value: object, mask: Mask, dim: int) -> Vectors:
    """Return a copy of vectors (..., D) of any length that must be finite where ``mask``; zero elsewhere."""
    array = exactly(name, value, np.float32, (*mask.shape, dim))
    result: Vectors = np.where(mask[..., None], array, np.float32(0))
    if not np.isfinite(result).all():
        raise refuse(name, "NaN or infinite values", "finite values in every slot that is in use")
    return result
