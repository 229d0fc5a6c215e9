"""What can be seen only while a federation runs: the memories of some clients, and who downloads from whom."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..core.maths import entropy_of_one
from ..core.readout import concatenated, most_certain
from ..core.types import Integers, Mask, Reals, Vectors
from ..core.validate import refuse
from ..data.benchmark import Federation
from ..data.partition import federate
from ..experiment.config import MethodConfig, RunConfig
from ..experiment.item import run_item
from ..methods.latte import Latte
from ..simulation.collaboration import share_inside
from ..simulation.readable import set_up
from ..simulation.simulate import Client
from .studies import Setup
from .watch import latte_of


@dataclass(frozen=True, eq=False)
class Collaboration:
    """Who downloads from whom, clients sorted by domain.

    ``downloads`` (N, N): entry (i, j) counts the prototypes of client j that client i was given. ``inside`` is the
    share in per cent that stays inside a domain, ``chance`` what it would be if donors were drawn evenly among the
    other clients, ``most`` what it would be if everyone of the own domain came first: k_e may ask for more than those.
    """

    clients: tuple[str, ...]
    domains: tuple[str, ...]
    downloads: Integers
    inside: float
    chance: float
    most: float
    engine: str


def collaboration(setup: Setup, engine: str = "auto") -> Collaboration:
    """Run Latte on the first seed and count the downloads."""
    method = MethodConfig("latte", preset=setup.preset)
    seed = setup.seeds[0]
    config = RunConfig(setup.opened.entry.name, (method,), (seed,), setup.clients, engine=engine)
    federation = federate(setup.opened.embeddings, setup.clients, seed)
    outcome = run_item(federation, _filled(config, setup), seed)
    if outcome.downloads is None:  # see BlockServer.downloads
        raise refuse("clients", f"{len(federation)}, too many to count who downloads from whom", "fewer per domain")
    return _sorted(federation, outcome.downloads, setup.latte.k_e, outcome.engine)


def _filled(config: RunConfig, setup: Setup) -> RunConfig:
    """Return ``config`` with the parameters written out: an item knows no presets."""
    from ..experiment.plan import plan_on

    return plan_on(config, setup.opened).config


def _sorted(federation: Federation, downloads: Integers, k_e: int, engine: str) -> Collaboration:
    domain = np.array([client.domain for client in federation.clients])
    order = np.argsort(domain, kind="stable")
    groups, counts = domain[order], downloads[np.ix_(order, order)]
    same = groups[:, None] == groups[None, :]
    slots, peers = max(min(k_e, len(order) - 1), 1), same.sum(axis=1) - 1
    names = federation.embeddings.domains
    return Collaboration(
        tuple(federation.clients[i].name for i in order),
        tuple(names[d] for d in groups),
        counts,
        share_inside(counts, groups),
        float(100 * peers.mean() / max(len(order) - 1, 1)),
        float(100 * np.minimum(peers, slots).mean() / slots),
        engine,
    )


@dataclass(frozen=True, eq=False)
class Memory:
    """The local and the merged memory of one client: what is stored for which class, how certain, and whose it is."""

    client: str
    domain: str
    samples: int
    local: Items
    merged: Items


@dataclass(frozen=True, eq=False)
class Items:
    """Stored items: ``vectors`` (n, D), ``label`` (n,), ``entropy`` (n,), ``external`` (n,): from another client."""

    vectors: Vectors
    label: Integers
    entropy: Reals
    external: Mask

    @property
    def mean_entropy(self) -> float:
        """The mean entropy of what is stored."""
        return float(self.entropy.mean()) if len(self.entropy) else float("nan")


def memories(setup: Setup, samples: int = 300, domains: int = 4) -> list[Memory]:
    """Return the memories of the first client of some domains after ``samples`` images (or its whole stream).

    On the first seed, with an exchange after every round. At most ``domains`` clients are chosen, evenly over the
    benchmark's domains. What a client stores of its own does not depend on what it gets from others, so the whole
    federation need not predict: everyone stores, and of all exchanges only the last one has to take place.
    """
    whole = federate(setup.opened.embeddings, setup.clients, setup.seeds[0])
    federation = replace(whole, clients=tuple(replace(c, samples=c.samples[:samples]) for c in whole.clients))
    clients, exchange = set_up(federation, "latte", setup.latte)
    assert exchange is not None, "Latte collaborates"
    chosen = _chosen(federation, domains)
    last = max(map(len, federation.clients)) - 1  # there is no exchange after the last round (B13)
    for client in clients:
        _store(client, 0, last)
        exchange.push(client.name, latte_of(client).prototypes())
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


def _chosen(federation: Federation, domains: int) -> list[int]:
    first: dict[int, int] = {}
    for i, client in enumerate(federation.clients):
        first.setdefault(client.domain, i)
    there = [first[domain] for domain in sorted(first)]
    places = np.linspace(0, len(there) - 1, min(domains, len(there)))
    return [there[round(place)] for place in places]


def _memory(federation: Federation, i: int, method: Latte) -> Memory:
    client = federation.clients[i]
    domain = federation.embeddings.domains[client.domain]
    return Memory(client.name, domain, len(client), *memory_items(method))


def memory_items(method: Latte) -> tuple[Items, Items]:
    """Return what is in a client's local memory, and what it reads: both merged (eq. 3)."""
    own = (method.local.vectors, method.local.entropy, method.local.valid)
    local = _items(*own, np.zeros(method.local.valid.shape, np.bool_))
    vectors, entropy, valid = concatenated(own, method.external)
    kept = most_certain(entropy, valid, method.params.k_l)
    merged = _items(
        np.take_along_axis(vectors, kept[:, :, None], axis=1),
        np.take_along_axis(entropy, kept, axis=1),
        np.take_along_axis(valid, kept, axis=1),
        kept >= method.params.k_l,
    )
    return local, merged


def _items(vectors: Vectors, entropy: Reals, valid: Mask, external: Mask) -> Items:
    label = np.broadcast_to(np.arange(len(valid))[:, None], valid.shape)
    return Items(vectors[valid], label[valid], entropy[valid], external[valid])
