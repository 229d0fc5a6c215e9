"""The global form of a memory method: one memory that every client writes and reads.

The capacity is that of one client, not of all together, and each image costs a round trip to wherever the
memory is. The order of the images matters: let the clients take turns (round t: every client's t-th image),
never one client after the other. Then the federation answers as the method does on the concatenated stream.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import ArrayLike

from ..core.contracts import CreatedMethod
from ..core.types import Arrays, Prediction, State
from ..core.validate import at_least


@dataclass(frozen=True, slots=True, eq=False)
class Shared:
    """One client's handle of the method that all of them share.

    Whatever is done through one handle is done to the memory of everyone: ``state()`` is the shared state,
    and ``reset()`` forgets for all.
    """

    method: CreatedMethod

    @property
    def params(self) -> Any:
        """The parameters of the shared method, if it has any."""
        return getattr(self.method, "params", None)

    def predict(self, views: ArrayLike, *, remember: bool = True) -> Prediction:
        """Write to the shared memory, then predict from it."""
        return self.method.predict(views, remember=remember)

    def predict_many(self, images: ArrayLike) -> list[Prediction]:
        """Write images (N, D) or (N, V, D) to the shared memory one after the other, and predict each from it."""
        return self.method.predict_many(images)

    def reset(self) -> None:
        """Forget everything, for everyone."""
        self.method.reset()

    def state(self) -> State:
        """Return a copy of the shared memory, as plain arrays."""
        return self.method.state()

    def load(self, arrays: Arrays) -> None:
        """Continue, for everyone, from what ``state()`` returned."""
        self.method.load(arrays)


def share(method: CreatedMethod, clients: int) -> list[CreatedMethod]:
    """Return a handle of ``method`` for each of so many ``clients``.

    >>> import numpy as np
    >>> from latte import ZeroShot, create
    >>> ann, bob = share(create("tda", ZeroShot(np.eye(2), ("cat", "dog"))), 2)
    >>> _ = ann.predict([[0.6, 0.8]])
    >>> bob.state()["positive.valid"].any()
    np.True_
    """
    return [Shared(method) for _ in range(at_least("clients", clients, 1))]
