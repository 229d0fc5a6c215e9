"""The loops of the queues, the uploads and the global memory without numba."""

from __future__ import annotations

import numpy as np

from ...core.types import Integers, Vectors
from .common import accept as accept
from .common import fill_queues as fill_queues
from .common import upload as upload
from .state import NEAR_DOT as NEAR_DOT
from .state import Items, Routes, Uploads


def copy_units(items: Items, contents: Integers, out: Vectors) -> None:
    """Write the unit vectors of samples (n, S) into ``out`` (n, S, D); what -1 stands for is of no account."""
    np.take(items.rows, items.row_of[contents], axis=0, out=out)
    out /= items.norms[contents][..., None]


def push(routes: Routes, uploads: Uploads, part: tuple[int, int], now: int) -> None:
    """Store the uploads ``part`` (first, last) of one sync and compare them with everyone's."""
    rows = slice(*part)
    labels = uploads.label[rows]
    for y in np.unique(labels):
        mine = part[0] + np.flatnonzero(labels == y)
        client, seen = uploads.client[mine], uploads.seen[mine]
        vectors, similarity = routes.vectors[y], routes.similarity[y]
        vectors[client] = uploads.vectors[mine]
        routes.current[y, client] = np.where(seen, uploads.items[mine], -1)
        routes.changed[y] = now
        routes.seen[y, client] = seen
        products = vectors[client] @ vectors.T
        similarity[client] = products
        similarity[:, client] = products.T
    seen_by = routes.seen.T.astype(np.float32)
    routes.common[...] = seen_by @ seen_by.T
