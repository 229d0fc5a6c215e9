"""ECALP, label propagation on a graph that grows with every image: texts are its labelled nodes.

Every embedding is kept for ever, so an image costs more the later it comes; ``window`` keeps the last ones. Facts of
the official code that its text does not mention: the newest image stands in the graph twice and is answered at its
*twin*; the older of two images is weighted by the variance of the texts and the newer is not; a fifth of each label is
carried over to the next image; the answer is the softmax of ten thousand times the score, so nearly one class.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

import numpy as np

from ..core.maths import entropy_of_one, softmax
from ..core.types import Arrays, Integers, MemoryFill, Prediction, Reals, State, Vectors
from ..core.validate import at_least, exactly, require
from ..errors import refuse
from .base import BaseMethod, Given, Origin
from .traffic import Content, Messages

if TYPE_CHECKING:
    from ..core.zero_shot import ZeroShot
    from .options import EcalpOptions


ITERATIONS, CARRIED, SHARPNESS = 3, 1 / 5, 10_000.0
SPARE = 2  # neighbours beyond k, so that the first k stay exact when a twin leaves
NOBODY, NO_SIMILARITY = -1, -2.0
MANY = 5000  # images of a graph: from there on, an image takes long


@dataclass(frozen=True, slots=True)
class EcalpParams:
    """The parameters of ECALP.

    Parameters
    ----------
    k
        Neighbours of an image among images.
    k_text
        Neighbours of an image among texts.
    gamma
        The power of a similarity that makes the weight of an edge; even, so that no weight is negative.
    window
        How many images are kept; 0 keeps all.
    """

    k: int = 8
    k_text: int = 3
    gamma: int = 10
    window: int = 0

    def __post_init__(self) -> None:
        at_least("k", self.k, 1, 1000)
        at_least("k_text", self.k_text, 1)
        at_least("gamma", self.gamma, 2, 1000)
        at_least("window", self.window, 0)
        if self.gamma % 2:
            raise refuse("gamma", self.gamma, "an even number")
        if 0 < self.window < self.k + SPARE + 2:
            raise refuse("window", self.window, f"0, or at least {self.k + SPARE + 2}")


class Ecalp(BaseMethod[EcalpParams]):
    """One client, or, shared, all of them: **every embedding then leaves its client**.

    >>> import numpy as np
    >>> from latte import ZeroShot
    >>> Ecalp(ZeroShot(np.eye(2), ("cat", "dog"))).predict([[0.6, 0.8]]).label
    1
    """

    Params: ClassVar = EcalpParams
    title: ClassVar = "ECALP"
    origin: ClassVar = Origin(
        paper=(
            "Efficient and Context-Aware Label Propagation for Zero-/Few-Shot Training-Free "
            "Adaptation of Vision-Language Model"
        ),
        venue="ICLR 2025",
        code="Yushu-Li/ECALP",
        licence="MIT",
    )

    if TYPE_CHECKING:

        def __init__(
            self, zero_shot: ZeroShot, params: Given[EcalpParams] = None, **options: Unpack[EcalpOptions]
        ) -> None: ...

    @staticmethod
    def messages(params: EcalpParams, classes: int) -> Messages:
        """Return what the global form sends for every image: the embedding up, the label of the image down."""
        return Content(1), Content(0, numbers=classes)

    def reset(self) -> None:
        """Forget every image."""
        spread = self.zero_shot.text.astype(np.float64).var(axis=0, ddof=1)
        self._emphasis = spread / np.linalg.norm(spread)
        self._take(np.zeros((0, self.zero_shot.dim), np.float32))

    def _take(self, vectors: Vectors) -> None:
        """Start with these images (n, D) and no edges between them."""
        count, width = len(vectors), self.params.k + SPARE
        self._count = count
        self._vectors = vectors.astype(np.float64)  # these five have room for more rows than images
        self._weighted = self._emphasised(self._vectors)
        self._neighbours = np.full((count, width), NOBODY)
        self._similarities = np.full((count, width), NO_SIMILARITY)
        self._labels, self._values = np.zeros(count, np.int64), np.zeros(count)
        self._text_neighbours, self._text_weights = self._texts_of(self._vectors)

    def _emphasised(self, vectors: Reals) -> Reals:
        rows = vectors * self._emphasis
        lengths = np.sqrt((rows * rows).sum(axis=-1, keepdims=True))
        emphasised: Reals = rows / np.maximum(lengths, 1e-300)
        return emphasised

    def _texts_of(self, vectors: Reals) -> tuple[Integers, Reals]:
        """Return the nearest classes (n, k_text) of images (n, D), and the weights of these edges."""
        cosines = np.einsum("nd,cd->nc", vectors, self.zero_shot.text.astype(np.float64))
        nearest = np.argsort(-cosines, axis=1, kind="stable")[:, : self.params.k_text]
        return nearest, np.take_along_axis(cosines, nearest, axis=1) ** self.params.gamma

    # --- one image ----------------------------------------------------------------------------------------

    def predict_rows(self, views: Vectors) -> Prediction:
        """Put the plain view and its twin into the graph, propagate labels, and answer from the twin."""
        vector = views[0].astype(np.float64)
        if self._count == self.params.window > 0:
            self._forget_the_oldest()
        elif self._count == MANY:
            message = (
                f"ECALP keeps more than {MANY} images, and an image costs more the more there are: choose a window"
            )
            warnings.warn(message, stacklevel=3)
        self._connect(vector)
        scores = self._propagate()
        uncertainty = entropy_of_one(self.zero_shot.logits(views[0]))
        return self.prediction(softmax(SHARPNESS * scores), uncertainty, normalised_by_sum=True)

    def _connect(self, vector: Reals) -> None:
        """Add an image: i is its number, i + 1 that of its twin, which stood for i before."""
        i, k = self._count, self.params.k
        self._make_room(i + 1)
        near = min(k, i + 2)
        kept = near if i <= near else min(near + i - near, k + SPARE)
        similar = self._weighted[:i] @ vector
        # old images: the twin of the image before leaves; twin and image come, the twin first among equals
        ids = np.column_stack([self._neighbours[:i], np.full(i, i + 1), np.full(i, i)])
        values = np.column_stack([self._similarities[:i], similar, similar])
        values[:, :-2][ids[:, :-2] == i] = NO_SIMILARITY
        self._keep(slice(0, i), ids, values, kept)
        # the image itself: everyone, its twin and itself
        own = self._emphasised(vector)
        itself = float(own @ vector)
        ids = np.concatenate([np.arange(i), [i + 1, i]])[None]
        self._keep(slice(i, i + 1), ids, np.concatenate([similar, [itself, itself]])[None], kept)
        self._vectors[i], self._weighted[i] = vector, own
        self._labels[i], self._values[i] = 0, 0.0
        self._text_neighbours[i], self._text_weights[i] = (part[0] for part in self._texts_of(vector[None]))
        self._count = i + 1

    def _keep(self, rows: slice, ids: Integers, values: Reals, kept: int) -> None:
        """Write the ``kept`` best of ``ids`` (n, m) with their similarities into the lists of ``rows``."""
        best = np.argsort(-values, axis=1, kind="stable")[:, :kept]
        self._neighbours[rows], self._similarities[rows] = NOBODY, NO_SIMILARITY
        values = np.take_along_axis(values, best, axis=1)
        width = best.shape[1]
        self._similarities[rows, :width] = values
        self._neighbours[rows, :width] = np.where(values > NO_SIMILARITY, np.take_along_axis(ids, best, axis=1), NOBODY)

    def _propagate(self) -> Reals:
        """Propagate the labels of the texts three times; carry a fifth of each; return the scores of the twin (C,)."""
        count, classes = self._count, self.zero_shot.classes
        nodes = count + 1  # the last is the twin, whose edges are those of the image
        rows = np.append(np.arange(count), count - 1)
        k = min(self.params.k, nodes)
        neighbours = self._neighbours[rows, :k]
        weights = np.where(neighbours == NOBODY, 0.0, self._similarities[rows, :k] ** self.params.gamma)
        texts, text_weights = self._text_neighbours[rows], self._text_weights[rows]
        targets = np.maximum(neighbours, 0).ravel()
        degree = weights.sum(axis=1) + np.bincount(targets, weights.ravel(), nodes) + text_weights.sum(axis=1)
        scale = 1 / (np.sqrt(degree) + 1e-6)
        text_degree = np.bincount(texts.ravel(), text_weights.ravel(), classes)
        from_texts = np.zeros((nodes, classes))
        text_scale = 1 / (np.sqrt(text_degree) + 1e-6)
        np.put_along_axis(from_texts, texts, scale[:, None] * text_weights * text_scale[texts], axis=1)
        labels = np.zeros((nodes, classes))
        labels[np.arange(count), self._labels[:count]] = self._values[:count]
        order = np.argsort(targets, kind="stable")  # edges by the node that they lead to
        sources, flat = order // k, weights.ravel()[order]
        starts = np.searchsorted(targets[order], np.arange(nodes))
        reached = np.append(starts[1:], len(order)) > starts
        for _ in range(ITERATIONS):
            scaled = scale[:, None] * labels
            spread = np.einsum("nk,nkc->nc", weights, scaled[np.maximum(neighbours, 0)])
            back = np.add.reduceat(flat[:, None] * scaled[sources], starts[reached], axis=0)
            spread[reached] += back
            labels = from_texts + scale[:, None] * spread
        self._labels[:count] = labels[:count].argmax(axis=1)
        self._values[:count] = CARRIED * labels[:count].max(axis=1)
        scores: Reals = labels[count]
        return scores

    # --- state --------------------------------------------------------------------------------------------

    _ROWS = (
        *("_vectors", "_weighted", "_neighbours", "_similarities", "_labels", "_values"),
        *("_text_neighbours", "_text_weights"),
    )

    def _make_room(self, count: int) -> None:
        if count > len(self._vectors):
            for name in self._ROWS:
                array = getattr(self, name)
                room = np.zeros((max(16, len(array)), *array.shape[1:]), array.dtype)
                setattr(self, name, np.concatenate([array, room]))

    def _forget_the_oldest(self) -> None:
        for name in self._ROWS:
            array = getattr(self, name)
            array[: self._count - 1] = array[1 : self._count].copy()
        self._count -= 1
        self._neighbours[: self._count] -= 1
        gone = self._neighbours[: self._count] < 0
        self._neighbours[: self._count][gone], self._similarities[: self._count][gone] = NOBODY, NO_SIMILARITY

    def memory_fill(self) -> MemoryFill:
        """Return how many images the graph has."""
        return MemoryFill(self._count, self.params.window or None, len(np.unique(self._labels[: self._count])))

    def state(self) -> State:
        """Return a copy of the graph: images, their neighbours and what they carry."""
        n = self._count
        return {
            "vectors": self._vectors[:n].astype(np.float32),
            "neighbours": self._neighbours[:n].copy(),
            "similarities": self._similarities[:n].copy(),
            "labels": self._labels[:n].copy(),
            "values": self._values[:n].copy(),
        }

    def load(self, arrays: Arrays) -> None:
        """Continue from what :meth:`state` returned; nothing changes if it does not fit."""
        require(arrays, ("vectors", "neighbours", "similarities", "labels", "values"))
        n, width = (len(arrays["vectors"]) if np.ndim(arrays["vectors"]) else 0), self.params.k + SPARE
        vectors: Any = exactly("vectors", arrays["vectors"], np.float32, (n, self.zero_shot.dim))
        neighbours = exactly("neighbours", arrays["neighbours"], np.int64, (n, width))
        similarities = exactly("similarities", arrays["similarities"], np.float64, (n, width))
        labels = exactly("labels", arrays["labels"], np.int64, (n,))
        values = exactly("values", arrays["values"], np.float64, (n,))
        for name, array in (("vectors", vectors), ("similarities", similarities), ("values", values)):
            if not np.isfinite(array).all():
                raise refuse(name, "NaN or infinite values", "finite values")
        known = n == 0 or (neighbours.min() >= NOBODY and neighbours.max() <= n and labels.min() >= 0)
        if not known or (n and labels.max() >= self.zero_shot.classes):
            raise refuse("neighbours", "a number of no image", f"numbers of {n} images and of their classes")
        self._take(vectors)
        self._neighbours, self._similarities = neighbours.copy(), similarities.copy()
        self._labels, self._values = labels.copy(), values.copy()
