"""The types that a kernel is compiled for, from the annotations of its parameters. Imported only where numba is."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, get_args, get_type_hints

from numba import types

from ...core.types import Integers, Mask, Reals, Vectors
from .array_types import READ_ONLY

_tuples: Any = types.BaseTuple  # it has no annotations
_ELEMENTS = {Integers: types.int64, Mask: types.boolean, Reals: types.float64, Vectors: types.float32}
_NUMBERS = {bool: types.boolean, float: types.float64, int: types.int64}


def signature_of(loop: Callable[..., Any]) -> tuple[Any, ...]:
    """Return the numba types of the parameters of a function.

    >>> from .loops_classify import squares
    >>> signature_of(squares.py_func)[2]
    Array(float32, 1, 'C', False, aligned=True)
    """
    hints = get_type_hints(loop, include_extras=True)
    return tuple(_type_of(hints[name]) for name in inspect.signature(loop).parameters)


def _type_of(hint: Any) -> Any:
    if hint in _NUMBERS:
        return _NUMBERS[hint]
    if isinstance(hint, type) and issubclass(hint, tuple):  # a NamedTuple
        fields = [_type_of(field) for field in get_type_hints(hint, include_extras=True).values()]
        return _tuples.from_types(fields, hint)
    array, axes, *flags = get_args(hint)
    return types.Array(_ELEMENTS[array], axes, "C", readonly=READ_ONLY in flags)
