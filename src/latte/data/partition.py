"""Partitions: the images of every domain dealt to clients, and the order of each client's stream.

One seed gives three independent generators (B16): one deals the images, one orders the streams, one draws the cohorts
of partial participation. So neither the order nor the share of participants changes the partition.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..core.types import Integers
from ..core.validate import at_least, choice
from ..errors import refuse
from .benchmark import ClientStream, Embeddings, Federation
from .embeddings import fixed_federation

ORDERS = ("shuffled", "correlated", "file")


@dataclass(frozen=True)
class Generators:
    """The three random generators of an experiment."""

    partition: np.random.Generator
    order: np.random.Generator
    cohort: np.random.Generator


def generators(seed: int) -> Generators:
    """Return the three independent generators of ``seed``."""
    children = np.random.SeedSequence(at_least("seed", seed, 0)).spawn(3)
    return Generators(*(np.random.default_rng(child) for child in children))


def federate(embeddings: Embeddings, clients_per_domain: int | None, seed: int, order: str = "shuffled") -> Federation:
    """Deal ``embeddings`` to clients.

    ``clients_per_domain`` clients share every domain in stratified folds (the corruption partition where the file
    holds every image under every corruption); None means the clients that the file itself fixes. ``order`` is
    "shuffled", "correlated" (class after class) or "file" (only for fixed clients: as the file has it).

    >>> from latte.data.bundled import bundled
    >>> federation = federate(bundled().embeddings, clients_per_domain=3, seed=0)
    >>> len(federation), federation.samples
    (57, 2280)
    """
    choice("order", order, ORDERS)
    rngs = generators(seed)
    if clients_per_domain is None:
        federation = fixed_federation(embeddings)
    elif order == "file":
        raise refuse("order", "'file' with a partition", "'file' only with the file's own clients, or 'shuffled'")
    else:
        federation = _deal(embeddings, at_least("clients_per_domain", clients_per_domain, 1), rngs.partition)
    if order == "file":
        return federation
    return Federation(embeddings, tuple(_order_stream(embeddings, c, order, rngs.order) for c in federation.clients))


def stratified_folds(labels: Integers, folds: int, rng: np.random.Generator) -> list[Integers]:
    """Deal the positions of ``labels`` (n,) to ``folds``, every class as evenly as possible; ascending in each fold.

    This is the rule of scikit-learn's StratifiedKFold (the same number of each class in each fold), but a class with
    fewer members than folds is dealt to some of the folds without a warning.

    >>> labels = np.array([0, 0, 0, 0, 1, 1])
    >>> [labels[fold].tolist() for fold in stratified_folds(labels, 2, np.random.default_rng(0))]
    [[0, 0, 1], [0, 0, 1]]
    """
    if len(labels) < folds:
        raise refuse("clients", f"{folds} for {len(labels)} images", f"at most {len(labels)}: an image each")
    _, first, coded = np.unique(labels, return_index=True, return_inverse=True)
    appearance = np.argsort(np.argsort(first))[coded]  # classes numbered as they appear
    ranked = np.sort(appearance)
    owner = np.empty(len(labels), np.int64)
    for code in range(len(first)):
        seats = np.flatnonzero(ranked == code) % folds  # sorted by class, dealt like cards
        owner[appearance == code] = rng.permutation(seats)
    return [np.flatnonzero(owner == fold) for fold in range(folds)]


def is_crossed(embeddings: Embeddings) -> bool:
    """Return whether the file holds every source image once in each of several domains, with one label."""
    index, domains = embeddings.index, len(embeddings.domains)
    if index is None or domains < 2 or len(index) % domains:
        return False
    order = np.lexsort((embeddings.domain, index))
    shape = (-1, domains)
    image, label = index[order].reshape(shape), embeddings.labels[order].reshape(shape)
    return bool(
        (image == image[:, :1]).all()
        and (label == label[:, :1]).all()
        and (embeddings.domain[order].reshape(shape) == np.arange(domains)).all()
        and len(np.unique(image[:, 0])) == len(image)
    )


def _deal(embeddings: Embeddings, m: int, rng: np.random.Generator) -> Federation:
    groups = _corruption_folds(embeddings, m, rng) if is_crossed(embeddings) else _domain_folds(embeddings, m, rng)
    streams = [
        ClientStream(f"{embeddings.domains[domain]}-{number}", domain, samples)
        for domain, folds in enumerate(groups)
        for number, samples in enumerate(folds)
    ]
    return Federation(embeddings, tuple(streams))


def _domain_folds(embeddings: Embeddings, m: int, rng: np.random.Generator) -> list[list[Integers]]:
    """Deal each domain on its own, stratified by class."""
    groups = []
    for domain, name in enumerate(embeddings.domains):
        rows = np.flatnonzero(embeddings.domain == domain)
        if len(rows) < m:
            raise refuse("clients_per_domain", f"{m} for {len(rows)} images of {name}", f"at most {len(rows)}")
        groups.append([rows[fold] for fold in stratified_folds(embeddings.labels[rows], m, rng)])
    return groups


def _corruption_folds(embeddings: Embeddings, m: int, rng: np.random.Generator) -> list[list[Integers]]:
    """Deal the source images once over all domains; every block of ``m`` folds is seen under one corruption."""
    assert embeddings.index is not None
    domains = len(embeddings.domains)
    rows = np.lexsort((embeddings.domain, embeddings.index)).reshape(-1, domains)  # (images, domains)
    folds = stratified_folds(embeddings.labels[rows[:, 0]], domains * m, rng)
    block = rng.permutation(domains * m).reshape(domains, m)
    return [[rows[folds[f], domain] for f in block[domain]] for domain in range(domains)]


def _order_stream(embeddings: Embeddings, client: ClientStream, order: str, rng: np.random.Generator) -> ClientStream:
    samples = rng.permutation(client.samples)
    if order == "correlated":
        labels = embeddings.labels[samples]
        blocks = rng.permutation(np.unique(labels))
        samples = np.concatenate([samples[labels == label] for label in blocks])
    return ClientStream(client.name, client.domain, samples)
