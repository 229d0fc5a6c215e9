"""Queues over a whole federation: TDA and DMN.

A sample lives in a queue from its insertion to its eviction. What a queue holds at which time does not depend on the
readout. So the insertions are replayed once; then a block of samples is compared with everything that lives during the
block, and each sample weighs the items that live at its time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from ..core.maths import softmax
from ..core.types import Integers, Mask, Reals, Vectors
from ..data.federation import Federation
from ..methods.dmn import DmnParams, softened_entropy
from ..methods.latte.readout import CANCELLED
from ..methods.tda import TdaParams, by_log2
from ..simulation.results import confidences_of
from ..simulation.simulator import rounds
from .api import GridEngine, GridOutcome, ReadoutAxes, ReplayOptions
from .loops.arrays import NEAR_LIMIT
from .loops.queues import FIRST, LATEST, QueueShape, fill_queues, queue_room
from .streams import Streams, find_near_ties, lay_out, settle

P = TypeVar("P")

READ_AT_ONCE = 128  # samples
NEVER = np.iinfo(np.int64).max


class Block(NamedTuple):
    """Some samples (B,), their places (B,) in the order in which they are handled, and where their part starts."""

    samples: Integers
    places: Integers
    start: int


@dataclass(frozen=True, eq=False)
class Order:
    """The order in which samples are handled: each part of ``sequence`` has a memory of its own."""

    sequence: Integers  # (n,) samples
    starts: Integers  # (parts + 1,)

    @classmethod
    def of(cls, streams: Streams, options: ReplayOptions) -> Order:
        """Return that of a run: one memory per client or, if it is shared, one for all."""
        if not options.shared:
            return cls(np.arange(len(streams)), streams.offsets)
        handled, parts = np.zeros(streams.clients, np.int64), [np.zeros(0, np.int64)]
        for turn in rounds(streams.lengths, options.schedule, options.rng):
            active = np.array(turn.active, np.int64)
            parts.append(streams.offsets[active] + handled[active])
            handled[active] += 1
        return cls(np.concatenate(parts), np.array([0, len(streams)]))

    @property
    def parts(self) -> Integers:
        """The part of every sample (n,), by sample."""
        part = np.empty(len(self.sequence), np.int64)
        part[self.sequence] = np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))
        return part

    def blocks(self) -> Iterator[Block]:
        """Yield all samples, none of two parts together."""
        for start, stop in zip(self.starts[:-1], self.starts[1:], strict=True):
            for first in range(start, stop, READ_AT_ONCE):
                places = np.arange(first, min(first + READ_AT_ONCE, stop), dtype=np.int64)
                yield Block(self.sequence[places], places, int(start))


@dataclass(frozen=True, eq=False)
class Lives:
    """Items in the order of their insertion: the sample, and from which place of the sequence until which it lives."""

    sample: Integers
    label: Integers
    since: Integers
    until: Integers

    def during(self, block: Block) -> tuple[Lives, Mask]:
        """Return the items that live while a block is handled (U,), and which of them at which place (B, U).

        A sample finds itself there.
        """
        begin, end = np.searchsorted(self.since, [block.start, block.places[-1] + 1])
        here = begin + np.flatnonzero(self.until[begin:end] > block.places[0])
        lives = Lives(self.sample[here], self.label[here], self.since[here], self.until[here])
        places = block.places[:, None]
        return lives, (lives.since <= places) & (places < lives.until)


def replay_queues(
    order: Order, label: Integers, entropy: Reals, shape: QueueShape, eligible: Mask | None = None
) -> Lives:
    """Offer all samples, or the ``eligible`` (n,), to the queues of their labels (n,); return who lives when.

    >>> order, entropy = Order(np.arange(3), np.array([0, 3])), np.array([0.5, 0.9, 0.1])
    >>> lives = replay_queues(order, np.zeros(3, int), entropy, QueueShape(1, 1, 0))
    >>> lives.sample, lives.until[:1]
    (array([0, 2]), array([2]))
    """
    offered = np.ones(len(label), np.bool_) if eligible is None else eligible[order.sequence]
    starts = np.concatenate([[0], np.cumsum(offered)])[order.starts]
    slot = np.full(len(label), -1, np.int64)
    fill_queues(order.sequence[offered], starts, label, entropy, shape, queue_room(shape), slot)
    place = np.flatnonzero(slot[order.sequence] >= 0)
    sample = order.sequence[place]
    key = (order.parts[sample] * shape.classes + label[sample]) * shape.slots + slot[sample]
    by_slot = np.lexsort((place, key))
    until = np.full(len(place), NEVER)
    follows = key[by_slot[1:]] == key[by_slot[:-1]]
    until[by_slot[:-1][follows]] = place[by_slot[1:][follows]]
    return Lives(sample, label[sample], place, until)


class QueueEngine(GridEngine[P]):
    """A method with queues on the plain view, each client by itself or one memory for all."""

    serves_shared: ClassVar[bool] = True

    def fits(self, params: Any) -> bool:
        """Say whether the parameters use the plain view only, and look for no copies."""
        return params.views == "first" and super().fits(params)

    def reader(self, streams: Streams, params: P, order: Order, betas: Reals) -> Callable[[Block], tuple[Reals, Reals]]:
        """Replay the queues; return what reads a block.

        That gives scores without what the first parameter of the readout weighs (B, C), and that (betas, B, C).
        """
        raise NotImplementedError

    def confidences(self, scores: Reals) -> Reals:
        """Return the probabilities of the largest of scores (..., C)."""
        raise NotImplementedError

    def run_grid(self, federation: Federation, params: P, axes: ReadoutAxes, options: ReplayOptions) -> GridOutcome:
        """Return the outcomes for all pairs of the two readout parameters."""
        streams = lay_out(federation)
        order = Order.of(streams, options)
        read = self.reader(streams, params, order, axes.betas)
        labels = np.empty((len(axes.alphas), len(axes.betas), len(streams)), np.int64)
        confidences = np.empty(labels.shape)
        for block in order.blocks():
            scores, memory = read(block)
            for a, alpha in enumerate(axes.alphas):
                answers = scores + alpha * memory
                labels[a, :, block.samples] = answers.argmax(axis=-1).T
                confidences[a, :, block.samples] = self.confidences(answers).T
        return GridOutcome(self.readout, *axes, labels, confidences, streams.offsets)


class TdaEngine(QueueEngine[TdaParams]):
    """Two caches; the readout of the positive one makes the grid."""

    def reader(
        self, streams: Streams, params: TdaParams, order: Order, betas: Reals
    ) -> Callable[[Block], tuple[Reals, Reals]]:
        """Replay both caches; what reads a block gives z - negative cache, and the positive one."""
        classes = streams.zero_shot.classes
        ties = find_near_ties(order.parts * classes + streams.pseudo, streams.entropy)
        settle(streams, ties | near_limits(streams, params))
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


def near_limits(streams: Streams, params: TdaParams) -> Mask:
    """Return the samples that rounding could put on the other side of a limit of the negative cache."""
    window, p = by_log2(streams.entropy), softmax(streams.logits)
    near: Mask = np.zeros(len(streams), np.bool_)
    for limit in (params.entropy_above, params.entropy_below):
        near |= np.abs(window - limit) <= NEAR_LIMIT * limit
    for limit in (params.probability_above, params.probability_below):
        near |= (np.abs(p - limit) <= NEAR_LIMIT * limit).any(axis=1) & (limit < 1)
    return near


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
