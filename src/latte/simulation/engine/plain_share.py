"""The loops of the queues, the uploads and the global memory without numba."""

from __future__ import annotations

import numpy as np

from ...core.maths import entropy, normalised, weighted_sums
from ...core.types import Integers, Mask, Reals, Vectors
from .loops_common import accept as accept
from .loops_common import fill_queues as fill_queues
from .loops_common import upload as upload
from .state import NEAR_DOT as NEAR_DOT
from .state import Items, Routes, Uploads


def squares(rows: Vectors, index: Integers, out: Vectors) -> None:
    """Write the squared lengths (n,) of some rows."""
    chosen = rows[index]
    out[:] = np.einsum("nd,nd->n", chosen, chosen)


def classify(rows: Vectors, index: Integers, norms: Vectors, text: Reals, room: Reals, logits: Reals) -> None:
    """Write the products (n, C) of some rows, divided by ``norms``, with ``text``: float32 rows, float64 sums."""
    del room  # what numpy allocates for itself
    np.matmul((rows[index] / norms[:, None]).astype(np.float64), text.T, out=logits)


def judge(logits: Reals, near: float, pseudo: Integers, uncertainty: Reals, close: Mask) -> None:
    """Write the class and the entropy that logits (n, C) stand for, and where the class is too close to call."""
    pseudo[:], uncertainty[:] = logits.argmax(axis=1), entropy(logits)
    two = np.partition(logits, logits.shape[1] - 2, axis=1)[:, -2:]
    close[:] = two[:, 1] - two[:, 0] < near


def blend(items: Items, contents: Integers, weights: Reals, room: Reals, out: tuple[Integers, Vectors, Mask]) -> None:
    """Write eq. 1 of samples (n, S), -1 for none, as LocalMemory.prototypes computes it.

    ``out`` is rows of vectors, the vectors, and who has a prototype (n,).
    """
    del room
    places, vectors, seen = out
    units = items.rows[items.row_of[contents]]
    units /= items.norms[contents][..., None]
    sums = weighted_sums(weights, units)
    vectors[places], seen[:] = normalised(sums), sums.any(axis=1)


def push(routes: Routes, uploads: Uploads, part: tuple[int, int], now: int) -> None:
    """Store the uploads ``part`` (first, last) of one sync and compare them with everyone's."""
    rows = slice(*part)
    labels = uploads.label[rows]
    for y in np.unique(labels):
        mine = part[0] + np.flatnonzero(labels == y)
        client, seen = uploads.client[mine], uploads.seen[mine]
        vectors, similarity = routes.vectors[y], routes.similarity[y]
        vectors[client] = uploads.prototypes[uploads.items[mine] - uploads.samples]
        routes.current[y, client] = np.where(seen, uploads.items[mine], -1)
        routes.changed[y] = now
        routes.seen[y, client] = seen
        products = vectors[client] @ vectors.T
        similarity[client] = products
        similarity[:, client] = products.T
    seen_by = routes.seen.T.astype(np.float32)
    routes.common[...] = seen_by @ seen_by.T
