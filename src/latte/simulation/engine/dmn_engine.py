"""DMN over a whole federation, each client by itself or one memory for all."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...core.maths import softmax
from ...core.readout import CANCELLED
from ...core.types import Integers, Mask, Reals, Vectors
from ...methods.dmn import DmnParams, softened_entropy
from .lifetimes import Lives, Order, blocks, lives_of, softmax_rows
from .method_engine import ReadoutAxes
from .queues import FIRST, QueueShape, replay_queues
from .streams import Streams, find_near_ties, settle


class Handled(NamedTuple):
    """Some samples (B,), and their places (B,) in the order in which they are handled."""

    places: Integers
    samples: Integers


def run_dmn(streams: Streams, params: DmnParams, order: Order, axes: ReadoutAxes) -> tuple[Integers, Reals]:
    """Return labels and confidences (weights, betas, n) for every weight of the memory and every beta."""
    lives = _lives(streams, params, order)
    weights, betas = axes
    labels = np.empty((len(weights), len(betas), len(streams)), np.int64)
    confidences = np.empty(labels.shape)
    for first, last, start in blocks(order):
        samples = order.sequence[first:last]
        text = softmax_rows(streams, samples)
        handled = Handled(np.arange(first, last), samples)
        memory = _memory(streams, lives.during(first, last, start), handled, betas)
        for w, weight in enumerate(weights):
            scores = text + weight * memory
            labels[w, :, samples] = scores.argmax(axis=-1).T
            confidences[w, :, samples] = (scores.max(axis=-1) / scores.sum(axis=-1)).T
    return labels, confidences


def _lives(streams: Streams, params: DmnParams, order: Order) -> Lives:
    """Replay the memory, with the entropy that DMN goes by."""
    classes = streams.zero_shot.classes
    entropy: Reals = softened_entropy(softmax_rows(streams, np.arange(len(streams))))
    doubtful = find_near_ties(order.parts * classes + streams.pseudo, entropy)
    settle(streams, doubtful)
    for k in np.flatnonzero(doubtful):  # one by one, as the readable method: the last bit may decide
        entropy[k] = softened_entropy(softmax(streams.logits[k]))
    shape = QueueShape(classes, params.k, FIRST)
    slot = replay_queues(order.sequence, order.starts, streams.pseudo, entropy, shape)
    return lives_of(slot, streams.pseudo, order, shape)


def _memory(streams: Streams, lives: Lives, handled: Handled, betas: Reals) -> Reals:
    """Return the memory's probabilities (betas, B, C)."""
    places, samples = handled
    own, alive = streams.vectors(samples), lives.alive(places)
    scale = streams.zero_shot.scale
    vectors, text = streams.vectors(lives.sample), streams.logits[samples] / scale
    similarity = (own @ vectors.T).astype(np.float64)
    cosines = np.empty((len(betas), *text.shape))
    for y in range(text.shape[1]):
        mine = np.flatnonzero(lives.label == y)
        gram = _gram(vectors[mine], streams.logits[lives.sample[mine], y] / scale)
        near = np.concatenate([similarity[:, mine], text[:, y : y + 1]], axis=1)  # the text last
        there = np.concatenate([alive[:, mine], np.ones((len(places), 1), np.bool_)], axis=1)
        cosines[:, :, y] = _cosines(near, there, gram, betas)
    return softmax(scale * cosines)


def _gram(vectors: Vectors, text: Reals) -> Reals:
    """Return the products (U + 1, U + 1) of the images and the text of a class."""
    wide = vectors.astype(np.float64)
    gram = np.ones((len(wide) + 1, len(wide) + 1))
    gram[:-1, :-1] = wide @ wide.T
    gram[-1, :-1] = gram[:-1, -1] = text
    return gram


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
