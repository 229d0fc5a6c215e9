"""The rules of every state: the content of free slots does not matter, and a damaged state is refused as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ..core.types import Arrays, Mask, State
from .material import refuses, same

MASKS = ("valid", "seen")


@runtime_checkable
class Stateful(Protocol):
    """What can be saved and restored."""

    def state(self) -> State:
        """Return a copy of everything, as arrays."""

    def load(self, arrays: Arrays) -> None:
        """Continue from what ``state()`` returned."""


def check_refusals(stateful: Stateful, good: State) -> None:
    """Fail unless damaged versions of a state are refused and change nothing."""
    before = stateful.state()
    for what, arrays in damaged(good):
        refuses(partial(stateful.load, arrays), f"a state with {what}")
        assert same(before, stateful.state()), f"after a state with {what} everything must be exactly as before"


def damaged(good: State) -> Iterator[tuple[str, State]]:
    """Yield states that ``state()`` cannot have returned, each with what is wrong."""
    yield "one array more", {**good, "one more": np.zeros(3)}
    for name, array in good.items():
        yield f"no {name}", {key: value for key, value in good.items() if key != name}
        yield f"complex {name}", {**good, name: array.astype(np.complex128)}
        yield f"one axis more in {name}", {**good, name: array[None]}
        used = in_use(good, name)
        if array.dtype.kind == "f" and used.any():
            yield f"NaN in {name}", {**good, name: overwritten(array, used, np.nan)}
            yield f"infinite values in {name}", {**good, name: overwritten(array, used, np.inf)}


def with_rubbish(good: State) -> State:
    """Return a state with NaN in every free slot.

    The mask of an array is called ``valid`` or ``seen`` and has the array's prefix: ``x.valid`` beside ``x.vectors``.
    """
    return {
        name: overwritten(array, ~in_use(good, name), np.nan) if array.dtype.kind == "f" else array
        for name, array in good.items()
    }


def in_use(state: State, name: str) -> Mask:
    """Return which entries of an array mean something: all, or where the mask beside it says so."""
    array, prefix = state[name], name.rpartition(".")[0]
    for mask in (state.get(f"{prefix}.{kind}" if prefix else kind) for kind in MASKS):
        if mask is not None and array.shape[: mask.ndim] == mask.shape:
            wide: Mask = np.broadcast_to(mask.reshape(mask.shape + (1,) * (array.ndim - mask.ndim)), array.shape)
            return wide
    return np.ones(array.shape, np.bool_)


def overwritten(array: NDArray[Any], where: Mask, value: float) -> NDArray[Any]:
    """Return a copy with ``value`` in some places."""
    return np.where(where, array.dtype.type(value), array)
