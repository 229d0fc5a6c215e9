"""A device without others: a method that learns from an exchange gets an exchange of its own, and syncs with it.

A member of a fleet does the same until its server has answered: a server that is away then costs it what others know,
and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..core.contracts import Collaborative, Exchange, Method
from ..core.near_copies import NEAR_COPY
from ..core.stored import exactly
from ..core.sync import is_due, sync
from ..core.types import Arrays, MemoryFill, Prediction, State
from ..core.validate import at_least
from ..core.zero_shot import ZeroShot
from ..errors import refuse
from ..methods import create, create_exchange, describe

NAME = "self"  # of the only client of the exchange
IMAGES = "images"  # in the state, beside what the method has there


class Alone:
    """A collaborative method and an exchange that nobody else uses; they sync when ``kind`` says so.

    The state is that of the method and the number of images. The exchange needs no state: it holds only the latest
    upload, and every sync replaces it.
    """

    def __init__(self, method: Collaborative[Any, Any], exchange: Exchange[Any, Any], kind: str) -> None:
        self.method, self.exchange, self.kind = method, exchange, kind
        self.images = 0

    def predict(self, views: ArrayLike, *, remember: bool = True) -> Prediction:
        """Predict as the method does; an image that is remembered may be followed by a sync."""
        prediction = self.method.predict(views, remember=remember)
        if remember:
            self.images += 1
            if is_due(self.kind, self.images):
                sync([(NAME, self.method)], self.exchange)
        return prediction

    def memory_fill(self) -> MemoryFill | None:
        """Return how much the method remembers; None if it does not say."""
        return fill_of(self.method)

    def reset(self) -> None:
        """Forget everything."""
        self.method.reset()
        self.images = 0

    def state(self) -> State:
        """Return a copy of everything, as arrays."""
        return {**self.method.state(), IMAGES: np.array(self.images, np.int64)}

    def load(self, arrays: Arrays) -> None:
        """Continue from what :meth:`state` returned; nothing changes if it does not fit."""
        if not isinstance(arrays, Mapping) or IMAGES not in arrays:
            raise refuse("arrays", f"no {IMAGES}", "what state() returns")
        images = at_least(IMAGES, int(exactly(IMAGES, arrays[IMAGES], np.int64, ())), 0)
        self.method.load({name: array for name, array in arrays.items() if name != IMAGES})
        self.images = images


JOINED = "joined"  # in the state of a member: whether a server has answered


class OwnServer(Alone):
    """The same for a member of a fleet: it syncs with itself until a download comes, and never after.

    >>> member = OwnServer(create("ristretto", zero := ZeroShot(np.eye(2), ("cat", "dog"))), create_exchange(
    ...     "ristretto", zero), "doubling")
    >>> member.predict([0.6, 0.8]).classname, member.summary().empty, member.joined
    ('dog', False, False)
    """

    def __init__(self, method: Collaborative[Any, Any], exchange: Exchange[Any, Any], kind: str) -> None:
        super().__init__(method, exchange, kind)
        self.joined = False

    def predict(self, views: ArrayLike, *, remember: bool = True) -> Prediction:
        """Predict as the method does; while no server has answered, a sync of its own may follow."""
        return (
            self.method.predict(views, remember=remember) if self.joined else super().predict(views, remember=remember)
        )

    def summary(self) -> Any:
        """Return the summary of the method."""
        return self.method.summary()

    def private_summary(self, *arguments: Any) -> Any:
        """Return the summary of the method that hides single images."""
        return self.method.private_summary(*arguments)  # type: ignore[attr-defined]  # a PrivateClient asks for both

    def sensitivity(self, privacy: Any) -> float:
        """Return how far one image can move that summary."""
        return float(self.method.sensitivity(privacy))  # type: ignore[attr-defined]

    def receive(self, download: Any) -> None:
        """Take over what the server answered; it replaces what came before, also what the member made itself."""
        self.method.receive(download)
        self.joined = True

    def reset(self) -> None:
        """Forget everything."""
        super().reset()
        self.joined = False

    def state(self) -> State:
        """Return a copy of everything, as arrays."""
        return {**super().state(), JOINED: np.array(int(self.joined), np.int64)}

    def load(self, arrays: Arrays) -> None:
        """Continue from what :meth:`state` returned; nothing changes if it does not fit.

        The state of an earlier version has neither number. Its head tells whether a server has answered.
        """
        if isinstance(arrays, Mapping) and not {IMAGES, JOINED} & set(arrays):
            joined = bool(np.any(arrays.get("trust", 1)))
            arrays = {**arrays, IMAGES: np.array(0, np.int64), JOINED: np.array(int(joined), np.int64)}
        if not isinstance(arrays, Mapping) or JOINED not in arrays:
            raise refuse("arrays", f"no {JOINED}", "what state() returns")
        joined = bool(exactly(JOINED, arrays[JOINED], np.int64, ()))
        super().load({name: array for name, array in arrays.items() if name != JOINED})
        self.joined = joined


def fill_of(method: Method) -> MemoryFill | None:
    """Return how much a method remembers; None if it does not say."""
    fill = getattr(method, "memory_fill", None)
    return fill() if callable(fill) else None


def create_alone(
    name: str, zero_shot: ZeroShot, params: Any = None, preset: str | None = None, near_copy: float = NEAR_COPY
) -> Method:
    """Return a method for a device without others, which answers from single embeddings.

    A device sees the same scene again and again, so its memory leaves out an image whose cosine with a stored image is
    at least ``near_copy`` (0: it learns from every image). A ``near_copy`` in ``params`` comes first, as does a whole
    dataclass of parameters; a method without that parameter learns from every image.

    >>> import numpy as np
    >>> device = create_alone("ristretto", ZeroShot(np.eye(2), ("cat", "dog")))
    >>> device.predict([0.6, 0.8]).classname, device.images
    ('dog', 1)
    """
    info = describe(name)
    if info.tunes_prompt or info.uses_views:
        raise refuse("method", repr(name), "one that needs neither other views of a picture nor a prompt to tune")
    chosen = with_near_copy(info.params, params, near_copy)
    method = create(name, zero_shot, chosen, preset=preset)
    if not info.alone or not isinstance(method, Collaborative):
        return method
    return Alone(method, create_exchange(name, zero_shot, chosen, preset=preset), info.sync)


def with_near_copy(kind: type, params: Any, near_copy: float) -> Any:
    """Return the parameters of a method for a device, which leaves near copies out if the method can."""
    whole = params is not None and not isinstance(params, Mapping)
    if whole or "near_copy" not in {field.name for field in fields(kind)}:
        return params
    return {"near_copy": near_copy, **(params or {})}
