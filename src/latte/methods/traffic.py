"""Cost of a method in closed form, as its class states it.

- ``messages(params, classes)``: the :class:`Content` of an upload and of a download. A global form has one, too: what a
  client would send and receive.
- ``macs(params, sizes)``: multiplications per image beyond encoder and head, by term, as the formulas are printed.
- ``own_macs(params, sizes)``: the same as this package computes, if it computes otherwise.
- ``server_macs(params, sizes, clients)``: those of a server for one sync of all clients.

All are static methods. Full memories are assumed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

from ..core.validate import at_least, choice
from .registry import describe

PRECISIONS = {"fp32": 4, "fp16": 2, "int8": 1}  # bytes per number of a vector
SINGLE = 4  # bytes of a number that is not part of a vector
LARGEST_SIZE = 100_000  # classes, dimensions or views: the methods are run at these sizes
Terms: TypeAlias = dict[str, int]


@dataclass(frozen=True, slots=True)
class CostShape:
    """The sizes that decide the cost: classes, dimensions, views of the methods that augment."""

    classes: int
    dim: int
    views: int = 64

    def __post_init__(self) -> None:
        for name, least in (("classes", 2), ("dim", 1), ("views", 1)):
            at_least(name, getattr(self, name), least, LARGEST_SIZE)

    @property
    def other_views(self) -> Terms:
        """The head on the other views."""
        return {"head on the other views": (self.views - 1) * self.classes * self.dim}


@dataclass(frozen=True, slots=True)
class Content:
    """What a message is made of.

    Parameters
    ----------
    vectors
        Of D dimensions, in the precision of the exchange.
    numbers
        In single precision, such as counts.
    entropies
        In at least half precision; not in the paper's counts.
    flags
        Of one bit; not in the paper's counts.
    matrices
        Of D x D numbers, in the precision of the exchange.
    """

    vectors: int
    numbers: int = 0
    entropies: int = 0
    flags: int = 0
    matrices: int = 0

    def counted(self, dim: int, precision: str) -> int:
        """Return the bytes of vectors, matrices and numbers."""
        return self._rows(dim) * dim * PRECISIONS[precision] + SINGLE * self.numbers

    def _rows(self, dim: int) -> int:
        return self.vectors + self.matrices * dim

    def whole(self, dim: int, precision: str) -> int:
        """Return all bytes: with entropies, flags and, for int8, a scale per vector."""
        scales = SINGLE * self._rows(dim) if precision == "int8" else 0
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

    >>> from latte.methods.ristretto.client import RistrettoParams
    >>> traffic_of("ristretto", RistrettoParams(), 100, 512).vectors == 4 * 100 * 512 + 8 * 100 + 4
    True
    """
    choice("precision", precision, tuple(PRECISIONS))
    info = describe(name)
    if not (info.collaborative or info.shared) or not hasattr(info.kind, "messages"):
        return None
    up, down = info.kind.messages(params, classes)
    return Traffic(*(m.counted(dim, precision) for m in (up, down)), *(m.whole(dim, precision) for m in (up, down)))
