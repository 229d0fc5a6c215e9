"""A benchmark in memory: embeddings of labelled images, dealt to clients, and the order of each client's stream.

One seed gives three independent generators (B16): one deals the images, one orders the streams, one draws the cohorts
of partial participation. So neither the order nor the share of participants changes the partition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.types import Integers
from ..core.validate import at_least, choice, first_twice
from ..core.zero_shot import ZeroShot
from ..errors import refuse

ORDERS = ("shuffled", "correlated", "file")


@dataclass(frozen=True, eq=False)
class Embeddings:
    """Cached view embeddings of labelled images.

    - ``views`` (n, V, D): in any float type; it may be memory-mapped
    - ``labels`` (n,): the class of each image
    - ``domain`` (n,): its domain, an index into ``domains``
    - ``metadata``: how the file was made
    - ``index`` (n,), where known: the source image of each row; rows under two corruptions may show one image
    - ``client`` (n,), where present: the client of each row, which sees its rows in the order of the file
    """

    name: str
    zero_shot: ZeroShot
    views: NDArray[Any]
    labels: Integers
    domain: Integers
    domains: tuple[str, ...]
    metadata: Mapping[str, str] = field(default_factory=dict)
    index: Integers | None = None
    client: Integers | None = None

    def __post_init__(self) -> None:
        if self.views.ndim != 3 or self.views.shape[1] < 1 or self.views.shape[2] != self.zero_shot.dim:
            raise refuse("views", f"shape {self.views.shape}", f"(n, V, {self.zero_shot.dim}) with V >= 1")
        self._check("labels", self.labels, self.zero_shot.classes)
        self._check("domain", self.domain, len(self.domains))
        if (twice := first_twice(self.domains)) is not None:
            raise refuse("domains", f"{twice!r} twice", "every domain once")
        if self.index is not None:
            self._check("index", self.index, np.iinfo(np.int64).max)
        if self.client is not None:
            self._check("client", self.client, len(self))

    def _check(self, name: str, values: Integers, limit: int) -> None:
        n = len(self)
        if values.shape != (n,):
            raise refuse(name, f"shape {values.shape}", f"({n},), one per image")
        if n and not (values.min() >= 0 and values.max() < limit):
            raise refuse(name, f"values from {values.min()} to {values.max()}", f"0 to {limit - 1}")

    def __len__(self) -> int:
        return len(self.views)


@dataclass(frozen=True, eq=False)
class ClientStream:
    """The stream of one client: ``samples`` (n,) are positions in the embeddings, in the order of the stream."""

    name: str
    domain: int
    samples: Integers

    def __len__(self) -> int:
        return len(self.samples)


@dataclass(frozen=True, eq=False)
class Federation:
    """Embeddings, and the clients whose streams they make up."""

    embeddings: Embeddings
    clients: tuple[ClientStream, ...]

    def __len__(self) -> int:
        return len(self.clients)

    @property
    def samples(self) -> int:
        """The number of samples of all clients together."""
        return sum(len(client) for client in self.clients)

    def stream(self, client: ClientStream) -> NDArray[np.float32]:
        """Return the views in the stream of ``client``, (n, V, D) float32."""
        return np.asarray(self.embeddings.views[client.samples], np.float32)

    def labels(self, client: ClientStream) -> Integers:
        """Return the true labels of the stream of ``client`` (n,)."""
        return self.embeddings.labels[client.samples]


@dataclass(frozen=True)
class Generators:
    """The random generators of an experiment; ``labels`` draws which images somebody labels."""

    partition: np.random.Generator
    order: np.random.Generator
    cohort: np.random.Generator
    labels: np.random.Generator


def generators(seed: int) -> Generators:
    """Return the independent generators of ``seed``."""
    children = np.random.SeedSequence(at_least("seed", seed, 0)).spawn(4)
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
        if order == "file":
            return federation
        clients = federation.clients
    elif order == "file":
        raise refuse("order", "'file' with a partition", "'file' only with the file's own clients, or 'shuffled'")
    else:
        m = at_least("clients_per_domain", clients_per_domain, 1)
        deal = _corruption_folds if is_crossed(embeddings) else _domain_folds
        clients = tuple(
            ClientStream(f"{embeddings.domains[domain]}-{number}", domain, samples)
            for domain, folds in enumerate(deal(embeddings, m, rngs.partition))
            for number, samples in enumerate(folds)
        )
    streams = []
    for client in clients:
        samples = rngs.order.permutation(client.samples)
        if order == "correlated":
            labels = embeddings.labels[samples]
            blocks = rngs.order.permutation(np.unique(labels))
            samples = np.concatenate([samples[labels == label] for label in blocks])
        streams.append(ClientStream(client.name, client.domain, samples))
    return Federation(embeddings, tuple(streams))


def fixed_federation(embeddings: Embeddings) -> Federation:
    """Return the federation that the file itself fixes, every stream in the order of the file."""
    owner = embeddings.client
    if owner is None or not len(owner):
        raise refuse("client", "no fixed clients", "embeddings with a 'client' tensor (or a partition)")
    streams = []
    for number in range(int(owner.max()) + 1):
        samples = np.flatnonzero(owner == number)
        domains = np.unique(embeddings.domain[samples])
        if not len(samples):
            raise refuse("client", f"no sample of client {number}", "clients numbered from 0 on without gaps")
        if len(domains) != 1:
            raise refuse(f"client {number}", f"samples of {len(domains)} domains", "samples of exactly one domain")
        domain = int(domains[0])
        streams.append(ClientStream(f"{embeddings.domains[domain]}-{number}", domain, samples))
    return Federation(embeddings, tuple(streams))


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
