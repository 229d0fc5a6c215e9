"""TDA over a whole federation, each client by itself or one cache for all."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...core.types import Integers, Mask, Reals, Vectors
from ...methods.tda import TdaParams, by_log2
from ..calibration import confidences_of
from .lifetimes import Lives, Order, blocks, lives_of, softmax_rows
from .method_engine import ReadoutAxes
from .queues import LATEST, QueueShape, replay_queues
from .streams import Streams, find_near_ties, settle
from .tolerances import NEAR_LIMIT


class Queries(NamedTuple):
    """The vectors (B, D) of some samples, and their places (B,) in the order in which they are handled."""

    places: Integers
    vectors: Vectors


def run_tda(streams: Streams, params: TdaParams, order: Order, axes: ReadoutAxes) -> tuple[Integers, Reals]:
    """Return labels and confidences (alphas, betas, n) for every alpha and beta of the positive cache."""
    classes = streams.zero_shot.classes
    settle(
        streams, find_near_ties(order.parts * classes + streams.pseudo, streams.entropy) | _near_limits(streams, params)
    )
    positive = _lives(streams, order, QueueShape(classes, params.k, LATEST), np.ones(len(streams), np.bool_))
    window = by_log2(streams.entropy)
    halfway = (params.entropy_above < window) & (window < params.entropy_below)
    negative = _lives(streams, order, QueueShape(classes, params.k_negative, LATEST), halfway)
    alphas, betas = axes
    labels = np.empty((len(alphas), len(betas), len(streams)), np.int64)
    confidences = np.empty(labels.shape)
    for first, last, start in blocks(order):
        samples = order.sequence[first:last]
        queries = Queries(np.arange(first, last, dtype=np.int64), streams.vectors(samples))
        logits = streams.logits[samples]
        logits -= _repulsion(streams, params, negative.during(first, last, start), queries)
        attracted = _attraction(streams, positive.during(first, last, start), queries, betas)
        for a, alpha in enumerate(alphas):
            scores = logits + alpha * attracted
            labels[a, :, samples], confidences[a, :, samples] = scores.argmax(axis=-1).T, confidences_of(scores).T
    return labels, confidences


def _lives(streams: Streams, order: Order, shape: QueueShape, eligible: Mask) -> Lives:
    """Replay one cache: only ``eligible`` samples are offered to it."""
    offered = eligible[order.sequence]
    starts = np.concatenate([[0], np.cumsum(offered)])[order.starts]
    slot = replay_queues(order.sequence[offered], starts, streams.pseudo, streams.entropy, shape)
    return lives_of(slot, streams.pseudo, order, shape)


def _attraction(streams: Streams, lives: Lives, queries: Queries, betas: Reals) -> Reals:
    """Return Σ exp(-beta (1 - f·f_j)) over the items of each class (betas, B, C)."""
    distance, alive = _distances(streams, lives, queries.vectors), lives.alive(queries.places)
    classes = np.eye(streams.zero_shot.classes)[lives.label]
    return np.stack([(np.exp(-beta * distance) * alive) @ classes for beta in betas])


def _repulsion(streams: Streams, params: TdaParams, lives: Lives, queries: Queries) -> Reals:
    """Return what the negative cache takes from the classes whose stored probability is inside its window."""
    distance, alive = _distances(streams, lives, queries.vectors), lives.alive(queries.places)
    weights = np.exp(-params.beta_negative * distance) * alive
    p = softmax_rows(streams, lives.sample)
    inside = (p > params.probability_above) & (p < params.probability_below)
    total: Reals = weights @ inside.astype(np.float64)
    return params.alpha_negative * total


def _distances(streams: Streams, lives: Lives, own: Vectors) -> Reals:
    """Return 1 - f·f_j (B, U); rounding can put a cosine above 1."""
    similarity = own @ streams.vectors(lives.sample).T
    distance: Reals = 1.0 - np.minimum(similarity.astype(np.float64), 1.0)
    return distance


def _near_limits(streams: Streams, params: TdaParams) -> Mask:
    """Return the samples that rounding could put on the other side of a limit of the negative cache."""
    window = by_log2(streams.entropy)
    near: Mask = np.zeros(len(streams), np.bool_)
    for limit in (params.entropy_above, params.entropy_below):
        near |= np.abs(window - limit) <= NEAR_LIMIT * limit
    p = softmax_rows(streams, np.arange(len(streams)))
    for limit in (params.probability_above, params.probability_below):
        near |= (np.abs(p - limit) <= NEAR_LIMIT * limit).any(axis=1) & (limit < 1)
    return near
