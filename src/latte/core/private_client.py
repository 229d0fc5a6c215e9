"""A client that hides single images in what it uploads."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..errors import refuse
from .contracts import Collaborative
from .privacy import DELTA, PRIVATE, Hiding, NoisyRows, Privacy, epsilon
from .types import Arrays, MemoryFill, Prediction, State

UPLOADS = 100  # for the second number of :meth:`PrivateClient.guarantee`: a device syncs many times


def without_noise(arrays: Arrays) -> Arrays:
    """Return the state of a client without what is about noise: what the method itself remembers."""
    if not isinstance(arrays, Mapping):
        raise refuse("arrays", type(arrays).__name__, "a mapping of names to arrays, as state() returns")
    return {name: array for name, array in arrays.items() if not str(name).startswith(PRIVATE)}


class PrivateClient:
    """The client ``method`` with ``privacy``: only its summaries differ, and its state, which also has the noise.

    ``unsaved_noise`` says whether noise was drawn since the state was last asked for. A device saves it before it sends
    it: after a restart, a class that did not change is sent with the same noise again.

    >>> from latte import Latte, Privacy, ZeroShot
    >>> client = PrivateClient(Latte(ZeroShot(np.eye(2), ("cat", "dog"))), Privacy(least_images=2))
    >>> client.predict([0.6, 0.8]).classname, client.summary().seen
    ('dog', array([False, False]))
    """

    def __init__(
        self, method: Collaborative[Any, Any], privacy: Privacy, rng: np.random.Generator | None = None
    ) -> None:
        if not isinstance(method, Hiding):
            raise refuse("privacy", type(method).__name__, "a method with private_summary, as Latte and Ristretto have")
        if privacy.noise:
            method.sensitivity(privacy)  # refuses parameters for which there is none
        most = getattr(method, "most_images", None)
        if most is not None and privacy.least_images > most:
            want = f"at most {most}: the memory keeps no more images of a class, so nothing would ever be shared"
            raise refuse("least_images", privacy.least_images, want)
        self.method, self.privacy = method, privacy
        self._hiding: Hiding = method
        self._rng = rng or np.random.default_rng()
        self._noise = NoisyRows(self._rng)

    def __repr__(self) -> str:
        return f"PrivateClient({self.method!r}, {self.privacy!r})"

    def predict(self, views: ArrayLike, *, remember: bool = True) -> Prediction:
        """Predict as the method does: nothing is hidden from the device itself."""
        return self.method.predict(views, remember=remember)

    def summary(self) -> Any:
        """Return the summary that may leave the device."""
        return self._hiding.private_summary(self.privacy, self._noise)

    @property
    def unsaved_noise(self) -> bool:
        """Whether noise was drawn that no state has yet."""
        return self._noise.fresh

    def receive(self, download: Any) -> None:
        """Take over what the exchange answered."""
        self.method.receive(download)

    def reset(self) -> None:
        """Forget everything."""
        self.method.reset()
        self._noise.reset()

    def memory_fill(self) -> MemoryFill | None:
        """Return how much the method remembers; None if it does not say."""
        fill = getattr(self.method, "memory_fill", None)
        filled: MemoryFill | None = fill() if callable(fill) else None
        return filled

    def state(self) -> State:
        """Return what the method remembers, and the noise in its last upload; nothing is hidden in it."""
        noise = self._noise.state() if self.privacy.noise else {}
        return {**self.method.state(), **{f"{PRIVATE}{name}": array for name, array in noise.items()}}

    def load(self, arrays: Arrays) -> None:
        """Continue from what :meth:`state` returned, with noise or without."""
        own, noise = without_noise(arrays), NoisyRows(self._rng)
        if kept := {name.removeprefix(PRIVATE): arrays[name] for name in arrays if name not in own}:
            noise.load(kept)
        self.method.load(own)
        self._noise = noise

    def epsilon(self, dim: int, uploads: int = 1) -> float:
        """Return the exact epsilon of this number of uploads; infinite without noise."""
        if not self.privacy.noise:
            return math.inf
        return epsilon(self._hiding.sensitivity(self.privacy), self.privacy.deviation(dim), uploads)

    def guarantee(self, dim: int) -> str:
        """Return what the noise guarantees, in one line for people."""
        if not self.privacy.noise:
            return f"classes with fewer than {self.privacy.least_images} images are not shared; no noise: no epsilon"
        single, several = self.epsilon(dim), self.epsilon(dim, UPLOADS)
        return (
            f"epsilon {single:.3g} for one upload, {several:.3g} for {UPLOADS} with new noise, at delta {DELTA:g}: "
            "for one image replaced by another, in the numbers of the classes. Not covered: which classes are shared "
            "and when they change, and how many pictures there were"
        )
