"""Rows of a corruption benchmark that are not in the reported results, for choosing parameters.

They show images under other corruptions: from the same file, if it holds every image under every corruption, or from
another file with another assignment of images to corruptions. By chance that file repeats one image in nineteen under
the same corruption; those rows are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..core.types import Integers
from ..errors import refuse
from .benchmark import Embeddings
from .partition import federate, generators


def select_unseen(embeddings: Embeddings, clients_per_domain: int, reported: Sequence[int], seed: int) -> Embeddings:
    """Return every source image once, under a corruption that no seed of ``reported`` shows it under.

    ``embeddings`` hold every image in every domain (:func:`latte.data.partition.crossed`). The images of each class are
    dealt to the domains as evenly as possible. An image that the reported seeds show in every domain is left out.
    """
    assert embeddings.index is not None
    table = np.lexsort((embeddings.domain, embeddings.index)).reshape(-1, len(embeddings.domains))  # (images, domains)
    free = ~_rows_in_streams(embeddings, clients_per_domain, reported)[table]
    if not free.any():
        raise refuse("seeds", f"{len(reported)}, which show every image in every domain", "fewer")
    labels = embeddings.labels[table[:, 0]]
    images, domains = _deal_images(free, labels, generators(seed).partition)
    return _subset(embeddings, np.sort(table[images, domains]))


def exclude_reported(pool: Embeddings, reported: Embeddings) -> Embeddings:
    """Return the rows of ``pool`` that are not in ``reported``: another image, or the same under another corruption."""
    if pool.index is None or reported.index is None:
        raise refuse("index", "none", "files that say which source image each row is (latte embed)")
    known = {(image, reported.domains[d]) for image, d in zip(reported.index.tolist(), reported.domain, strict=True)}
    fresh = [(i, pool.domains[d]) not in known for i, d in zip(pool.index.tolist(), pool.domain, strict=True)]
    if not any(fresh):
        raise refuse("tuning file", "the rows that are reported", "images under other corruptions (latte embed --seed)")
    return _subset(pool, np.flatnonzero(fresh))


def _rows_in_streams(embeddings: Embeddings, clients_per_domain: int, seeds: Sequence[int]) -> NDArray[np.bool_]:
    """Return which rows (n,) are in a client's stream under any of the seeds."""
    used = np.zeros(len(embeddings), bool)
    for seed in seeds:
        for client in federate(embeddings, clients_per_domain, seed).clients:
            used[client.samples] = True
    return used


def _deal_images(free: NDArray[np.bool_], labels: Integers, rng: np.random.Generator) -> tuple[Integers, Integers]:
    """Deal each image, in random order, to the free domain that has the fewest of its class so far."""
    images = rng.permutation(np.flatnonzero(free.any(axis=1)))
    counts = np.zeros((int(labels.max()) + 1, free.shape[1]))
    domains = np.empty(len(images), np.int64)
    for position, image in enumerate(images):
        of_class = counts[labels[image]]
        domain = np.where(free[image], of_class, np.inf).argmin()
        domains[position] = domain
        of_class[domain] += 1
    return images, domains


def _subset(embeddings: Embeddings, rows: Integers) -> Embeddings:
    """Return some of the rows, without the clients that the file fixes."""
    assert embeddings.index is not None
    return replace(
        embeddings,
        views=np.asarray(embeddings.views[rows]),
        labels=embeddings.labels[rows],
        domain=embeddings.domain[rows],
        index=embeddings.index[rows],
        client=None,
    )
