"""Classes that a device cannot meet: they never win, and nothing is learnt of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ...core.types import Arrays, MemoryFill, Prediction, State, can_be_taught
from ...core.zero_shot import ZeroShot
from ...errors import refuse


class Masked:
    """A member of a fleet, ``method``, at a place where some classes are not.

    Their scores are -inf. An image that zero-shot puts into one of them is answered and not learnt, and nothing of them
    is uploaded.

    >>> from latte import Latte
    >>> method = Latte(ZeroShot(np.eye(3), ("cat", "elephant", "dog")))
    >>> masked = Masked(method, method.zero_shot, ["elephant"])
    >>> masked.predict([0.6, 0.8, 0.0]).classname, masked.summary().seen.any()
    ('cat', np.False_)
    """

    def __init__(self, method: Any, zero_shot: ZeroShot, without: Iterable[str]) -> None:
        self.method, self.zero_shot = method, zero_shot
        self._masked = np.isin(zero_shot.classnames, list(without))
        if (~self._masked).sum() < 2:
            got = f"{self._masked.sum()} of {zero_shot.classes} classes"
            raise refuse("without", got, "at least two that are left")

    def predict(self, views: ArrayLike, *, remember: bool = True) -> Prediction:
        """Predict as the method does, one of the other classes; learn from the image if zero-shot sees one of them."""
        plain = np.asarray(views)
        seen = int(self.zero_shot.logits(plain if plain.ndim == 1 else plain[0]).argmax())
        learns = not self._masked[seen]
        prediction: Prediction = self.method.predict(views, remember=remember and learns)
        scores = np.where(self._masked, -np.inf, prediction.scores)
        return Prediction(
            int(scores.argmax()),
            scores,
            prediction.entropy,
            prediction.classnames,
            prediction.normalised_by_sum,
            lambda: prediction.temperature,
            prediction.near_copy,
            (lambda: prediction.learnt) if learns else None,
        )

    def _without_masked(self, upload: Any) -> Any:
        """Return an upload without the rows of the classes, but for those that labels add up to."""
        arrays = {}
        for name in getattr(type(upload), "class_fields", ()):
            array = getattr(upload, name)
            if array is not None and name not in ("residual_sums", "residual_counts"):
                arrays[name] = array.copy()
                arrays[name][self._masked] = 0
        left = arrays.get("counts")
        if left is not None and left.sum() < 1:  # half an image is none: the upload would be refused
            return upload
        return replace(upload, **arrays)

    def summary(self) -> Any:
        """Return the summary of the method, without those classes."""
        return self._without_masked(self.method.summary())

    def private_summary(self, *arguments: Any) -> Any:
        """Return the summary that hides single images, without those classes."""
        return self._without_masked(self.method.private_summary(*arguments))

    def sensitivity(self, privacy: Any) -> float:
        """Return how far one image can move that summary."""
        return float(self.method.sensitivity(privacy))

    @property
    def most_images(self) -> int | None:
        """How many images of a class the method remembers at most, if it says so."""
        return getattr(self.method, "most_images", None)

    def receive(self, download: Any) -> None:
        """Take over what the server answered."""
        self.method.receive(download)

    @property
    def labels(self) -> int:
        """How many images have a label."""
        return self.method.labels if can_be_taught(self.method) else 0

    def correct(self, image: ArrayLike, label: int, learnt: ArrayLike | None = None) -> None:
        """Learn the true class of an image: a person may know better what there is."""
        self.method.correct(image, label, learnt)

    def withdraw(self, image: ArrayLike) -> None:
        """Forget the label of an image."""
        self.method.withdraw(image)

    def memory_fill(self) -> MemoryFill | None:
        """Return how much the method remembers; None if it does not say."""
        fill = getattr(self.method, "memory_fill", None)
        filled: MemoryFill | None = fill() if callable(fill) else None
        return filled

    def take_over(self, earlier: Any) -> None:
        """Go on with what a member of an earlier version of the task has learnt."""
        self.method.take_over(earlier.method if isinstance(earlier, Masked) else earlier)

    def reset(self) -> None:
        """Forget everything."""
        self.method.reset()

    def state(self) -> State:
        """Return what the method remembers."""
        state: State = self.method.state()
        return state

    def load(self, arrays: Arrays) -> None:
        """Continue from what :meth:`state` returned, with a mask or without."""
        self.method.load(arrays)
