"""What crosses a boundary: the values, the protocols, and the shape letters.

Shape letters, used everywhere in the code:

====== =========================================================
letter meaning
====== =========================================================
N      clients
C      classes
D      dimensions of an embedding
S      slots of the local memory, per class (the paper's k_l)
E      slots of the external memory, per class (the paper's k_e)
V      views of one image; view 0 is the plain image
====== =========================================================

Vectors are float32, entropies float64 in [0, 1] (divided by ln C, decision B6), validity a bool mask.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Vectors: TypeAlias = NDArray[np.float32]
Reals: TypeAlias = NDArray[np.float64]
Mask: TypeAlias = NDArray[np.bool_]
Integers: TypeAlias = NDArray[np.int64]
State: TypeAlias = dict[str, NDArray[Any]]
Arrays: TypeAlias = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class Prediction:
    """The answer for one image.

    ``label`` is the argmax of ``logits`` (C,); ``entropy`` is that of the *zero-shot* prediction, in [0, 1].
    """

    label: int
    logits: Reals
    entropy: float


@dataclass(frozen=True, slots=True, eq=False)
class Prototypes:
    """What a client uploads: one unit vector per class it has seen.

    ``vectors`` (C, D), ``entropy`` (C,), ``seen`` (C,). Rows that are not seen carry no meaning.
    """

    vectors: Vectors
    entropy: Reals
    seen: Mask


@dataclass(frozen=True, slots=True, eq=False)
class External:
    """What a client gets back: prototypes of other clients, most similar first.

    ``vectors`` (C, E, D), ``entropy`` (C, E), ``valid`` (C, E). E may be any number, also 0.
    """

    vectors: Vectors
    entropy: Reals
    valid: Mask

    @classmethod
    def empty(cls, classes: int, dim: int, slots: int = 0) -> External:
        """Return an external memory that holds nothing."""
        shape = (classes, slots)
        return cls(np.zeros((*shape, dim), np.float32), np.ones(shape), np.zeros(shape, np.bool_))


@runtime_checkable
class Method(Protocol):
    """Turns the embeddings of one image into a prediction, and may remember."""

    def predict(self, views: Any) -> Prediction:
        """Predict from ``views`` (V, D), unit rows, and remember what the method wants to remember."""

    def reset(self) -> None:
        """Forget everything."""

    def state(self) -> State:
        """Return a copy of everything the method remembers, as plain arrays."""

    def load(self, arrays: Arrays) -> None:
        """Continue from what ``state()`` returned, bit for bit; refuse anything else, with nothing changed."""


@runtime_checkable
class Collaborative(Method, Protocol):
    """A method that can summarise what it remembers and accept what others remember."""

    def prototypes(self) -> Prototypes:
        """Summarise the local memory, one prototype per class."""

    def receive(self, external: External) -> None:
        """Replace the external memory."""


@runtime_checkable
class Exchange(Protocol):
    """Where prototypes go and come from. A network, a file or Flower carries the same two calls.

    Several threads may call at once. The name of a client is any text of 1 to 1024 bytes in UTF-8.
    """

    def push(self, client: str, prototypes: Prototypes) -> None:
        """Store the latest prototypes of ``client``; joins it if it is new."""

    def pull(self, client: str) -> External:
        """Return, per class, the prototypes of the clients most similar to ``client``."""
