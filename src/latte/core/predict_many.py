"""Predictions of many images one after the other, for any method."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike, NDArray

from ..errors import refuse
from .contracts import Method
from .types import Prediction
from .validate import numbers


def needed_views(method: Any, views: NDArray[Any]) -> NDArray[Any]:
    """Return those of the ``views`` (V, D) of an image that a method reads: the plain one, or all of them."""
    return views if getattr(getattr(method, "method", method), "reads_views", True) else views[:1]


def predict_many(self: Method, images: ArrayLike) -> list[Prediction]:
    """Predict images one after the other: (N, D), or (N, V, D) with V views of each.

    If one of them is refused, the method is as it was before the first.
    """
    array, before = stacked_images(images), self.state()
    try:
        return [self.predict(needed_views(self, image) if array.ndim == 3 else image) for image in array]
    except Exception:
        self.load(before)
        raise


def stacked_images(images: ArrayLike) -> NDArray[Any]:
    """Return ``images`` as an array (N, D) or (N, V, D) of numbers, or refuse them."""
    array = numbers("images", images, "(N, D) or (N, V, D) unit rows")
    if array.ndim not in (2, 3):
        raise refuse("images", f"shape {array.shape}", "(N, D), or (N, V, D) with V views of each image")
    return array
