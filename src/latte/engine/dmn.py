"""DMN over a whole federation."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np

from ..core.maths import softmax
from ..core.types import Mask, Reals
from ..methods.dmn import DmnParams, softened_entropy
from ..methods.latte.readout import CANCELLED
from .loops.queues import FIRST, QueueShape
from .queues import Block, Lives, Order, QueueEngine, replay_queues
from .streams import Streams, find_near_ties, settle


class DmnEngine(QueueEngine[DmnParams]):
    """One memory, whose weight and beta make the grid."""

    readout: ClassVar[tuple[str, str]] = ("weight", "beta")

    def reader(
        self, streams: Streams, params: DmnParams, order: Order, betas: Reals
    ) -> Callable[[Block], tuple[Reals, Reals]]:
        """Replay the memory, with the entropy that DMN goes by; what reads a block gives two kinds of probabilities."""
        classes = streams.zero_shot.classes
        entropy: Reals = softened_entropy(softmax(streams.logits))
        doubtful = find_near_ties(order.parts * classes + streams.pseudo, entropy)
        settle(streams, doubtful)
        for k in np.flatnonzero(doubtful):  # one by one, as the readable method: the last bit may decide
            entropy[k] = softened_entropy(softmax(streams.logits[k]))
        lives = replay_queues(order, streams.pseudo, entropy, QueueShape(classes, params.k, FIRST))
        return lambda block: (
            softmax(streams.logits[block.samples]),
            _memory(streams, block, *lives.during(block), betas),
        )

    def confidences(self, scores: Reals) -> Reals:
        """Return the share of the largest of probabilities that were added up."""
        shares: Reals = scores.max(axis=-1) / scores.sum(axis=-1)
        return shares


def _memory(streams: Streams, block: Block, lives: Lives, alive: Mask, betas: Reals) -> Reals:
    """Return the memory's probabilities (betas, B, C)."""
    scale, vectors = streams.zero_shot.scale, streams.vectors(lives.sample)
    text = streams.logits[block.samples] / scale
    similarity = (streams.vectors(block.samples) @ vectors.T).astype(np.float64)
    cosines = np.empty((len(betas), *text.shape))
    for y in range(text.shape[1]):
        mine = np.flatnonzero(lives.label == y)
        wide = vectors[mine].astype(np.float64)
        gram = np.ones((len(mine) + 1, len(mine) + 1))  # the products of the images and, last, the text of a class
        gram[:-1, :-1] = wide @ wide.T
        gram[-1, :-1] = gram[:-1, -1] = streams.logits[lives.sample[mine], y] / scale
        near = np.concatenate([similarity[:, mine], text[:, y : y + 1]], axis=1)
        there = np.concatenate([alive[:, mine], np.ones((len(text), 1), np.bool_)], axis=1)
        cosines[:, :, y] = _cosines(near, there, gram, betas)
    return softmax(scale * cosines)


def _cosines(near: Reals, there: Mask, gram: Reals, betas: Reals) -> Reals:
    """Return f · normalise(Σ exp(-beta (1 - f·a)) a) (betas, B) over the images and the text of a class."""
    largest = np.where(there, near, -np.inf).max(axis=1, keepdims=True)
    weights = np.exp(betas[:, None, None] * np.where(there, near - largest, 0.0))  # (betas, B, U)
    weights *= there
    squares = np.einsum("...u,...u->...", (weights.reshape(-1, len(gram)) @ gram).reshape(weights.shape), weights)
    live = squares > CANCELLED
    dots = np.where(live, np.einsum("...u,...u->...", weights, near), 0.0)
    cosines: Reals = dots / np.sqrt(squares, where=live, out=np.ones_like(squares))
    return cosines
