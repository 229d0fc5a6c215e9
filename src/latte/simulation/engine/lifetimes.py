"""What TDA and DMN have in common: caches in which a sample lives from its insertion to its eviction.

What a cache holds at which time does not depend on the readout. So the insertions are replayed once; then a block of
samples is compared with everything that lives during the block, and each sample weighs the items that live at its time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ...core.maths import softmax
from ...core.types import Integers, Mask, Reals
from .queues import QueueShape
from .streams import Streams

READ_AT_ONCE = 128  # samples
NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, eq=False)
class Order:
    """The order in which samples are handled: each part of ``sequence`` has a memory of its own."""

    sequence: Integers  # (n,) samples
    starts: Integers  # (parts + 1,)

    @property
    def parts(self) -> Integers:
        """The part of every sample (n,), by sample."""
        part = np.empty(len(self.sequence), np.int64)
        part[self.sequence] = np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))
        return part


@dataclass(frozen=True, eq=False)
class Lives:
    """Items in the order of their insertion: the sample, and from which place of the sequence until which it lives."""

    sample: Integers
    label: Integers
    since: Integers
    until: Integers

    def during(self, first: int, last: int, start: int) -> Lives:
        """Return the items of the part that starts at ``start`` that live at a place from ``first`` to ``last``."""
        begin, end = np.searchsorted(self.since, [start, last])
        here = begin + np.flatnonzero(self.until[begin:end] > first)
        return Lives(self.sample[here], self.label[here], self.since[here], self.until[here])

    def alive(self, places: Integers) -> Mask:
        """Return which items live at which place (B, U): a sample finds itself there."""
        mask: Mask = (self.since <= places[:, None]) & (places[:, None] < self.until)
        return mask


def lives_of(slot: Integers, label: Integers, order: Order, shape: QueueShape) -> Lives:
    """Return the lives that follow from the slots (n,) of the samples, -1 for none."""
    classes, slots, _ = shape
    place = np.flatnonzero(slot[order.sequence] >= 0)
    sample = order.sequence[place]
    key = (order.parts[sample] * classes + label[sample]) * slots + slot[sample]
    by_slot = np.lexsort((place, key))
    until = np.full(len(place), NEVER)
    follows = key[by_slot[1:]] == key[by_slot[:-1]]
    until[by_slot[:-1][follows]] = place[by_slot[1:][follows]]
    return Lives(sample, label[sample], place, until)


def blocks(order: Order) -> Iterator[tuple[int, int, int]]:
    """Yield blocks of the sequence: first and last place, and where their part starts."""
    for start, stop in zip(order.starts[:-1], order.starts[1:], strict=True):
        for first in range(start, stop, READ_AT_ONCE):
            yield first, min(first + READ_AT_ONCE, stop), int(start)


def softmax_rows(streams: Streams, samples: Integers) -> Reals:
    """Return the zero-shot probabilities of samples (n, C)."""
    return softmax(streams.logits[samples])
