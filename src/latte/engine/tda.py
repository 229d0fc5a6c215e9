"""TDA over a whole federation."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..core.maths import softmax
from ..core.types import Mask, Reals, Vectors
from ..methods.tda import TdaParams, by_log2
from ..simulation.results import confidences_of
from .loops.arrays import NEAR_LIMIT
from .loops.queues import LATEST, QueueShape
from .queues import Block, Lives, Order, QueueEngine, replay_queues
from .streams import Streams, find_near_ties, settle


class TdaEngine(QueueEngine[TdaParams]):
    """Two caches; the readout of the positive one makes the grid."""

    def reader(
        self, streams: Streams, params: TdaParams, order: Order, betas: Reals
    ) -> Callable[[Block], tuple[Reals, Reals]]:
        """Replay both caches; what reads a block gives z - negative cache, and the positive one."""
        classes = streams.zero_shot.classes
        ties = find_near_ties(order.parts * classes + streams.pseudo, streams.entropy)
        settle(streams, ties | _near_limits(streams, params))
        positive = replay_queues(order, streams.pseudo, streams.entropy, QueueShape(classes, params.k, LATEST))
        window, shape = by_log2(streams.entropy), QueueShape(classes, params.k_negative, LATEST)
        halfway = (params.entropy_above < window) & (window < params.entropy_below)
        negative = replay_queues(order, streams.pseudo, streams.entropy, shape, halfway)

        def read(block: Block) -> tuple[Reals, Reals]:
            own, logits = streams.vectors(block.samples), streams.logits[block.samples]
            lives, alive = negative.during(block)
            weights = np.exp(-params.beta_negative * _distances(streams, lives, own)) * alive
            p = softmax(streams.logits[lives.sample])
            inside = (p > params.probability_above) & (p < params.probability_below)
            logits -= params.alpha_negative * (weights @ inside.astype(np.float64))
            lives, alive = positive.during(block)
            distance, one_hot = _distances(streams, lives, own), np.eye(classes)[lives.label]
            # Σ exp(-beta (1 - f·f_j)) over the items of each class
            return logits, np.stack([(np.exp(-beta * distance) * alive) @ one_hot for beta in betas])

        return read

    def confidences(self, scores: Reals) -> Reals:
        """Return the largest probabilities of logits."""
        return confidences_of(scores)


def _distances(streams: Streams, lives: Lives, own: Vectors) -> Reals:
    """Return 1 - f·f_j (B, U); rounding can put a cosine above 1."""
    similarity = own @ streams.vectors(lives.sample).T
    distance: Reals = 1.0 - np.minimum(similarity.astype(np.float64), 1.0)
    return distance


def _near_limits(streams: Streams, params: TdaParams) -> Mask:
    """Return the samples that rounding could put on the other side of a limit of the negative cache."""
    window, p = by_log2(streams.entropy), softmax(streams.logits)
    near: Mask = np.zeros(len(streams), np.bool_)
    for limit in (params.entropy_above, params.entropy_below):
        near |= np.abs(window - limit) <= NEAR_LIMIT * limit
    for limit in (params.probability_above, params.probability_below):
        near |= (np.abs(p - limit) <= NEAR_LIMIT * limit).any(axis=1) & (limit < 1)
    return near
