"""The sphere model: two unit balls, a linear initial classifier, clients with Latte's own memory that share, and 1-NN.

Samples of class y are uniform in the unit ball around ``centres[y]``. They are points of R^d, not of the unit
sphere, so they enter :class:`latte.core.LocalMemory` through ``put``, which does not ask for unit length.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...core.maths import entropy
from ...core.memory import LocalMemory
from ...core.types import External, Integers, Mask, Reals, Vectors
from ...core.validate import at_least, choice
from ...errors import refuse
from ...methods.latte.readout import MergedItems, merge_memories
from .bounds import Setting

SAMPLE_BLOCK = 65_536  # samples drawn at a time
SELECTIONS = ("everyone", "nearest")
CONTENTS = ("samples", "prototype")


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
        can_enter = uncertain < limits[labels]
        for y in (0, 1):
            mine, k = can_enter & (labels == y), self.memory.valid.shape[1]
            if mine.sum() > k:  # of one block, none but its own k most certain can stay
                can_enter[mine] = uncertain[mine] <= np.partition(uncertain[mine], k - 1)[k - 1]
        for i in np.flatnonzero(can_enter):
            self.memory.put(int(labels[i]), points[i].astype(np.float32), float(uncertain[i]))


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


# --- how clients share: which of them contribute (eq. 2), what they send, and the merge (eq. 3) -------------------


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
    nothing = External(np.zeros((2, 0, own.domain.d), np.float32), np.ones((2, 0)), np.zeros((2, 0), np.bool_))
    parts = [nothing]
    for other in others:
        memory = other.memory
        if sharing.content == "samples":
            parts.append(External(memory.vectors, memory.entropy, memory.valid.copy()))
        else:
            means, seen = class_means(other)
            uncertain = other.classifier.entropies(other.classifier.margins(means))  # B5: of the prototype itself
            parts.append(External(means[:, None].astype(np.float32), uncertain[:, None], seen[:, None]))
    if sharing.selection == "nearest":  # per class, only the ``donors`` clients nearest to the client's own mean give
        (mine, _), theirs = class_means(own), [class_means(other) for other in others]
        for y in (0, 1):
            gaps = [float(np.linalg.norm(means[y] - mine[y])) if seen[y] else np.inf for means, seen in theirs]
            for far in np.argsort(gaps, kind="stable")[sharing.donors :]:
                parts[1 + far].valid[y] = False
    external = External(
        np.concatenate([part.vectors for part in parts], axis=1),
        np.concatenate([part.entropy for part in parts], axis=1),
        np.concatenate([part.valid for part in parts], axis=1),
    )
    return merge_memories(own.memory, external)


def class_means(client: SphereClient) -> tuple[Reals, Mask]:
    """Return the mean of the stored vectors of each class (2, d), and which classes have any (2,)."""
    memory = client.memory
    count = memory.valid.sum(axis=1)
    total = np.where(memory.valid[:, :, None], memory.vectors, 0).sum(axis=1, dtype=np.float64)
    return total / np.maximum(count, 1)[:, None], count > 0
