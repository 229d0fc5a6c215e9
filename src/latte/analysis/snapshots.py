"""What results do not record: the memories of some clients, and how much each client downloads from each other."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..core.maths import entropy_of_one
from ..core.readout import merge_memories
from ..core.types import Integers, Mask, Reals, Vectors
from ..data.benchmark import Federation
from ..data.partition import federate
from ..errors import refuse
from ..experiment.item import run_item
from ..methods.latte import Latte
from ..simulation.collaboration import InsideShare, inside_share
from ..simulation.readable import set_up
from ..simulation.simulator import Client
from .studies import Setup, base_plan
from .watch import latte_of


@dataclass(frozen=True, eq=False)
class Collaboration:
    """The downloads between clients, sorted by domain.

    ``downloads`` (N, N): entry (i, j) counts the prototypes of client j that client i downloaded. ``share`` is how much
    stays inside a domain, with chance and ceiling.
    """

    clients: tuple[str, ...]
    domains: tuple[str, ...]
    downloads: Integers | Reals
    share: InsideShare
    engine: str


def collaboration(setup: Setup, engine: str = "auto") -> Collaboration:
    """Run Latte on the first seed and count the downloads."""
    seed = setup.seeds[0]
    config = replace(base_plan(setup).config, seeds=(seed,), engine=engine)
    federation = federate(setup.benchmark.embeddings, setup.clients, seed)
    outcome = run_item(federation, config, seed)
    if outcome.downloads is None:  # see BlockServer.downloads
        raise refuse("clients", f"{len(federation)}, too many to count who downloads from whom", "fewer per domain")
    return _sorted(federation, outcome.downloads, setup.latte.k_e, outcome.engine)


def routing(setup: Setup, engine: str = "auto") -> Collaboration:
    """Run Ristretto on the first seed and return the share of each client's evidence that each head used.

    ``downloads`` are means over the syncs of a client, without its own evidence, of which it always uses all.
    """
    seed = setup.seeds[0]
    config = replace(base_plan(setup, "ristretto").config, seeds=(seed,), engine=engine)
    federation = federate(setup.benchmark.embeddings, setup.clients, seed)
    outcome = run_item(federation, config, seed)
    assert outcome.downloads is not None, "Ristretto's exchange is traced"
    shares = outcome.downloads / np.maximum(outcome.downloads.diagonal(), 1)[:, None]  # a sync is 1 on the diagonal
    np.fill_diagonal(shares, 0.0)
    return _sorted(federation, shares, None, outcome.engine)


def _sorted(federation: Federation, downloads: Integers | Reals, slots: int | None, engine: str) -> Collaboration:
    domain = np.array([client.domain for client in federation.clients])
    order = np.argsort(domain, kind="stable")
    groups, counts = domain[order], downloads[np.ix_(order, order)]
    names = federation.embeddings.domains
    return Collaboration(
        tuple(federation.clients[i].name for i in order),
        tuple(names[d] for d in groups),
        counts,
        inside_share(counts, groups, slots),
        engine,
    )


@dataclass(frozen=True, eq=False)
class ClientMemory:
    """The local and the merged memory of one client: what is stored for which class, how certain, and whose it is."""

    client: str
    domain: str
    samples: int
    local: MemoryItems
    merged: MemoryItems


@dataclass(frozen=True, eq=False)
class MemoryItems:
    """Stored items: ``vectors`` (n, D), ``label`` (n,), ``entropy`` (n,), ``external`` (n,): from another client."""

    vectors: Vectors
    label: Integers
    entropy: Reals
    external: Mask

    @property
    def mean_entropy(self) -> float:
        """The mean entropy of what is stored."""
        return float(self.entropy.mean()) if len(self.entropy) else float("nan")


def memories(setup: Setup, samples: int = 300, domains: int = 4) -> list[ClientMemory]:
    """Return the memories of the first client of some domains after ``samples`` images (or its whole stream).

    On the first seed, with an exchange after every round. At most ``domains`` clients are chosen, evenly over the
    benchmark's domains. What a client stores of its own does not depend on what it gets from others, so the whole
    federation need not predict: all clients store, and of all exchanges only the last has to take place.
    """
    whole = federate(setup.benchmark.embeddings, setup.clients, setup.seeds[0])
    federation = replace(whole, clients=tuple(replace(c, samples=c.samples[:samples]) for c in whole.clients))
    clients, exchange = set_up(federation, "latte", setup.latte)
    assert exchange is not None, "Latte collaborates"
    chosen = _choose_clients(federation, domains)
    last = max(map(len, federation.clients)) - 1  # there is no exchange after the last round (B13)
    for client in clients:
        _store(client, 0, last)
        exchange.push(client.name, latte_of(client).summary())
    for client in (clients[i] for i in chosen):
        if last:
            latte_of(client).receive(exchange.pull(client.name))
        _store(client, last, last + 1)
    return [_memory(federation, i, latte_of(clients[i])) for i in chosen]


def _store(client: Client, start: int, end: int) -> None:
    """Let a client store some samples of its stream, as it does when it predicts."""
    method = latte_of(client)
    for views in client.stream[start:end]:
        vector = method.check(views)[0]
        logits = method.zero_shot.logits(vector)
        method.local.put(int(logits.argmax()), vector, entropy_of_one(logits))


def _choose_clients(federation: Federation, domains: int) -> list[int]:
    first: dict[int, int] = {}
    for i, client in enumerate(federation.clients):
        first.setdefault(client.domain, i)
    clients = [first[domain] for domain in sorted(first)]
    places = np.linspace(0, len(clients) - 1, min(domains, len(clients)))
    return [clients[round(place)] for place in places]


def _memory(federation: Federation, i: int, method: Latte) -> ClientMemory:
    client = federation.clients[i]
    domain = federation.embeddings.domains[client.domain]
    return ClientMemory(client.name, domain, len(client), *memory_items(method))


def memory_items(method: Latte) -> tuple[MemoryItems, MemoryItems]:
    """Return what is in a client's local memory, and what it reads: both merged (eq. 3)."""
    own = method.local
    local = _items(own.vectors, own.entropy, own.valid, np.zeros(own.valid.shape, np.bool_))
    return local, _items(*merge_memories(own, method.external))


def _items(vectors: Vectors, entropy: Reals, valid: Mask, external: Mask) -> MemoryItems:
    label = np.broadcast_to(np.arange(len(valid))[:, None], valid.shape)
    return MemoryItems(vectors[valid], label[valid], entropy[valid], external[valid])
