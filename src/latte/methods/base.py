"""What the methods share: the zero-shot classifier, the check of the input, a state that may be empty."""

from __future__ import annotations

from typing import Any, ClassVar

from ..core.copying import WholeCopy
from ..core.stored import require
from ..core.types import Arrays, State, Vectors
from ..core.validate import unit_rows
from ..core.zero_shot import ZeroShot


class BaseMethod(WholeCopy):
    """A method without memory; those that remember override the last three."""

    needs_text_encoder: ClassVar[bool] = False  # True: the constructor takes a ``text_encoder``

    def __init__(self, zero_shot: ZeroShot, normalise: bool = False) -> None:
        self.zero_shot = zero_shot
        self.normalise = normalise

    def check(self, views: Any) -> Vectors:
        """Return ``views`` (V, D) as unit rows, or refuse them with a ValueError."""
        return unit_rows("views", views, self.zero_shot.dim, self.normalise)

    def reset(self) -> None:
        """Forget everything: here, nothing."""

    def state(self) -> State:
        """Return what the method remembers: here, nothing."""
        return {}

    def load(self, arrays: Arrays) -> None:
        """Continue from what ``state()`` returned: here, nothing, and nothing else is accepted."""
        require(arrays, ())
