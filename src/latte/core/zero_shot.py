"""The zero-shot classifier that every client shares."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import refuse
from .types import Integers, Reals, Vectors
from .validate import LARGEST_FACTOR, factor, first_twice, precise_unit_rows, unit_rows

AnyArray = TypeVar("AnyArray", bound=NDArray[Any])


@dataclass(frozen=True, eq=False, init=False, repr=False)
class ZeroShot:
    """A text embedding per class, and the model's logit scale.

    >>> import numpy as np
    >>> zero_shot = ZeroShot(np.eye(2), ("cat", "dog"))
    >>> zero_shot.logits(np.array([0.0, 1.0], np.float32))
    array([  0., 100.])

    Two clients may exchange summaries only when their ``fingerprint`` is the same. Nothing in it can be changed, so a
    copy is the object itself.
    """

    text: Vectors  # (C, D) unit rows
    classnames: tuple[str, ...]
    scale: float
    precise_text: Reals = field(init=False)  # (C, D) the same in float64, not rounded to float32

    def __init__(self, text: ArrayLike, classnames: Iterable[str], scale: float = 100.0) -> None:
        object.__setattr__(self, "text", _read_only(unit_rows("text", text)))
        object.__setattr__(self, "precise_text", _read_only(precise_unit_rows("text", text)))
        object.__setattr__(self, "classnames", _checked_names(classnames, len(self.text)))
        object.__setattr__(self, "scale", factor("scale", scale, least=1 / LARGEST_FACTOR))

    def __repr__(self) -> str:
        names = ", ".join(self.classnames[:3]) + (", …" if self.classes > 3 else "")
        return f"ZeroShot({names}: C={self.classes}, D={self.dim}, scale={self.scale:g}, {self.fingerprint[:8]})"

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __getstate__(self) -> dict[str, Any]:
        names = ("text", "classnames", "scale", "precise_text")
        return {name: getattr(self, name) for name in names}

    def __setstate__(self, values: dict[str, Any]) -> None:
        arrays = {name: _read_only(values[name]) for name in ("text", "precise_text")}  # unpickled, they are writeable
        vars(self).update({**values, **arrays})

    @property
    def classes(self) -> int:
        """C."""
        return len(self.classnames)

    @property
    def dim(self) -> int:
        """D."""
        return int(self.text.shape[1])

    @cached_property
    def fingerprint(self) -> str:
        """Sha256 of names, scale and text: what two clients compare before they exchange anything."""
        names = json.dumps([list(self.classnames), self.scale], ensure_ascii=True).encode()
        return hashlib.sha256(names + self.text.astype("<f4").tobytes()).hexdigest()

    def logits(self, vectors: Vectors) -> Reals:
        """Return scale · T f for unit ``vectors`` (..., D), as (..., C).

        In float64: the scale multiplies rounding by a hundred, and entropies decide which items stay in a memory.
        """
        wide = vectors.astype(np.float64, copy=False)
        logits: Reals = self.scaled.dot(wide) if wide.ndim == 1 else wide @ self.scaled.T
        return logits

    @cached_property
    def scaled(self) -> Reals:
        """Scale · T (C, D) in float64."""
        return _read_only(self.scale * self.text.astype(np.float64))

    @cached_property
    def precise_scaled(self) -> Reals:
        """The same for texts that were not rounded to float32."""
        return _read_only(self.scale * self.precise_text)

    @cached_property
    def distances(self) -> Reals:
        """The distance between every two text embeddings (C, C)."""
        text = self.text.astype(np.float64)
        return _read_only(np.sqrt(np.maximum(2.0 - 2.0 * (text @ text.T), 0.0)))  # unit rows


def places_of(classnames: Sequence[str], earlier: Sequence[str]) -> Integers:
    """Return where each class (C,) was in the earlier version of a task, -1 if it is new.

    >>> places_of(["cat", "fox", "dog"], ["dog", "cat"])
    array([ 1, -1,  0])
    """
    known = {name: place for place, name in enumerate(earlier)}
    return np.array([known.get(name, -1) for name in classnames], np.int64)


def _checked_names(names: Any, classes: int) -> tuple[str, ...]:
    if isinstance(names, (str, bytes)):
        raise refuse("classnames", f"the text {names!r}", f"{classes} names, such as a list")
    checked = tuple(names)
    if classes < 2:
        raise refuse("text", f"C = {classes}", "C >= 2: with one class there is nothing to predict")
    if len(checked) != classes or not all(isinstance(name, str) for name in checked):
        raise refuse("classnames", f"{len(checked)} names", f"{classes} strings, one per row of text")
    if (twice := first_twice(checked)) is not None:
        raise refuse("classnames", f"{twice!r} twice", "every class name once")
    return checked


def _read_only(array: AnyArray) -> AnyArray:
    array.flags.writeable = False
    return array
