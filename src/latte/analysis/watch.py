"""Watch the memories of Latte's clients while a federation runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ..core.readout import GATE, merged_positions
from ..core.types import External, Integers, Mask, Prototypes, Vectors
from ..methods.latte import Latte
from ..simulation.collaboration import CountingExchange
from ..simulation.simulator import Client


def latte_of(client: Client) -> Latte:
    """Return the method of a client, which is Latte."""
    assert isinstance(client.method, Latte)
    return client.method


@dataclass(slots=True)
class Watch:
    """Counts per class (C,), while the federation runs."""

    classes: int
    images: Integers = field(init=False)  # taken for the class
    readable: Integers = field(init=False)  # predictions with something stored
    silenced: Integers = field(init=False)  # of those, how many the gate silences
    items: Integers = field(init=False)  # items read, over all predictions
    external: Integers = field(init=False)  # of those, from others
    queries: int = 0  # syncs, of any client
    empty: Integers = field(init=False)  # syncs without a prototype
    entropies: list[float] = field(default_factory=list)  # of the images

    def __post_init__(self) -> None:
        for name in ("images", "readable", "silenced", "items", "external", "empty"):
            setattr(self, name, np.zeros(self.classes, np.int64))

    def see(self, client: Client, sample: int, entropy: float) -> None:
        """Look at a client right after it predicted: its memory is still the one that was read."""
        method, vector = latte_of(client), np.asarray(client.stream[sample][0], np.float32)
        read = filled_slots(method)
        stored = read.any(axis=1)
        self.images[int(method.zero_shot.logits(vector).argmax())] += 1
        self.entropies.append(entropy)
        self.readable += stored
        self.silenced += stored & silenced_classes(method, vector)
        self.items += read.sum(axis=1)
        self.external += external_items(method)

    def count_query(self, prototypes: Prototypes) -> None:
        """Count a sync of a client, which uploads ``prototypes`` and queries with them."""
        self.queries += 1
        self.empty += ~prototypes.seen


def filled_slots(method: Latte) -> Mask:
    """Return which slots of what is read hold something (C, K)."""
    return np.isfinite(method.merged.offset)


def silenced_classes(method: Latte, vector: Vectors) -> Mask:
    """Return per class (C,) whether the released code would silence it: its weighted sum is no longer than the gate.

    The weights are those of B8, exp(beta (s - 1) - gamma h), whatever the variant of the run.
    """
    memory, p = method.merged, method.params
    similarity = (memory.vectors @ vector).astype(np.float64)  # (C, K)
    weights = np.exp(p.beta * (similarity - 1) + memory.offset)  # 0 in free slots
    squares = np.einsum("ck,ckl,cl->c", weights, memory.gram, weights)
    quiet: Mask = squares <= GATE * GATE
    return quiet


def external_items(method: Latte) -> Integers:
    """Return per class (C,) how many of the items that are read came from others."""
    count: Integers
    if method.params.memory == "local":
        return np.zeros(method.zero_shot.classes, np.int64)
    if method.params.memory == "external":
        count = filled_slots(method).sum(axis=1)
        return count
    count = (filled_slots(method) & (merged_positions(method.local, method.external) >= method.params.k_l)).sum(axis=1)
    return count


@dataclass(frozen=True, slots=True, eq=False)
class WatchedExchange:
    """An exchange whose uploads a :class:`Watch` counts."""

    exchange: CountingExchange
    watch: Watch

    @property
    def task(self) -> str:
        """The fingerprint of the task that the exchange serves."""
        return self.exchange.task

    def push(self, client: str, upload: Prototypes) -> None:
        """Look at the upload, and pass it on."""
        self.watch.count_query(upload)
        self.exchange.push(client, upload)

    def pull(self, client: str) -> External:
        """Pass the download on."""
        return self.pull_many([client])[0]

    def pull_many(self, clients: Sequence[str]) -> Sequence[External]:
        """Pass the downloads on."""
        return self.exchange.pull_many(clients)
