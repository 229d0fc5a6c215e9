"""What a method sends in one sync, in closed form.

The class of a method says what its messages are made of: a static method ``messages(params, classes)`` that returns
the :class:`Content` of an upload and of a download. A global form has one, too: what a client would send and receive.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

from ..core.validate import choice
from .registry import describe

PRECISIONS = {"fp32": 4, "fp16": 2, "int8": 1}  # bytes per number of a vector
SINGLE = 4  # bytes of a number that is not part of a vector


@dataclass(frozen=True, slots=True)
class Content:
    """What a message is made of.

    ``vectors`` of D dimensions in the precision of the exchange; ``numbers`` in single precision, such as counts;
    ``entropies`` in at least half precision; ``flags`` of one bit. The last two are not in the paper's counts.
    """

    vectors: int
    numbers: int = 0
    entropies: int = 0
    flags: int = 0

    def counted(self, dim: int, precision: str) -> int:
        """Return the bytes of vectors and numbers."""
        return self.vectors * dim * PRECISIONS[precision] + SINGLE * self.numbers

    def whole(self, dim: int, precision: str) -> int:
        """Return all bytes: with entropies, flags and, for int8, a scale per vector."""
        scales = SINGLE * self.vectors if precision == "int8" else 0
        entropies = self.entropies * max(PRECISIONS[precision], 2)
        return self.counted(dim, precision) + scales + entropies + math.ceil(self.flags / 8)


Messages: TypeAlias = tuple[Content, Content]  # up and down


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes of one sync of one client: ``up`` and ``down`` as the paper counts, ``whole`` with what else is needed.

    The paper counts vectors; counts and biases, if a method sends them, are counted with them. ``whole`` adds
    entropies (2 bytes; 4 with fp32), a validity bit per vector, and with int8 a float32 scale per vector.
    """

    up: int
    down: int
    whole_up: int
    whole_down: int

    @property
    def vectors(self) -> int:
        """Up and down together as the paper counts."""
        return self.up + self.down

    @property
    def whole(self) -> int:
        """Up and down together, with entropies, validity and scales."""
        return self.whole_up + self.whole_down


def traffic_of(name: str, params: Any, classes: int, dim: int, precision: str = "fp16") -> Traffic | None:
    """Return the bytes of one sync; None for a method that sends nothing, or does not say what it sends.

    >>> from latte.methods.ristretto import RistrettoParams
    >>> traffic_of("ristretto", RistrettoParams(), 100, 512).vectors == 4 * 100 * 512 + 8 * 100 + 4
    True
    """
    choice("precision", precision, tuple(PRECISIONS))
    info = describe(name)
    if not (info.collaborative or info.shared) or not hasattr(info.kind, "messages"):
        return None
    up, down = info.kind.messages(params, classes)
    return Traffic(*(m.counted(dim, precision) for m in (up, down)), *(m.whole(dim, precision) for m in (up, down)))
