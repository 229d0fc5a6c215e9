"""Collaboration by addition: statistics of classes go up, the sum of everyone else's comes down.

For methods whose memory is sums of what each image adds: what several clients learnt is then what one client would have
learnt from all of their images, up to order and forgetting.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from ..core.exchange import BaseExchange
from ..core.types import Arrays, Reals, State
from ..core.validate import MOST_SLOTS, check_lengths, exactly, finite_array, message, require
from ..core.zero_shot import ZeroShot
from ..errors import refuse
from .base import ArrayMethod, P
from .ristretto.sums import MOST_IMAGES

NEARNESS = 50.0  # how fast the weight of another client falls with its similarity; chosen on PACS, DTD, Pets and Cars
MOST_SCATTER = 1e4  # per image: unit vectors have less than 4
TINY = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class ClassStatistics:
    """What clients send and get: how many images each class has, their mean, and how they scatter.

    Parameters
    ----------
    counts
        (C,), in images; need not be whole.
    means
        (C, D), at most 1 long, zero where nothing was seen.
    scatter
        (D, D), per image, so that it fits into fp16 however many there are; (0, D) for a method that has none.
    task
        The fingerprint of the classifier.
    """

    vector_fields: ClassVar[tuple[str, ...]] = ("means", "scatter")

    counts: Reals
    means: Reals
    scatter: Reals
    task: str = ""

    @classmethod
    def of(cls, counts: Reals, sums: Reals, scatter: Reals, task: str) -> ClassStatistics:
        """Return the statistics of sums (C, D) of embeddings, and of their whole scatter."""
        means = sums / np.maximum(counts, TINY)[:, None]
        return cls(counts.copy(), means, scatter / max(float(counts.sum()), TINY), task)

    @property
    def sums(self) -> Reals:
        """Counts times means (C, D)."""
        return self.counts[:, None] * self.means

    @property
    def whole_scatter(self) -> Reals:
        """The scatter of all images (D, D)."""
        return float(self.counts.sum()) * self.scatter

    def __repr__(self) -> str:
        return f"ClassStatistics({self.counts.sum():.0f} images, {len(self.counts)} classes, task={self.task[:8]!r})"


def checked(value: ClassStatistics, zero_shot: ZeroShot, scatter: int, most: float, prefix: str) -> ClassStatistics:
    """Return a copy in float64 of statistics that clients can have made, or refuse them."""
    classes, dim = zero_shot.text.shape
    copy = ClassStatistics(
        finite_array(f"{prefix}counts", value.counts, (classes,)),
        finite_array(f"{prefix}means", value.means, (classes, dim)),
        finite_array(f"{prefix}scatter", value.scatter, (scatter, dim)),
        zero_shot.fingerprint,
    )
    if not 0 <= copy.counts.min() <= copy.counts.max() <= most:
        raise refuse(f"{prefix}counts", f"{copy.counts.min():g} to {copy.counts.max():g}", f"images, 0 to {most:g}")
    check_lengths(f"{prefix}means", copy.means, np.ones(classes))
    if np.abs(copy.scatter).max(initial=0.0) > MOST_SCATTER:
        raise refuse(f"{prefix}scatter", "a value that is too large", f"values up to {MOST_SCATTER:g}")
    return copy


def covariance(scatter: Reals) -> Reals:
    """Return the covariance (D, D) nearest to what was received, which rounding or a hostile client may have made none.

    >>> covariance(np.array([[2.0, 0.0], [0.0, -1.0]]))
    array([[2., 0.],
           [0., 0.]])
    """
    symmetric: Reals = (scatter + scatter.T) / 2
    diagonal = np.eye(len(symmetric)) * max(float(np.trace(symmetric)) / max(len(symmetric), 1), TINY)
    try:
        np.linalg.cholesky(symmetric + 1e-6 * diagonal)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(symmetric)
        symmetric = (vectors * np.maximum(values, 0.0)) @ vectors.T
    return symmetric


class SumExchange(BaseExchange[ClassStatistics, ClassStatistics]):
    """Adds up what the other clients have sent.

    Parameters
    ----------
    zero_shot
        The task.
    clients
        Names whose form is checked.
    scatter
        The rows of the scatter matrix, D or 0.
    most
        The most images that a client may claim for a class.
    near
        Weigh clients by the similarity of their means to the receiver's.
    """

    Upload: ClassVar = ClassStatistics
    Download: ClassVar = ClassStatistics

    def __init__(
        self,
        zero_shot: ZeroShot,
        clients: Iterable[str] = (),
        scatter: int = 0,
        most: float = MOST_SLOTS,
        near: bool = False,
    ) -> None:
        super().__init__(zero_shot, clients)
        self.scatter, self.most, self.near = scatter, most, near

    def verify(self, upload: ClassStatistics) -> None:
        """Refuse statistics that no client can have."""
        checked(upload, self.zero_shot, self.scatter, self.most, "upload.")

    def answer(self, client: str, uploads: dict[str, ClassStatistics]) -> ClassStatistics:
        """Return the sum of what the others sent, each with its weight."""
        own, others = uploads[client], [upload for name, upload in uploads.items() if name != client]
        weights = _nearness(own, others) if self.near else np.ones(len(others))
        counts, sums = np.zeros_like(own.counts), np.zeros_like(own.means)
        scatter = np.zeros_like(own.scatter)
        for weight, other in zip(weights, others, strict=True):
            counts += weight * other.counts
            sums += weight * other.sums
            scatter += weight * other.whole_scatter
        return ClassStatistics.of(counts, sums, scatter, self.task)


def _nearness(own: ClassStatistics, others: list[ClassStatistics]) -> Reals:
    """Return exp(-50 (best - similarity)) of each other client: means compared where both have images."""
    if not others:
        return np.zeros(0)
    similarities = np.zeros(len(others))
    for i, other in enumerate(others):
        common = np.minimum(own.counts, other.counts)
        lengths = np.linalg.norm(own.means, axis=1) * np.linalg.norm(other.means, axis=1)
        cosines = np.einsum("cd,cd->c", own.means, other.means) / np.maximum(lengths, TINY)
        similarities[i] = (common * cosines).sum() / max(float(common.sum()), TINY)
    weights: Reals = np.exp(-NEARNESS * (similarities.max() - similarities))
    return weights


class Adding(ArrayMethod[P]):
    """What a method needs to collaborate by addition, in front of its class: ``class PtaFed(Adding[PtaParams], Pta)``.

    ``others`` is what was received; a class says what it uploads, and reads ``others`` where it reads its own memory.
    """

    Exchange: ClassVar[type[Any] | None] = SumExchange
    sync: ClassVar[str] = "doubling"
    has_scatter: ClassVar[bool] = False

    others: ClassStatistics

    @classmethod
    def exchange_for(cls, zero_shot: ZeroShot, params: Any = None, clients: Iterable[str] = ()) -> SumExchange:
        """Return the exchange that serves clients with these parameters."""
        rows = zero_shot.dim if cls.has_scatter else 0
        return SumExchange(
            zero_shot, clients, rows, cls.most_images(params), getattr(params, "weights", "sum") == "near"
        )

    @classmethod
    def most_images(cls, params: Any) -> float:
        """Return the most images of a class that a client with these parameters can stand for."""
        return MOST_IMAGES

    def receive(self, download: ClassStatistics) -> None:
        """Replace what the others have learnt."""
        message("download", download, ClassStatistics, self.zero_shot.fingerprint)
        others = checked(download, self.zero_shot, len(self.others.scatter), math.inf, "download.")
        self.others = replace(others, scatter=covariance(others.scatter)) if self.has_scatter else others
        self.rebuild()

    def reset(self) -> None:
        """Forget everything."""
        classes, dim = self.zero_shot.text.shape
        rows = dim if self.has_scatter else 0
        zeros = np.zeros(classes), np.zeros((classes, dim)), np.zeros((rows, dim))
        self.others = ClassStatistics(*zeros, self.zero_shot.fingerprint)
        super().reset()

    def state(self) -> State:
        """Return a copy of the memory and of what was received."""
        received = {f"others.{name}": getattr(self.others, name).copy() for name in ("counts", "means", "scatter")}
        return {**super().state(), **received}

    def load(self, arrays: Arrays) -> None:
        """Continue from what :meth:`state` returned; nothing changes if it does not fit."""
        own = super().state()
        shapes = {f"others.{name}": getattr(self.others, name).shape for name in ("counts", "means", "scatter")}
        require(arrays, (*own, *shapes))
        counts, means, scatter = (exactly(name, arrays[name], np.float64, shape) for name, shape in shapes.items())
        others = ClassStatistics(counts, means, scatter, self.zero_shot.fingerprint)
        others = checked(others, self.zero_shot, len(self.others.scatter), math.inf, "others.")
        before, self.others = self.others, others
        try:
            super().load({name: arrays[name] for name in own})
        except Exception:
            self.others = before
            raise
