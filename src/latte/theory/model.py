"""The sphere model: two unit balls, a linear initial classifier, clients with Latte's own memory, and 1-NN.

Samples of class y are uniform in the unit ball around ``centres[y]``. They are points of R^d, not of the unit
sphere, so they enter :class:`latte.core.LocalMemory` through ``put``, which does not ask for unit length.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..core.local_memory import LocalMemory
from ..core.maths import entropy
from ..core.types import Integers, Mask, Reals, Vectors
from ..core.validate import at_least
from ..errors import refuse
from .bounds import Setting

SAMPLE_BLOCK = 65_536  # samples drawn at a time
FAR = 4.0  # the paper's least distance between the centres of different domains


@dataclass(frozen=True, eq=False)
class Domain:
    """The distribution of one client's samples: ``centres`` (2, d) of the two balls."""

    centres: Reals

    @property
    def d(self) -> int:
        """The dimension."""
        return int(self.centres.shape[1])

    def sample(self, n: int, rng: np.random.Generator) -> tuple[Reals, Integers]:
        """Return ``n`` points (n, d), each from a ball chosen by a fair coin, and which ball it was (n,)."""
        y = rng.integers(0, 2, n)
        return uniform_ball(n, self.d, rng) + self.centres[y], y

    def far_from(self, other: Domain) -> bool:
        """Return whether every pair of centres is more than 4 apart: the paper's *out of distribution*."""
        gaps = np.linalg.norm(self.centres[:, None] - other.centres, axis=-1)
        return bool(gaps.min() > FAR)


@dataclass(frozen=True, eq=False)
class Classifier:
    """The initial classifier z = f·w + b with |w| = 1; the probability of class 1 is 1 / (1 + exp(-t z)).

    The entropy falls strictly with |z|, also in floats, until exp(-t|z|) underflows at t|z| = 745 and the
    order of certainties is lost. With t = 1 no margin of the model comes near that.
    """

    w: Reals
    b: float = 0.0
    t: float = 1.0

    def margins(self, points: Reals) -> Reals:
        """Return z (n,)."""
        return points @ self.w + self.b

    def entropies(self, margins: Reals) -> Reals:
        """Return the entropy of the prediction, divided by log 2, with the code that Latte uses."""
        return entropy(np.stack([np.zeros_like(margins), self.t * margins], axis=-1))


@dataclass(frozen=True, eq=False)
class World:
    """A domain with balls at ±μ and the classifier that all clients start with.

    >>> world = World.make(d=3, norm=0.8, angle=1.0, bias=0.3)
    >>> world.apexes[0, :2].round(3)
    array([-1.34 , -0.841])
    """

    domain: Domain
    classifier: Classifier

    @classmethod
    def make(cls, d: int, norm: float, angle: float, bias: float = 0.0) -> World:
        """Put μ on the first axis and w_pre at ``angle`` from it in the plane of the first two."""
        at_least("d", d, 2)
        mu, w = np.zeros(d), np.zeros(d)
        mu[0], w[0], w[1] = norm, math.cos(angle), math.sin(angle)
        world = cls(Domain(np.stack([-mu, mu])), Classifier(w, bias))
        world.setting  # noqa: B018  refuses a classifier that the theory excludes
        return world

    @property
    def setting(self) -> Setting:
        """The parameters of the bounds."""
        mu, w = self.domain.centres[1], self.classifier.w
        return Setting(self.domain.d, float(np.linalg.norm(mu)), float(mu @ w), self.classifier.b)

    @property
    def apexes(self) -> Reals:
        """Where the memories converge (2, d): ±(μ + w_pre), the most certain point of each ball."""
        return self.domain.centres + np.stack([-self.classifier.w, self.classifier.w])

    def elsewhere(self, rng: np.random.Generator, more_certain: float = 0.0) -> Domain:
        """Return another domain, 4.5 to 8 away at right angles to μ and w_pre.

        Its balls are moved by ``more_certain`` along ±w_pre: at 0 its samples are as certain as those of this
        domain, above 0 more so.
        """
        if self.domain.d < 3:
            raise refuse("d", self.domain.d, "d >= 3: room at right angles to μ and w_pre")
        away = rng.standard_normal(self.domain.d)
        away[:2] = 0
        away *= rng.uniform(4.5, 8.0) / np.linalg.norm(away)
        signs = np.array([[-1.0], [1.0]])
        return Domain(self.domain.centres + away + signs * more_certain * self.classifier.w)


def uniform_ball(n: int, d: int, rng: np.random.Generator) -> Reals:
    """Return ``n`` uniform points of the unit ball (n, d): a direction, and a radius of density ∝ r^(d-1)."""
    points = rng.standard_normal((n, d))
    scale = rng.random(n) ** (1 / d) / np.sqrt(np.einsum("nd,nd->n", points, points))
    points *= scale[:, None]
    return points


class SphereClient:
    """A client of the model: its domain, the shared classifier, a :class:`latte.core.LocalMemory` of k slots."""

    def __init__(self, domain: Domain, classifier: Classifier, k: int) -> None:
        self.domain, self.classifier = domain, classifier
        self.memory = LocalMemory(2, k, domain.d)

    def observe(self, n: int, rng: np.random.Generator) -> None:
        """Draw ``n`` more samples of the domain and remember them."""
        for start in range(0, n, SAMPLE_BLOCK):
            points, _ = self.domain.sample(min(SAMPLE_BLOCK, n - start), rng)
            self.remember(points)

    def remember(self, points: Reals) -> None:
        """Offer ``points`` (n, d) to the memory, in order.

        Only candidates that can still enter are offered: a full class refuses every entropy that is not below its
        highest one, and that limit only falls. The memory ends up with the same samples as if all were offered.
        """
        margins = self.classifier.margins(points)
        labels, uncertain = (margins > 0).astype(np.int64), self.classifier.entropies(margins)
        full = self.memory.valid.all(axis=1)
        limits = np.where(full, self.memory.entropy.max(axis=1), np.inf)
        for i in self._candidates(labels, uncertain, limits):
            self.memory.put(int(labels[i]), points[i].astype(np.float32), float(uncertain[i]))

    def _candidates(self, labels: Integers, uncertain: Reals, limits: Reals) -> Integers:
        """Return the positions, in order, of the samples that can change the memory."""
        k = self.memory.valid.shape[1]
        open_ = uncertain < limits[labels]
        for y in (0, 1):
            mine = open_ & (labels == y)
            if mine.sum() > k:  # of one block, none but its own k most certain can stay
                open_[mine] = uncertain[mine] <= np.partition(uncertain[mine], k - 1)[k - 1]
        return np.flatnonzero(open_)


def nearest_label(vectors: Vectors, valid: Mask, queries: Reals) -> Integers:
    """Return the class (n,) of the nearest stored vector, ``vectors`` (2, K, d): Latte for α, β → ∞.

    An empty class is never the nearest; where both are empty, the result is 0.
    """
    wide = vectors.astype(np.float64)
    squares = np.einsum("ckd,ckd->ck", wide, wide)
    # |q - m|² without |q|², which all classes share
    gaps = np.where(valid, squares, np.inf) - 2 * np.einsum("nd,ckd->nck", queries, wide)
    labels: Integers = gaps.min(axis=2).argmin(axis=1)
    return labels
