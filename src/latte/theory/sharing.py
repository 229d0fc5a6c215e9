"""How clients of the sphere model share: which clients contribute (eq. 2), what they send, and the merge (eq. 3).

In the appendix, clients share *samples* and each keeps the k most certain of all of them. In the algorithm, only the
most similar clients contribute, with one *prototype* per class. Both are here, so that the difference can be measured:

- ``Sharing.selection``: ``everyone`` (the proof), or the ``nearest`` clients, by their class means (eq. 2);
- ``Sharing.content``: ``samples``, the whole local memory (the proof), or a ``prototype``, its mean (eq. 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..core.readout import MergedItems, merge_memories
from ..core.types import External, Mask, Reals
from ..core.validate import at_least, choice
from .model import SphereClient

SELECTIONS = ("everyone", "nearest")
CONTENTS = ("samples", "prototype")


@dataclass(frozen=True, slots=True)
class Sharing:
    """Which clients contribute and what they send; with ``selection="nearest"`` there are ``donors`` of them."""

    selection: str = "everyone"
    content: str = "samples"
    donors: int = 0

    def __post_init__(self) -> None:
        choice("selection", self.selection, SELECTIONS)
        choice("content", self.content, CONTENTS)
        at_least("donors", self.donors, 0)


def merge(own: SphereClient, others: Sequence[SphereClient], sharing: Sharing) -> MergedItems:
    """Return, per class, the k most certain items of the client's own memory and the others' contributions."""
    return merge_memories(own.memory, _external(own, others, sharing))


def _external(own: SphereClient, others: Sequence[SphereClient], sharing: Sharing) -> External:
    """Return the contributions of the others side by side: (2, E, d), (2, E), (2, E)."""
    parts = [_contribution(other, sharing.content) for other in others]
    if sharing.selection == "nearest":
        _keep_nearest(own, others, parts, sharing.donors)
    if not parts:
        return External(np.zeros((2, 0, own.domain.d), np.float32), np.ones((2, 0)), np.zeros((2, 0), np.bool_))
    return External(
        np.concatenate([part.vectors for part in parts], axis=1),
        np.concatenate([part.entropy for part in parts], axis=1),
        np.concatenate([part.valid for part in parts], axis=1),
    )


def _contribution(client: SphereClient, content: str) -> External:
    memory = client.memory
    if content == "samples":
        return External(memory.vectors, memory.entropy, memory.valid.copy())
    means, seen = class_means(client)
    uncertain = client.classifier.entropies(client.classifier.margins(means))  # B5: of the prototype itself
    return External(means[:, None].astype(np.float32), uncertain[:, None], seen[:, None])


def class_means(client: SphereClient) -> tuple[Reals, Mask]:
    """Return the mean of the stored vectors of each class (2, d), and which classes have any (2,)."""
    memory = client.memory
    count = memory.valid.sum(axis=1)
    total = np.where(memory.valid[:, :, None], memory.vectors, 0).sum(axis=1, dtype=np.float64)
    return total / np.maximum(count, 1)[:, None], count > 0


def _keep_nearest(own: SphereClient, others: Sequence[SphereClient], parts: list[External], donors: int) -> None:
    """Invalidate, per class, the contributions of all but the ``donors`` clients nearest to the client's own mean."""
    mine, _ = class_means(own)
    theirs = [class_means(other) for other in others]
    for y in (0, 1):
        gaps = [float(np.linalg.norm(means[y] - mine[y])) if seen[y] else np.inf for means, seen in theirs]
        for far in np.argsort(gaps, kind="stable")[donors:]:
            parts[far].valid[y] = False
