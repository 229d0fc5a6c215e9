"""The contracts: what a method and an exchange have, and what some exchanges have besides.

They are protocols: a class need not derive from them. ``latte.checks`` holds a class to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .types import Arrays, Message, Prediction, Rounding, State

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
class Secretive(Protocol):
    """An exchange that draws random numbers which its clients must not know."""

    def use_secret(self, secret: int, served: bool = False) -> None:
        """Draw them from ``secret``, a whole number; nothing is stored yet. ``served``: a server calls it."""


@runtime_checkable
class Traced(Protocol):
    """An exchange that can say which clients' summaries a client gets."""

    @property
    def clients(self) -> tuple[str, ...]:
        """The names of the clients, in the order of the columns of what :meth:`pull_traced` returns."""

    def pull_traced(self, clients: Sequence[str]) -> tuple[list[Any], NDArray[Any]]:
        """Return the downloads, and how much of each comes from which client: (len(clients), N)."""


@runtime_checkable
class Covering(Protocol):
    """An exchange that can say which classes its clients have seen."""

    def coverage(self, clients: Sequence[str]) -> NDArray[np.bool_]:
        """Return which classes (len(clients), C) each client has seen."""
