"""Which clients share a cell: drawn at random, or alike."""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")


import numpy as np

FIRST = 16  # images behind the mean by which clients are told apart, and behind the upload of a made-up client
SHARES = (1.0, 0.5, 0.25, 0.1)
GROUPINGS = ("random", "similar")


def similar_cells(means: np.ndarray, cells: int) -> list[np.ndarray]:
    """Cut clients with these ``means`` (n, D) into ``cells`` of equal size, of clients that are alike."""

    def cut(rows: np.ndarray, parts: int) -> list[np.ndarray]:
        if parts == 1:
            return [rows]
        centred = means[rows] - means[rows].mean(axis=0)
        _, axes = np.linalg.eigh(centred.T @ centred)
        order = rows[np.argsort(centred @ axes[:, -1], kind="stable")]
        left = parts // 2
        border = round(len(rows) * left / parts)
        return [*cut(order[:border], left), *cut(order[border:], parts - left)]

    return cut(np.arange(len(means)), cells)


def random_cells(clients: int, cells: int, rng: np.random.Generator) -> list[np.ndarray]:
    return [np.sort(part) for part in np.array_split(rng.permutation(clients), cells)]


def cells_of(grouping: str, means: np.ndarray, cells: int, rng: np.random.Generator) -> list[np.ndarray]:
    return similar_cells(means, cells) if grouping == "similar" else random_cells(len(means), cells, rng)
