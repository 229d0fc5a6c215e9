"""Small pure functions that several parts share. Numbers per class are float64; only vectors are float32."""

from __future__ import annotations

import math

import numpy as np

from .types import Reals, Vectors

MATCH_STEPS = 64  # enough to reach the limit of any scores by doubling or halving
MATCH_TOLERANCE = 1e-9  # nats


def softmax(logits: Reals) -> Reals:
    """Return the softmax over the last axis."""
    weights: Reals = np.exp(logits - logits.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return weights


def entropy_nats(logits: Reals) -> Reals:
    """Return the entropy in nats of the softmax of ``logits`` (..., C)."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    weights = np.exp(shifted)
    total = weights.sum(axis=-1)
    nats: Reals = np.log(total) - (weights * shifted).sum(axis=-1) / total
    return np.maximum(nats, 0.0)


def entropy(logits: Reals) -> Reals:
    """Return the entropy divided by ln C, in [0, 1] (decision B6: gamma does not depend on C)."""
    return np.minimum(entropy_nats(logits) / math.log(logits.shape[-1]), 1.0)


def entropy_of_one(logits: Reals) -> float:
    """Return the same as :func:`entropy` for one row (C,), without the cost of general axes."""
    shifted = logits - np.maximum.reduce(logits)
    weights = np.exp(shifted)
    total = float(np.add.reduce(weights))
    nats = math.log(total) - float(weights.dot(shifted)) / total
    return min(max(nats / math.log(len(logits)), 0.0), 1.0)


def match_entropy(scores: Reals, target: float) -> float:
    """Return the temperature at which the softmax of ``scores`` (C,) has the entropy ``target`` (divided by ln C).

    The entropy falls with the rate r = 1 / temperature: its derivative is -r times the variance of the scores. Newton's
    steps that leave the bracket are replaced. If the scores cannot reach the target, the search ends at a limit of the
    rate.

    >>> scores = np.array([30.0, 10.0, 0.0])
    >>> temperature = match_entropy(scores, 0.5)
    >>> round(temperature, 3), round(entropy_of_one(scores / temperature), 6)
    (10.361, 0.5)
    """
    shifted, nats = scores - np.maximum.reduce(scores), target * math.log(len(scores))
    spread = _deviation(shifted)
    if spread == 0:
        return 1.0
    powers = np.array((np.ones(len(scores)), shifted, shifted * shifted))  # one product gives three sums
    rate, low, high = 1 / spread, 0.0, math.inf
    for _ in range(MATCH_STEPS):
        total, first, second = powers.dot(np.exp(rate * shifted)).tolist()
        mean = first / total
        gap = math.log(total) - rate * mean - nats
        if abs(gap) < MATCH_TOLERANCE:
            break
        low, high = (rate, high) if gap > 0 else (low, rate)
        slope = rate * (second / total - mean**2)
        step = rate + gap / slope if slope > 0 else low
        rate = step if low < step < high else min((low + high) / 2, 2 * low + rate)
    return 1 / rate


def _deviation(values: Reals) -> float:
    """Return what ``values.std()`` (C,) is, without the cost of general axes."""
    centred = values - np.add.reduce(values) / len(values)
    return math.sqrt(float(np.add.reduce(centred * centred)) / len(values))


def normalised(vectors: Vectors | Reals) -> Vectors:
    """Return ``vectors`` (..., D) with rows of unit length; a zero row stays zero."""
    norms = np.sqrt(np.einsum("...d,...d->...", vectors, vectors))
    safe = np.where(norms > 0, norms, np.float32(1))
    return (vectors / safe[..., None]).astype(np.float32, copy=False)


def ridge_products(vectors: Reals, rows: Reals) -> Reals:
    """Return D (RᵀR + t I)⁻¹ v for each of ``vectors`` (C, D), where R are ``rows`` (n, D) and t = tr(RᵀR) / (n - 1).

    With fewer rows than dimensions the system that is solved is (n, n): the Woodbury identity, fewer operations for
    80 rows of 384.

    >>> rows, vectors = np.array([[1.0, 2.0, 0.0], [0.0, 1.0, 1.0]]), np.eye(3)
    >>> ridge = rows.T @ rows + np.trace(rows.T @ rows) * np.eye(3)
    >>> np.allclose(ridge_products(vectors, rows) @ ridge, 3 * np.eye(3))
    True
    """
    n, dim = rows.shape
    ridge = float((rows * rows).sum()) / (n - 1)
    if not ridge:  # equal images say nothing of how images differ
        return np.asarray(dim * vectors, np.float64)
    if n < dim:
        inner = np.linalg.solve(rows @ rows.T + ridge * np.eye(n), rows @ vectors.T)  # (n, C)
        products: Reals = dim / ridge * (vectors - inner.T @ rows)
        return products
    return np.asarray(dim * np.linalg.solve(rows.T @ rows + ridge * np.eye(dim), vectors.T).T, np.float64)


def weighted_sums(weights: Reals, vectors: Vectors) -> Reals:
    """Return Σ_s w_s v_s (n, D) of ``vectors`` (n, S, D).

    In float64: rounded to float32 afterwards, the sums do not depend on the order of the additions.
    """
    sums = np.zeros((vectors.shape[0], vectors.shape[2]))
    for slot in range(vectors.shape[1]):
        sums += weights[:, slot, None] * vectors[:, slot]
    return sums
