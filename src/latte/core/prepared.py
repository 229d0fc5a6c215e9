"""Many uploads of prototypes checked at once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .maths import entropy
from .own_class import own_classes
from .types import Mask, Prototypes, Reals, Vectors
from .validate import unit_lengths
from .zero_shot import ZeroShot


def prepared_rows(
    uploads: Prototypes, roundings: Reals, zero_shot: ZeroShot
) -> tuple[Mask, Iterator[tuple[Vectors, Reals, Mask]]]:
    """Return which of m uploads are good, and of each the vectors, entropies and classes seen, as a memory stores them.

    ``uploads`` has ``vectors`` (m, C, D) and ``seen`` (m, C). The results are those of single uploads, bit for bit.
    """
    seen = uploads.seen
    vectors = np.where(seen[:, :, None], uploads.vectors, np.float32(0))
    lengths = unit_lengths(vectors.reshape(-1, vectors.shape[2])).reshape(seen.shape)  # NaN: not of unit length
    # one class is measured in another order than several: left to the check of a single upload
    good = (np.isfinite(lengths) | ~seen).all(axis=1) & (seen.sum(axis=1) > 1)
    vectors /= np.where(seen & good[:, None], lengths, np.float32(1))[:, :, None]
    vectors[~good] = 0
    logits = zero_shot.logits(vectors)  # (m, C, C): one product per upload
    good &= own_classes(logits, seen, zero_shot, roundings)
    return good, zip(vectors, np.where(seen, entropy(logits), 1.0), seen, strict=True)
