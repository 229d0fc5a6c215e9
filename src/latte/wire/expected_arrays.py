"""The arrays that a receiver expects: their dtypes and shapes are checked before anything is allocated."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ..core.types import Message, array_fields
from ..errors import refuse

DTYPE_CODES = ("b1", "f4", "f8", "i4", "i8", "u1", "u4", "u8")  # of the arrays that can travel


def code_of(dtype: np.dtype[Any]) -> str:
    """Return the code of a dtype in a block; refuse a dtype that cannot travel."""
    code = f"{dtype.kind}{dtype.itemsize}"
    if code not in DTYPE_CODES:
        raise refuse("message", f"an array of {dtype}", "one of " + ", ".join(DTYPE_CODES))
    return code


class Expected(Protocol):
    """What a receiver expects of its arrays."""

    def check(self, name: str, dtype: str, shape: tuple[int, ...]) -> None:
        """Refuse an array whose dtype or shape is not expected."""


@dataclass(frozen=True, slots=True)
class SameShapes:
    """The arrays are those of an example: the uploads of all clients have the same shapes."""

    arrays: Mapping[str, tuple[str, tuple[int, ...]]]

    @classmethod
    def of(cls, example: Message) -> SameShapes:
        """Return what is expected of messages like ``example``."""
        arrays = {name: getattr(example, name) for name in array_fields(type(example))}
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
