"""The :class:`Encoder` protocol, and the common part of all encoders: batches, unit rows, progress, input checks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ..core.types import Integers, Vectors
from ..core.validate import at_least, unit_rows
from ..errors import InputError, refuse
from .devices import Placement
from .pictures import MOST_PIXELS, BadImageError, Picture, as_picture
from .preprocess import Preprocess

BATCH = 32
BATCHES_AHEAD = 2  # batches of files decoded and waiting
BatchProgress = Callable[[int, int], None]  # (done, total), after every batch
Pictures: TypeAlias = Sequence[Picture] | NDArray[Any]  # an array: (N, H, W, 3) uint8, or (N, 3, H, W) preprocessed


@runtime_checkable
class Encoder(Protocol):
    """Turns pictures and texts into unit rows of one space.

    ``scale`` is the model's own logit scale. Two encoders with the same ``fingerprint`` give the same embeddings, on
    whatever device, up to rounding in the last bits. A model that was trained with a sigmoid has a ``bias``, too
    (:class:`BaseEncoder`): ``sigmoid(scale · cosine + bias)`` is how likely a text fits a picture, each by itself.
    """

    name: str
    dim: int
    scale: float
    preprocess: Preprocess

    @property
    def fingerprint(self) -> str:
        """Sha256 of the weights, the tokenizer, the preprocessing and the scale."""

    def images(self, images: Pictures, batch_size: int = BATCH, progress: BatchProgress | None = None) -> Vectors:
        """Return (N, D) unit rows for N pictures, or for N preprocessed arrays (3, H, W) float32."""

    def texts(self, texts: Sequence[str], batch_size: int = BATCH, progress: BatchProgress | None = None) -> Vectors:
        """Return (N, D) unit rows; a text longer than the model's context is refused, never cut."""


class BaseEncoder:
    """The parts of ``Encoder`` that do not depend on the runtime.

    A subclass implements ``image_batch`` ((n, 3, H, W) float32 to (n, D)), ``text_batch`` (n texts to (n, D)) and
    ``fingerprint``; their rows need not be of unit length. ``placement`` says where it runs.
    """

    placement: Placement

    def __init__(self, name: str, dim: int, scale: float, preprocess: Preprocess, bias: float | None = None) -> None:
        self.name = name
        self.dim = dim
        self.scale = scale
        self.preprocess = preprocess
        self.bias = bias

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, D={self.dim}, scale={self.scale:g})"

    def image_batch(self, pixels: Vectors) -> NDArray[Any]:
        """Return (n, D) for (n, 3, H, W)."""
        raise TypeError(f"{type(self).__name__} has no image encoder")

    def text_batch(self, texts: Sequence[str]) -> NDArray[Any]:
        """Return (n, D) for n texts."""
        raise TypeError(f"{type(self).__name__} has no text encoder")

    def images(self, images: Pictures, batch_size: int = BATCH, progress: BatchProgress | None = None) -> Vectors:
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
        for start in range(0, total, at_least("batch_size", batch_size, 1)):
            stop = min(start + batch_size, total)
            try:
                encoded = encode(items[start:stop])
            except (MemoryError, RuntimeError) as error:
                if not isinstance(error, MemoryError) and type(error).__name__ != "OutOfMemoryError":  # torch's
                    raise
                got = f"{stop - start} at once, for which there is no memory"
                raise refuse("batch", got, "fewer at once (--batch)") from None
            rows[start:stop] = unit_rows("embeddings", encoded, self.dim, normalise=True)
            if progress is not None:
                progress(stop, total)
        return rows

    def _image_rows(self, images: Any) -> NDArray[Any]:
        """Encode one batch; pictures of different input sizes go in groups, and come back in order."""
        if isinstance(images, np.ndarray) and images.ndim == 4 and images.dtype == np.float32:
            return self.image_batch(_check_pixels(images))
        arrays = [
            _check_pixels(image[None])[0]
            if isinstance(image, np.ndarray) and image.dtype == np.float32
            else self.preprocess(image)
            for image in images
        ]
        groups: dict[tuple[int, ...], list[int]] = {}
        for index, array in enumerate(arrays):
            groups.setdefault(array.shape, []).append(index)
        parts = [self.image_batch(np.stack([arrays[index] for index in group])) for group in groups.values()]
        rows: NDArray[Any] = np.concatenate(parts)[np.argsort(np.concatenate([*groups.values()]))]
        return rows


def _check_pixels(pixels: Vectors) -> Vectors:
    if pixels.ndim != 4 or pixels.shape[1] != 3 or not pixels.size:
        raise refuse("images", f"a float32 array of shape {pixels.shape[1:]}", "preprocessed arrays of shape (3, H, W)")
    return pixels


def too_long(text: str, tokens: int, context: int) -> InputError:
    """Return the refusal of a text that overflows the model's context."""
    shown = text if len(text) <= 80 else f"{text[:60]}… ({len(text)} characters)"
    want = f"at most {context} tokens: shorten the class name or the template"
    return refuse("text", f"{shown!r} of {tokens} tokens", want)


A = TypeVar("A")
B = TypeVar("B")


def map_in_order(
    function: Callable[[A], B], jobs: Iterable[A], workers: int = 1, ahead: int | None = None
) -> Generator[B, None, None]:
    """Yield ``function(job)`` for every job, in order; threads do at most ``ahead`` (2 · ``workers``) beforehand.

    >>> list(map_in_order(abs, [-1, 2, -3], workers=2))
    [1, 2, 3]
    """
    todo = iter(jobs)
    pool = ThreadPoolExecutor(at_least("workers", workers, 1), thread_name_prefix="latte")
    try:
        waiting: deque[Future[B]] = deque(pool.submit(function, job) for job in islice(todo, ahead or 2 * workers))
        while waiting:
            result = waiting.popleft().result()
            waiting.extend(pool.submit(function, job) for job in islice(todo, 1))
            yield result
    finally:  # also when the caller stops early or a job fails
        pool.shutdown(wait=True, cancel_futures=True)


@dataclass(frozen=True, slots=True, eq=False)
class EncodedBatch:
    """The embeddings of sources ``start`` to ``stop``: ``rows`` (n, D) belong to the positions ``index`` (n,).

    ``bad`` holds (position, message) of the unreadable ones.
    """

    start: int
    stop: int
    index: Integers
    rows: Vectors
    bad: tuple[tuple[int, str], ...] = ()


def encode_files(
    encoder: Encoder,
    sources: Sequence[Any],
    batch_size: int = BATCH,
    workers: int = 2,
    skip_bad: bool = False,
    start: int = 0,
    most_pixels: int = MOST_PIXELS,
) -> Iterator[EncodedBatch]:
    """Yield the batches of ``sources`` (paths, bytes, PIL images or uint8 arrays) from position ``start`` on.

    An unreadable source raises ``BadImageError`` unless ``skip_bad``. To resume, pass the ``stop`` of the last batch
    as ``start``, with the same ``batch_size``. A picture of more than ``most_pixels`` is unreadable.
    """
    at_least("batch_size", batch_size, 1)
    at_least("most_pixels", most_pixels, 1)

    def decode(source: Any) -> Vectors | BadImageError:
        try:
            return encoder.preprocess(as_picture(source, most_pixels))
        except BadImageError as error:  # a value here: the batch it belongs to decides what to do
            return error

    with closing(map_in_order(decode, sources[start:], workers, BATCHES_AHEAD * batch_size)) as arrays:
        for low in range(start, len(sources), batch_size):
            high = min(low + batch_size, len(sources))
            bad, index, good = [], [], []
            for position, item in zip(range(low, high), arrays, strict=False):  # takes no array beyond its own
                if not isinstance(item, BadImageError):
                    index.append(position)
                    good.append(item)
                elif skip_bad:
                    bad.append((position, str(item)))
                else:
                    raise item
            rows = encoder.images(good, batch_size=max(1, len(good)))
            yield EncodedBatch(low, high, np.asarray(index, np.int64), rows, tuple(bad))
