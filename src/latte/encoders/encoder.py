"""The :class:`Encoder` protocol, and the common part of all encoders: batches, unit rows, progress, input checks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ..core.types import Vectors
from ..core.validate import at_least, unit_rows
from ..errors import InputError, refuse
from .preprocess import Preprocess

BATCH = 32
BatchProgress = Callable[[int, int], None]  # (done, total), after every batch


@runtime_checkable
class Encoder(Protocol):
    """Turns pictures and texts into unit rows of one space.

    ``scale`` is the model's own logit scale. Two encoders with the same ``fingerprint`` give the same embeddings.
    """

    name: str
    dim: int
    scale: float
    preprocess: Preprocess

    @property
    def fingerprint(self) -> str:
        """Sha256 of the weights, the tokenizer, the preprocessing and the scale."""

    def images(self, images: Any, batch_size: int = BATCH, progress: BatchProgress | None = None) -> Vectors:
        """Return (N, D) unit rows for N pictures, or for N preprocessed arrays (3, H, W) float32."""

    def texts(self, texts: Sequence[str], batch_size: int = BATCH, progress: BatchProgress | None = None) -> Vectors:
        """Return (N, D) unit rows; a text longer than the model's context is refused, never cut."""


class BaseEncoder:
    """The parts of ``Encoder`` that do not depend on the runtime.

    A subclass implements ``image_batch`` ((n, 3, H, W) float32 to (n, D)), ``text_batch`` (n texts to (n, D)) and
    ``fingerprint``; their rows need not be of unit length.
    """

    def __init__(self, name: str, dim: int, scale: float, preprocess: Preprocess) -> None:
        self.name = name
        self.dim = dim
        self.scale = scale
        self.preprocess = preprocess

    def image_batch(self, pixels: Vectors) -> NDArray[Any]:
        """Return (n, D) for (n, 3, H, W)."""
        raise TypeError(f"{type(self).__name__} has no image encoder")

    def text_batch(self, texts: Sequence[str]) -> NDArray[Any]:
        """Return (n, D) for n texts."""
        raise TypeError(f"{type(self).__name__} has no text encoder")

    def images(self, images: Any, batch_size: int = BATCH, progress: BatchProgress | None = None) -> Vectors:
        """Return (N, D) unit rows for N pictures (PIL, path, bytes, uint8 array) or float32 arrays (3, H, W)."""
        return self._rows(images, self._image_rows, batch_size, progress)

    def texts(self, texts: Sequence[str], batch_size: int = BATCH, progress: BatchProgress | None = None) -> Vectors:
        """Return (N, D) unit rows for N texts."""
        for text in [texts] if isinstance(texts, str) else texts:
            if not isinstance(text, str) or not text.strip() or isinstance(texts, str):
                raise refuse("texts", repr(text), "a list of texts that are not empty")
        return self._rows(texts, self.text_batch, batch_size, progress)

    def _rows(
        self, items: Any, encode: Callable[[Any], NDArray[Any]], batch_size: int, progress: BatchProgress | None
    ) -> Vectors:
        total = len(items)
        rows = np.empty((total, self.dim), np.float32)
        for start, stop in spans(total, at_least("batch_size", batch_size, 1)):
            rows[start:stop] = unit_rows("embeddings", encode(items[start:stop]), self.dim, normalise=True)
            if progress is not None:
                progress(stop, total)
        return rows

    def _image_rows(self, images: Any) -> NDArray[Any]:
        """Encode one batch; pictures of different input sizes go in groups, and come back in order."""
        if isinstance(images, np.ndarray) and images.ndim == 4 and images.dtype == np.float32:
            return self.image_batch(check_pixels(images))
        arrays = [self._array(image) for image in images]
        groups = by_shape(arrays)
        parts = [self.image_batch(np.stack([arrays[index] for index in group])) for group in groups]
        rows: NDArray[Any] = np.concatenate(parts)[np.argsort(np.concatenate(groups))]
        return rows

    def _array(self, image: Any) -> Vectors:
        if isinstance(image, np.ndarray) and image.dtype == np.float32:
            single: Vectors = check_pixels(image[None])[0]
            return single
        return self.preprocess(image)


def spans(total: int, batch_size: int) -> Iterator[tuple[int, int]]:
    """Yield (start, stop) of the batches.

    >>> list(spans(5, 2))
    [(0, 2), (2, 4), (4, 5)]
    """
    for start in range(0, total, batch_size):
        yield start, min(start + batch_size, total)


def by_shape(arrays: Sequence[NDArray[Any]]) -> list[list[int]]:
    """Return the indices of equal shapes together, in order of first appearance."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for index, array in enumerate(arrays):
        groups.setdefault(array.shape, []).append(index)
    return list(groups.values())


def check_pixels(pixels: Vectors) -> Vectors:
    """Refuse preprocessed pixels that are not (n, 3, H, W)."""
    if pixels.ndim != 4 or pixels.shape[1] != 3 or not pixels.size:
        raise refuse("images", f"a float32 array of shape {pixels.shape[1:]}", "preprocessed arrays of shape (3, H, W)")
    return pixels


def too_long(text: str, tokens: int, context: int) -> InputError:
    """Return the refusal of a text that overflows the model's context."""
    shown = text if len(text) <= 80 else f"{text[:60]}… ({len(text)} characters)"
    want = f"at most {context} tokens: shorten the class name or the template"
    return refuse("text", f"{shown!r} of {tokens} tokens", want)
