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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from .zero_shot import ZeroShot

Vectors: TypeAlias = NDArray[np.float32]
Reals: TypeAlias = NDArray[np.float64]
Mask: TypeAlias = NDArray[np.bool_]
Integers: TypeAlias = NDArray[np.int64]
State: TypeAlias = dict[str, NDArray[Any]]
Arrays: TypeAlias = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class Prediction:
    """The answer for one image.

    ``label`` is the argmax of ``scores`` (C,). What scores are depends on the method: logits for most; where
    ``normalised_by_sum``, votes or sums of probabilities. ``probabilities`` are comparable between methods: a method
    whose scores spread more than zero-shot logits states by how much, its ``temperature``. ``entropy`` is that of the
    *zero-shot* prediction, whatever the method, in [0, 1].

    >>> prediction = Prediction(1, np.array([0.0, np.log(3.0)]), 0.8, ("cat", "dog"))
    >>> prediction.classname, prediction.probabilities
    ('dog', array([0.25, 0.75]))
    """

    label: int
    scores: Reals
    entropy: float
    classnames: tuple[str, ...] = ()
    normalised_by_sum: bool = False
    temperature: float = 1.0

    @property
    def classname(self) -> str:
        """The name of the class that ``label`` numbers; the number as text where the method gave no names."""
        return self.classnames[self.label] if self.classnames else str(self.label)

    @property
    def probabilities(self) -> Reals:
        """The scores as probabilities (C,): the softmax of scores / temperature, or their shares of the sum."""
        if self.normalised_by_sum:
            weights = self.scores
        else:
            weights = np.exp((self.scores - self.scores.max()) / self.temperature)
        shares: Reals = weights / weights.sum()
        return shares


# --- messages ---------------------------------------------------------------------------------------------


class Message(Protocol):
    """What a method sends or receives: a frozen dataclass of arrays, with the fingerprint of the task it belongs to."""

    @property
    def task(self) -> str:
        """The fingerprint of the :class:`ZeroShot` that the message was made with."""


@dataclass(frozen=True, slots=True, eq=False)
class Prototypes:
    """What a client of Latte uploads: one unit vector per class it has seen.

    ``vectors`` (C, D), ``seen`` (C,). Rows that are not seen carry no meaning. The entropy of a prototype is a function
    of its vector and the text embeddings (B5), so the exchange calculates it.
    """

    vectors: Vectors
    seen: Mask
    task: str = ""

    def __repr__(self) -> str:
        return f"Prototypes({int(self.seen.sum())} of {len(self.seen)} classes, task={self.task[:8]!r})"


@dataclass(frozen=True, slots=True, eq=False)
class External:
    """What a client of Latte gets back: prototypes of other clients, most similar first.

    ``vectors`` (C, E, D), ``entropy`` (C, E), ``valid`` (C, E). E may be any number, also 0.
    """

    vectors: Vectors
    entropy: Reals
    valid: Mask
    task: str = ""

    @classmethod
    def empty(cls, zero_shot: ZeroShot, slots: int = 0) -> External:
        """Return an external memory that holds nothing."""
        shape = (zero_shot.classes, slots)
        vectors = np.zeros((*shape, zero_shot.dim), np.float32)
        return cls(vectors, np.ones(shape), np.zeros(shape, np.bool_), zero_shot.fingerprint)

    def __repr__(self) -> str:
        filled = f"{int(self.valid.sum())} prototypes for {len(self.valid)} classes"
        return f"External({filled}, task={self.task[:8]!r})"


# --- contracts --------------------------------------------------------------------------------------------

Sent = TypeVar("Sent", bound=Message, covariant=True)
Accepted = TypeVar("Accepted", bound=Message, contravariant=True)


@runtime_checkable
class Method(Protocol):
    """Turns the embeddings of one image into a prediction, and may remember."""

    def predict(self, views: ArrayLike, *, remember: bool = True) -> Prediction:
        """Predict from unit rows ``views``: (V, D), or (D,) for the plain view alone.

        The method remembers what it wants to remember. With ``remember=False`` the answer is the same and the method
        stays exactly as it was.
        """

    def reset(self) -> None:
        """Forget everything."""

    def state(self) -> State:
        """Return a copy of everything the method remembers, as plain arrays."""

    def load(self, arrays: Arrays) -> None:
        """Continue from what ``state()`` returned, bit for bit; refuse anything else, with nothing changed."""


@runtime_checkable
class Collaborative(Method, Protocol[Sent, Accepted]):
    """A method that can summarise what it remembers and accept what others remember."""

    def summary(self) -> Sent:
        """Summarise what the method remembers, in its own kind of upload."""

    def receive(self, download: Accepted) -> None:
        """Take over what the exchange answered; it replaces what came before."""


@runtime_checkable
class Exchange(Protocol[Accepted, Sent]):
    """Where summaries go and come from. A network, a file or Flower carries the same calls.

    An exchange serves one task and refuses what was made for another. Several threads may call at once. The name of a
    client is any text of 1 to 1024 bytes in UTF-8.
    """

    @property
    def task(self) -> str:
        """The fingerprint of the task that the exchange serves."""

    def push(self, client: str, upload: Accepted) -> None:
        """Store the latest summary of ``client``; joins it if it is new."""

    def pull(self, client: str) -> Sent:
        """Return what ``client`` gets from the others."""

    def pull_many(self, clients: Sequence[str]) -> Sequence[Sent]:
        """Return what each of ``clients`` gets: the same as that many pulls at one moment."""


@runtime_checkable
class Traced(Protocol):
    """An exchange that can say whose summaries a client gets."""

    @property
    def clients(self) -> tuple[str, ...]:
        """The names of the clients, in the order of the columns of what :meth:`pull_traced` returns."""

    def pull_traced(self, clients: Sequence[str]) -> tuple[list[Any], NDArray[Any]]:
        """Return the downloads, and how much of each comes from which client: (len(clients), N)."""
