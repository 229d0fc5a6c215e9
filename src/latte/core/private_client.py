"""A client that hides single images in what it uploads."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..errors import refuse
from .contracts import Collaborative
from .privacy import DELTA, Hiding, Privacy, epsilon
from .types import Arrays, MemoryFill, Prediction, State

UPLOADS = 100  # for the second number of :meth:`PrivateClient.guarantee`: a device syncs many times


class PrivateClient:
    """The client ``method`` with ``privacy``: only its summaries differ.

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
        self.method, self.privacy = method, privacy
        self._hiding: Hiding = method
        self._rng = rng or np.random.default_rng()

    def __repr__(self) -> str:
        return f"PrivateClient({self.method!r}, {self.privacy!r})"

    def predict(self, views: ArrayLike, *, remember: bool = True) -> Prediction:
        """Predict as the method does: nothing is hidden from the device itself."""
        return self.method.predict(views, remember=remember)

    def summary(self) -> Any:
        """Return the summary that may leave the device."""
        return self._hiding.private_summary(self.privacy, self._rng)

    def receive(self, download: Any) -> None:
        """Take over what the exchange answered."""
        self.method.receive(download)

    def reset(self) -> None:
        """Forget everything."""
        self.method.reset()

    def memory_fill(self) -> MemoryFill | None:
        """Return how much the method remembers; None if it does not say."""
        fill = getattr(self.method, "memory_fill", None)
        filled: MemoryFill | None = fill() if callable(fill) else None
        return filled

    def state(self) -> State:
        """Return what the method remembers; nothing is hidden in it."""
        return self.method.state()

    def load(self, arrays: Arrays) -> None:
        """Continue from what :meth:`state` returned."""
        self.method.load(arrays)

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
            f"epsilon {single:.3g} for one upload, {several:.3g} for {UPLOADS}, at delta {DELTA:g}: "
            "for one image replaced by another; which classes are shared is not covered"
        )
