"""MCM, the maximum concept matching score of an image, and its quantiles from histograms that add up over clients.

The score is the largest softmax of the cosines between an image and the class texts, at temperature 1 (Ming et al.,
2022). It is taken before anything adapts: adapted scores tell unknown images no better. No threshold can be found
without labels, so somebody names the share of images to flag.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from .types import Integers, Vectors
from .zero_shot import ZeroShot

BINS = 256
LEAST_IMAGES = 50  # in a histogram before its quantiles mean anything
MOST_IMAGES = 100_000  # of one client's histogram: as many answers as a device stores


def mcm_of(row: Vectors, zero_shot: ZeroShot) -> float:
    """Return the score of the image with embedding ``row`` (D,): from 1 / C, where all cosines are equal, to 1.

    >>> zero_shot = ZeroShot(np.eye(2), ("cat", "dog"))
    >>> round(mcm_of(np.array([1, 0], np.float32), zero_shot), 3), mcm_of(np.sqrt([0.5, 0.5]), zero_shot)
    (0.731, 0.5)
    """
    cosines = zero_shot.logits(row) / zero_shot.scale
    return float(1 / np.add.reduce(np.exp(cosines - cosines.max())))


def _place(mcm: float, classes: int) -> float:
    """Return where a score lies between 0 and BINS.

    ln(C · MCM) is in [0, 2] and mostly below 0.3, so bins are narrow there: their width grows with the root.
    """
    return BINS * math.sqrt(min(max(math.log(classes * mcm) / 2, 0.0), 1.0))


def bin_of(mcm: float, classes: int) -> int:
    """Return the bin of a score."""
    return min(int(_place(mcm, classes)), BINS - 1)


def threshold_of(counts: Integers, classes: int, share: float) -> float:
    """Return the score below which this ``share`` of the images lies; 0 if there are too few images to say.

    Within a bin, images are taken to be spread evenly.
    """
    total = int(counts.sum())
    if total < LEAST_IMAGES:
        return 0.0
    below = np.cumsum(counts)
    place = min(int(np.searchsorted(below, share * total)), BINS - 1)
    inside = (share * total - (below[place] - counts[place])) / max(int(counts[place]), 1)
    return math.exp(2 * ((place + inside) / BINS) ** 2) / classes


def share_below(counts: Integers, classes: int, threshold: float) -> float:
    """Return the share of the images of a histogram that lie below a threshold."""
    total = int(counts.sum())
    if not total or threshold <= 0:
        return 0.0
    place = _place(threshold, classes)
    whole = min(int(place), BINS - 1)
    return float((counts[:whole].sum() + (place - whole) * counts[whole]) / total)


def pack_counts(counts: Integers) -> bytes:
    """Return a histogram as it travels: 4 bytes per bin."""
    return counts.astype("<u4").tobytes()


def unpack_counts(content: bytes) -> NDArray[np.int64] | None:
    """Return the histogram in a message; None if it cannot be that of a device."""
    if len(content) != 4 * BINS:
        return None
    counts = np.frombuffer(content, "<u4").astype(np.int64)
    return counts if counts.sum() <= MOST_IMAGES else None
