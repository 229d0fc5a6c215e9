"""From many files to embeddings, batch by batch; threads decode the next files while the encoder works.

Batches are cut by position, bad files included, so that encoding can stop after any batch and continue with the next,
with the same bytes as without the stop.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..core.types import Integers, Vectors
from ..core.validate import at_least
from .encoder import BATCH, Encoder, spans
from .parallel import map_in_order
from .pictures import MOST_PIXELS, BadImageError, as_picture
from .preprocess import Preprocess

BATCHES_AHEAD = 2  # batches decoded and waiting


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
    decode = partial(_decode, encoder.preprocess, at_least("most_pixels", most_pixels, 1))
    with closing(map_in_order(decode, sources[start:], workers, BATCHES_AHEAD * batch_size)) as arrays:
        for low, high in spans(len(sources) - start, batch_size):
            batch = [next(arrays) for _ in range(low, high)]
            yield _encode_batch(encoder, start + low, batch, skip_bad)


def _decode(preprocess: Preprocess, most_pixels: int, source: Any) -> Vectors | BadImageError:
    try:
        return preprocess(as_picture(source, most_pixels))
    except BadImageError as error:  # a value here: the batch it belongs to decides what to do
        return error


def _encode_batch(encoder: Encoder, start: int, batch: list[Vectors | BadImageError], skip_bad: bool) -> EncodedBatch:
    bad: list[tuple[int, str]] = []
    index, good = [], []
    for position, item in enumerate(batch, start):
        if isinstance(item, BadImageError):
            if not skip_bad:
                raise item
            bad.append((position, str(item)))
        else:
            index.append(position)
            good.append(item)
    rows = encoder.images(good, batch_size=max(1, len(good)))
    return EncodedBatch(start, start + len(batch), np.asarray(index, np.int64), rows, tuple(bad))
