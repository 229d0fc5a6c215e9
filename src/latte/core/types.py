"""What crosses a boundary: the values, the messages, and the shape letters.

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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from .zero_shot import ZeroShot

Vectors: TypeAlias = NDArray[np.float32]
Reals: TypeAlias = NDArray[np.float64]
Mask: TypeAlias = NDArray[np.bool_]
Integers: TypeAlias = NDArray[np.int64]
Rounding: TypeAlias = float | Reals  # how far a way can have moved vectors of unit length: all, or each row
State: TypeAlias = dict[str, NDArray[Any]]
Arrays: TypeAlias = Mapping[str, NDArray[Any]]


class Deferred:
    """A value in a frozen dataclass that may be set as a function, which is called when the value is first read."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._place = f"_{name}"

    def __get__(self, instance: object | None, owner: type) -> Any:
        if instance is None:  # a dataclass looks for the default of a field
            raise AttributeError(self._place)
        values = vars(instance)
        if callable(values[self._place]):
            values[self._place] = values[self._place]()
        return values[self._place]

    def __set__(self, instance: object, value: object) -> None:
        vars(instance)[self._place] = value


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Prediction:
    """The answer for one image.

    ``entropy`` and ``temperature`` may be functions, which are called when the value is first read (or the prediction
    is copied or pickled).

    Parameters
    ----------
    label
        The argmax of ``scores``.
    scores
        (C,): logits, for most methods.
    entropy
        That of the *zero-shot* prediction, whatever the method, in [0, 1].
    classnames
        The names of the classes.
    normalised_by_sum
        Whether scores are votes or sums of probabilities.
    temperature
        By how much scores spread more than zero-shot logits: it makes ``probabilities`` comparable between methods.
    near_copy
        Whether the method left the image out of its memory, because its memory has almost the same image.
    learnt
        The soft label (C,) with which the image was added to what the method knows: ``correct`` wants it back, should
        the true class become known. None if there is none to take out again.

    >>> prediction = Prediction(1, np.array([0.0, np.log(3.0)]), 0.8, ("cat", "dog"))
    >>> prediction
    Prediction(label=1, classname='dog', probability=0.75, entropy=0.8, C=2)
    >>> prediction.probabilities
    array([0.25, 0.75])
    """

    label: int
    scores: Reals
    entropy: Deferred = Deferred()
    classnames: tuple[str, ...] = ()
    normalised_by_sum: bool = False
    temperature: Deferred = Deferred()
    near_copy: bool = False
    learnt: Deferred = Deferred()

    def __init__(
        self,
        label: int,
        scores: Reals,
        entropy: float | Callable[[], float],
        classnames: tuple[str, ...] = (),
        normalised_by_sum: bool = False,
        temperature: float | Callable[[], float] = 1.0,
        near_copy: bool = False,
        learnt: Callable[[], Reals] | None = None,
    ) -> None:  # the generated one sets fields singly: 2 of the 21 microseconds of a prediction among 10 classes
        vars(self).update(
            label=label,
            scores=scores,
            _entropy=entropy,
            classnames=classnames,
            normalised_by_sum=normalised_by_sum,
            _temperature=temperature,
            near_copy=near_copy,
            _learnt=learnt,
        )

    def __repr__(self) -> str:
        numbers = f"probability={self.probability:.3g}, entropy={self.entropy:.3g}, C={len(self.scores)}"
        return f"Prediction(label={self.label}, classname={self.classname!r}, {numbers})"

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_entropy": self.entropy, "_temperature": self.temperature, "_learnt": self.learnt}

    @property
    def classname(self) -> str:
        """The name of the class that ``label`` numbers; the number as text if the method gave no names."""
        return self.classnames[self.label] if self.classnames else str(self.label)

    @property
    def probability(self) -> float:
        """The probability of the label, without the cost of the others."""
        if self.normalised_by_sum:
            return float(self.probabilities[self.label])
        scores = self.scores
        return float(1 / np.add.reduce(np.exp((scores - scores[self.label]) / self.temperature)))

    @property
    def probabilities(self) -> Reals:
        """The scores as probabilities (C,): the softmax of scores / temperature, or their shares of the sum."""
        if self.normalised_by_sum:
            weights = np.maximum(self.scores, 0.0)  # of a class that cannot be there, -inf
        else:
            weights = np.exp((self.scores - self.scores.max()) / self.temperature)
        shares: Reals = weights / weights.sum()
        return shares


@dataclass(frozen=True, slots=True)
class MemoryFill:
    """How much a method remembers: ``items`` of images in ``slots`` slots, of ``classes`` different classes.

    A method without ``slots`` (None) adds images up, and always has room.
    """

    items: int
    slots: int | None
    classes: int


# --- messages ---------------------------------------------------------------------------------------------


class Message(Protocol):
    """What a method sends or receives: a frozen dataclass of arrays, with the fingerprint of the task it belongs to.

    The class variable ``vector_fields`` names the arrays (..., D) of embeddings: a transport may round them, and leave
    out rows that the receiver has already. Without it, they are the arrays of at least two axes whose last axis is D.
    Of the arrays that a message may do without (their default is None), it is always those.
    """

    @property
    def task(self) -> str:
        """The fingerprint of the :class:`ZeroShot` that the message was made with."""


def array_fields(message: Any) -> tuple[str, ...]:
    """Return the fields of a kind of message that are arrays, all but the task; of a message, those that it has.

    A field whose default is None is an array that a message may do without: see :func:`optional_fields`.

    >>> array_fields(Prototypes)
    ('vectors', 'seen')
    >>> array_fields(External(np.zeros((2, 0, 3)), np.zeros((2, 0)), np.zeros((2, 0)), bias=np.zeros(2)))
    ('vectors', 'entropy', 'valid', 'bias')
    """
    more = () if isinstance(message, type) else [n for n in optional_fields(message) if getattr(message, n) is not None]
    return (*(f.name for f in fields(message) if f.name != "task" and f.default is not None), *more)


def optional_fields(kind: Any) -> tuple[str, ...]:
    """Return the arrays that a kind of message may do without.

    >>> optional_fields(External)
    ('weights', 'bias')
    """
    return tuple(field.name for field in fields(kind) if field.default is None)


@dataclass(frozen=True, slots=True, eq=False)
class Prototypes:
    """What a client of Latte uploads: one unit vector per class it has seen.

    ``vectors`` (C, D), ``seen`` (C,). Rows that are not seen carry no meaning. The entropy of a prototype is a function
    of its vector and the text embeddings (B5), so the exchange calculates it.

    The others are there once somebody has given a label (``latte.methods.labels``). A client with labels sends
    ``residual_sums`` (C, D), ``residual_counts`` (C,), the number of its ``labels`` (), and per class their number
    ``label_counts`` (C,) and the sums of their embeddings ``label_sums`` (C, D). Every client of a fleet with labels
    sends the sum of all its embeddings ``image_sum`` (D,), and of how many ``images`` () that is.
    """

    vector_fields: ClassVar[tuple[str, ...]] = ("vectors",)
    class_fields: ClassVar[tuple[str, ...]] = (
        "vectors",
        "seen",
        "residual_sums",
        "residual_counts",
        "label_counts",
        "label_sums",
    )  # fmt: skip  with a row per class

    vectors: Vectors
    seen: Mask
    task: str = ""
    residual_sums: Reals | None = None
    residual_counts: Reals | None = None
    labels: Reals | None = None
    label_counts: Reals | None = None
    label_sums: Reals | None = None
    image_sum: Reals | None = None
    images: Reals | None = None

    def __repr__(self) -> str:
        return f"Prototypes({int(self.seen.sum())} of {len(self.seen)} classes, task={self.task[:8]!r})"


@dataclass(frozen=True, slots=True, eq=False)
class External:
    """What a client of Latte gets back: prototypes of other clients, most similar first.

    ``vectors`` (C, E, D), ``entropy`` (C, E), ``valid`` (C, E). E may be any number, also 0. Once somebody in the fleet
    has given a label, the prototypes of labelled images come first, and there are ``weights`` (C, D) and a ``bias``
    (C,): the logits that labels add.
    """

    vector_fields: ClassVar[tuple[str, ...]] = ("vectors",)

    vectors: Vectors
    entropy: Reals
    valid: Mask
    task: str = ""
    weights: Reals | None = None
    bias: Reals | None = None

    @classmethod
    def empty(cls, zero_shot: ZeroShot, slots: int = 0) -> External:
        """Return an external memory that holds nothing."""
        shape = (zero_shot.classes, slots)
        vectors = np.zeros((*shape, zero_shot.dim), np.float32)
        return cls(vectors, np.ones(shape), np.zeros(shape, np.bool_), zero_shot.fingerprint)

    def __repr__(self) -> str:
        filled = f"{int(self.valid.sum())} prototypes for {len(self.valid)} classes"
        return f"External({filled}, task={self.task[:8]!r})"


# --- the contracts: what a method and an exchange have, and what some exchanges have besides ------------------


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
class CreatedMethod(Method, Protocol):
    """What ``create`` returns: a method that also predicts many images in one call.

    A class of one's own need not have ``predict_many``: a registered class without it gets one.
    """

    def predict_many(self, images: ArrayLike) -> list[Prediction]:
        """Predict images one after the other: (N, D), or (N, V, D) with V views of each.

        The answers are those of as many calls of ``predict``. If one image is refused, nothing is remembered of any.
        """


@runtime_checkable
class Collaborative(Method, Protocol[Sent, Accepted]):
    """A method that can summarise what it remembers and accept what others remember."""

    def summary(self) -> Sent:
        """Summarise what the method remembers, in its own kind of upload."""

    def receive(self, download: Accepted) -> None:
        """Take over what the exchange answered; it replaces what came before."""


@runtime_checkable
class Teachable(Method, Protocol):
    """A method that learns from the true classes of images that it has predicted.

    An image is known by its embedding, the plain view as float32: whoever keeps that can correct an image days later.
    A label changes what a client knows from the next prediction or sync on. Without a label, a method is as if it could
    not be taught, to the last bit.
    """

    @property
    def labels(self) -> int:
        """How many images have a label."""

    def correct(self, image: ArrayLike, label: int, learnt: ArrayLike | None = None) -> None:
        """Learn that ``image``, (D,) or (V, D) as for ``predict``, is of the class ``label``.

        ``learnt`` is what its :class:`Prediction` said; None: it is not known any more. Of an image that has a label
        already, the label is replaced. The order in which labels are given does not matter.
        """

    def withdraw(self, image: ArrayLike) -> None:
        """Forget the label of ``image``, as if it had never been given; refuse an image that has none."""


def can_be_taught(method: object) -> bool:
    """Return whether a method learns from labels; a method inside another (``.method``) decides."""
    return can_be_taught(method.method) if hasattr(method, "method") else isinstance(method, Teachable)


@dataclass(frozen=True, slots=True)
class TeachingRights:
    """Whose labels an exchange believes.

    Parameters
    ----------
    teachers
        The clients whose labels count in full; those of all others are capped. None: everybody's count in full.
    muted
        The clients whose labels do not count at all.
    """

    teachers: frozenset[str] | None = None
    muted: frozenset[str] = frozenset()


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
class Verifying(Protocol):
    """An exchange that checks an upload first and stores it later, when the upload is safe on a disk."""

    def prepare(self, upload: Any, rounding: Rounding | None = None) -> Any:
        """Refuse an upload that no client can have made, or return what :meth:`store` stores of it.

        ``rounding`` is the distance by which encoding can have moved vectors of unit length, a number or one for each
        row; None: the upload comes from this process, and is only checked for what could do harm.
        """

    def store(self, client: str, prepared: Any) -> None:
        """Store what :meth:`prepare` returned; it cannot fail."""


@runtime_checkable
class Traced(Protocol):
    """An exchange that can say which clients' summaries a client gets."""

    @property
    def clients(self) -> tuple[str, ...]:
        """The names of the clients, in the order of the columns of what :meth:`pull_traced` returns."""

    def pull_traced(self, clients: Sequence[str]) -> tuple[list[Any], NDArray[Any]]:
        """Return the downloads, and how much of each comes from which client: (len(clients), N)."""
