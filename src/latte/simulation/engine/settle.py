"""The choice of donors with the operations of the global memory itself, for choices that rounding may decide."""

from __future__ import annotations

import numpy as np

from ...core.global_memory import GlobalMemory
from ...core.routing import Routing
from ...core.types import Integers, Mask, Reals, Vectors
from ...core.zero_shot import ZeroShot
from .loop_arrays import RouteRules


def choose_donors(vectors: Vectors, seen: Mask, ranking: Integers, rules: RouteRules, own: int, label: int) -> Integers:
    """Return the donors (slots,), -1 for none, with the very operations of GlobalMemory.neighbours.

    ``vectors`` (C, N, D) and ``seen`` (C, N) are what all clients have uploaded.
    """
    there = seen[label, ranking]
    if rules.drop_first:
        rows = _best(_similarities(vectors[label : label + 1], own)[0][ranking], rules.slots + 1)[1:]
        return np.where(there[rows], ranking[rows], -1)
    if seen[label, own]:
        scores = _similarities(vectors[label : label + 1], own)[0]
    else:
        scores = _mean_similarities(vectors, seen, own)
    scores = np.where(there & (ranking != own), scores[ranking], -np.inf)
    rows = _best(scores, rules.slots)
    return np.where(np.isfinite(scores[rows]), ranking[rows], -1)


def rank_clients(names: tuple[str, ...], routing: Routing) -> Integers:
    """Return the clients in the order that decides between equal similarities, as the global memory has it."""
    memory = GlobalMemory(ZeroShot([[1.0], [-1.0]], ("a", "b")), routing, names)
    return np.argsort(memory.state()["order"], kind="stable")


def _similarities(vectors: Vectors, own: int) -> Reals:
    """Return the products (C, N) of a client's prototypes with those of all."""
    similarity: Reals = np.matmul(vectors, vectors[:, own, :, None])[:, :, 0].astype(np.float64)
    return similarity


def _mean_similarities(vectors: Vectors, seen: Mask, own: int) -> Reals:
    similarity, common = _similarities(vectors, own).T, (seen & seen[:, own, None]).T
    count = common.sum(axis=1)
    total = np.where(common, similarity, 0.0).sum(axis=1)
    means: Reals = np.where(count > 0, total / np.maximum(count, 1), -2.0)
    return means


def _best(scores: Reals, k: int) -> Integers:
    """Return what core.maths.top_k returns, for one short row."""
    return np.argsort(-scores, kind="stable")[:k]
