"""How clients of the sphere model share: who is asked (eq. 2), what is given, and what is kept (eq. 3).

The appendix lets clients share *samples* and keep the k most certain of all of them. The algorithm asks the
most similar clients first and is given one *prototype* per class and client. Both are here, so that the
difference can be measured:

- ``Sharing.asks``: ``everyone`` (the proof), or the ``nearest`` clients, by their class means (eq. 2);
- ``Sharing.gives``: ``samples``, the whole local memory (the proof), or a ``prototype``, its mean (eq. 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..core.readout import MergedItems, merge_memories
from ..core.types import External, Mask, Reals
from ..core.validate import at_least, choice
from .model import Client

ASKS = ("everyone", "nearest")
GIVES = ("samples", "prototype")


@dataclass(frozen=True, slots=True)
class Sharing:
    """Who is asked, what is given; ``donors`` is how many are asked when only the nearest are."""

    asks: str = "everyone"
    gives: str = "samples"
    donors: int = 0

    def __post_init__(self) -> None:
        choice("asks", self.asks, ASKS)
        choice("gives", self.gives, GIVES)
        at_least("donors", self.donors, 0)


def merge(own: Client, others: Sequence[Client], sharing: Sharing) -> MergedItems:
    """Return the k most certain of one's own memory and what the others give, per class: (2, k, d), (2, k), (2, k)."""
    return merge_memories(own.memory, _external(own, others, sharing))


def _external(own: Client, others: Sequence[Client], sharing: Sharing) -> External:
    """Return what comes from the others, side by side: (2, E, d), (2, E), (2, E)."""
    gifts = [_gift(other, sharing.gives) for other in others]
    if sharing.asks == "nearest":
        _refuse_the_far(own, others, gifts, sharing.donors)
    if not gifts:
        return External.empty(2, own.domain.d)
    return External(
        np.concatenate([gift.vectors for gift in gifts], axis=1),
        np.concatenate([gift.entropy for gift in gifts], axis=1),
        np.concatenate([gift.valid for gift in gifts], axis=1),
    )


def _gift(client: Client, gives: str) -> External:
    memory = client.memory
    if gives == "samples":
        return External(memory.vectors, memory.entropy, memory.valid.copy())
    means, seen = class_means(client)
    uncertain = client.classifier.entropies(client.classifier.margins(means))  # B5: of the prototype itself
    return External(means[:, None].astype(np.float32), uncertain[:, None], seen[:, None])


def class_means(client: Client) -> tuple[Reals, Mask]:
    """Return the mean of what is stored per class (2, d) and which classes have any (2,)."""
    memory = client.memory
    count = memory.valid.sum(axis=1)
    total = np.where(memory.valid[:, :, None], memory.vectors, 0).sum(axis=1, dtype=np.float64)
    return total / np.maximum(count, 1)[:, None], count > 0


def _refuse_the_far(own: Client, others: Sequence[Client], gifts: list[External], donors: int) -> None:
    """Switch off, per class, the gifts of all but the ``donors`` clients nearest to one's own class mean."""
    mine, _ = class_means(own)
    theirs = [class_means(other) for other in others]
    for y in (0, 1):
        gaps = [float(np.linalg.norm(means[y] - mine[y])) if seen[y] else np.inf for means, seen in theirs]
        for far in np.argsort(gaps, kind="stable")[donors:]:
            gifts[far].valid[y] = False
