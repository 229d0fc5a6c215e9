"""Label skew: the clients of a domain share its images unevenly by class."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from latte.core.types import Integers
from latte.data.federation import Federation
from latte.errors import refuse


def skew_labels(federation: Federation, concentration: float, rng: np.random.Generator) -> Federation:
    """Deal the images of every domain anew to its clients: each class in shares from a symmetric Dirichlet.

    The smaller the ``concentration``, the fewer clients hold most of a class. Streams are in random order. A client
    that gets no image leaves.

    >>> from latte.data.bundled import bundled
    >>> federation = bundled()
    >>> skew_labels(federation, 0.1, np.random.default_rng(0)).samples == federation.samples
    True
    """
    if not concentration > 0:
        raise refuse("concentration", concentration, "a number above 0")
    clients = list(federation.clients)
    for domain in sorted({client.domain for client in clients}):
        members = [i for i, client in enumerate(clients) if client.domain == domain]
        images = np.concatenate([clients[i].samples for i in members])
        parts = _deal(images, federation.embeddings.labels[images], len(members), concentration, rng)
        for i, part in zip(members, parts, strict=True):
            clients[i] = replace(clients[i], samples=part)
    return Federation(federation.embeddings, tuple(client for client in clients if len(client)))


def _deal(images: Integers, labels: Integers, m: int, concentration: float, rng: np.random.Generator) -> list[Integers]:
    owner = np.empty(len(images), np.int64)
    for label in np.unique(labels):
        shares = rng.dirichlet(np.full(m, concentration))
        owner[labels == label] = rng.choice(m, int((labels == label).sum()), p=shares)
    return [rng.permutation(images[owner == i]) for i in range(m)]
