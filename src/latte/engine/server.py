"""The server of the engine: the prototypes of all clients, and which of them every client receives.

Similarities stay in memory, and only what changed is computed again. Imported only where numba is installed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ..core.maths import entropy
from ..core.types import Integers, Mask, Reals, Vectors
from ..core.zero_shot import ZeroShot
from ..methods.latte.client import LatteParams
from ..methods.latte.donors import Routing, Uploaded, donors_among, donors_of, donors_of_unseen
from ..methods.latte.server import GlobalMemory
from .loops.arrays import (
    CLIENT,
    NEAR_SIMILARITY,
    NONE,
    RELEASED,
    ItemTable,
    ListChanges,
    RouteRules,
    RouteTable,
    UploadBatch,
    Window,
    ZeroShotResults,
)
from .loops.classify import classify
from .loops.route import RouteRoom, accept, play
from .loops.upload import blend
from .streams import Crew, Streams, read_only

AT_ONCE = 256  # prototypes that are computed together: they stay in a processor's nearest large cache
SPARE = 4  # clients on a list beyond those that are needed, so that one that leaves it is replaced without a search
FEWEST_ROWS = 8192  # of the list changes that one call of the loop can write
EMPTY = {"client": CLIENT, "none": NONE, "released": RELEASED}
Element = TypeVar("Element", bound=np.generic)


class PrototypeStore:
    """The prototypes that a client may still read, each version once; places are used again once no client does.

    vectors: (P, D)
    entropy, exact: (P,) and whether it is the number that the readable method computes, to the last bit
    beside: (P, N) where the server notes products with those of all clients; (P, 0) if it keeps none
    origin: (P, 2) where it notes the client and the sync
    """

    def __init__(self, streams: Streams, params: LatteParams, crew: Crew, beside: int) -> None:
        self.streams, self.params, self.crew = streams, params, crew
        self.vectors: Vectors = np.zeros((0, streams.zero_shot.dim), np.float32)
        self.entropy: Reals = np.ones(0)
        self.exact: Mask = np.zeros(0, np.bool_)
        self.beside: Vectors = np.zeros((0, beside), np.float32)
        self.origin: Integers = np.zeros((0, 2), np.int64)
        self._free: Integers = np.zeros(0, np.int64)
        self._soon: Integers = np.zeros(0, np.int64)

    def add(self, contents: Integers, items: ItemTable) -> tuple[Integers, Mask]:
        """Store the prototypes of queues (n, S) of samples; return their places (n,) and which of them there are."""
        count, zero_shot = len(contents), self.streams.zero_shot
        if count > len(self._free):
            self._grow(len(self.vectors) + count - len(self._free))
        places, self._free = self._free[:count], self._free[count:]
        seen, text = np.zeros(count, np.bool_), read_only(zero_shot.scaled)

        def store(part: slice) -> None:
            queues, mine = contents[part], places[part]
            room, results = np.empty((2, zero_shot.dim)), ZeroShotResults.empty(len(mine), zero_shot.classes)
            blend(items, queues, self._weights(queues), room[0], mine, self.vectors, seen[part])
            # One row's entropy from a product of another shape may differ in the last bits: see make_exact.
            classify(read_only(self.vectors), mine, np.ones(len(mine), np.float32), text, 0.0, room, results)
            self.entropy[mine] = np.where(seen[part], results.entropy, 1.0)

        self.crew.share(store, (slice(start, start + AT_ONCE) for start in range(0, count, AT_ONCE)))
        self.exact[places] = ~seen
        return places, seen

    def _weights(self, queues: Integers) -> Reals:
        """Return how much each sample of a queue counts (n, S)."""
        valid = queues >= 0
        certain = np.where(valid, self.streams.entropy[queues], np.inf)
        if self.params.prototype == "min_entropy":
            return np.where(np.arange(certain.shape[1]) == certain.argmin(axis=1)[:, None], valid, 0.0)
        rate = 0.0 if self.params.prototype == "mean" else self.params.prototype_rate(self.streams.zero_shot.classes)
        lowest = certain.min(axis=1, keepdims=True, initial=2.0)
        exponent = np.where(valid, rate * (lowest - np.where(valid, certain, 1.0)), -np.inf)
        return np.exp(exponent, out=exponent)

    def retain(self, places: Integers) -> None:
        """Free all places but these, though not before the next call: a window that is being read may need them."""
        free = np.ones(len(self.vectors), np.bool_)
        for used in (places, self._free, self._soon):
            free[used] = False
        self._free = np.concatenate([self._soon, self._free])  # places that were used before come first
        self._soon = np.flatnonzero(free)

    def _grow(self, size: int) -> None:
        """Make room; what is not used yet takes no memory, since fresh zeros are pages that nothing has touched."""
        old, least = len(self.vectors), self.streams.clients * self.streams.zero_shot.classes
        size = max(size, old + old // 2) if old else 2 * max(size, least)

        def lengthen(array: NDArray[Element]) -> NDArray[Element]:
            longer = np.zeros((size, *array.shape[1:]), array.dtype)
            longer[:old] = array
            return longer

        self.vectors, self.beside, self.origin = lengthen(self.vectors), lengthen(self.beside), lengthen(self.origin)
        self.entropy, self.exact = lengthen(self.entropy), lengthen(self.exact)
        self._free = np.concatenate([self._free, np.arange(old, size)])


def make_exact(zero_shot: ZeroShot, items: ItemTable, places: Integers, label: int) -> None:
    """Compute the entropies of prototypes of a class again, with the product that the readable method forms."""
    upload = np.zeros((zero_shot.classes, zero_shot.dim), np.float32)
    for place in places[~items.exact[places]]:
        upload[label] = items.prototypes[place]
        items.stored[place] = entropy(zero_shot.logits(upload))[label]
        items.exact[place] = True


def choose_donors(
    uploaded: Callable[[slice], Uploaded], routing: Routing, own: int, label: int, seen: bool
) -> Integers:
    """Return the donors (slots,) of a class by their definition, -1 for none, where rounding may decide.

    ``uploaded`` returns the uploads of some classes; ``seen`` says whether the client has seen this one. All classes
    matter only if it has not: then donors are ranked by the mean similarity.
    """
    if not seen and not routing.drop_first_rank:
        return donors_of_unseen(uploaded(slice(None)), routing, own, label)
    donors = donors_of(uploaded(slice(label, label + 1)), routing, own)
    return np.where(donors.valid[0], donors.rows[0], -1)


def choose_among_nearest(uploaded: Uploaded, routing: Routing, own: int, similarity: Vectors) -> Integers:
    """Return the donors (slots,) for the only class of ``uploaded``, which the client has seen; -1 for none.

    ``similarity`` (N,) are its products with all clients, up to rounding: only those near enough are computed again.
    """
    allowed = similarity
    if not routing.drop_first_rank:
        allowed = np.where(uploaded.seen[:, 0], similarity, -np.inf)
        allowed[own] = -np.inf
    least = len(allowed) - min(routing.external_slots + routing.drop_first_rank, len(allowed))
    limit = np.partition(allowed, least)[least] - NEAR_SIMILARITY
    return donors_among(uploaded, routing, own, np.flatnonzero(allowed >= limit))


def rank_clients(names: tuple[str, ...], routing: Routing) -> Integers:
    """Return the clients in the order that decides between equal similarities, as the global memory has it."""
    memory = GlobalMemory(ZeroShot([[1.0], [-1.0]], ("a", "b")), routing, names)
    return np.argsort(memory.state()["order"], kind="stable")


def route_rules(params: LatteParams, clients: int) -> RouteRules:
    """Return the rules of a federation of so many clients."""
    routing = params.routing
    slots = min(routing.external_slots, clients - 1)
    return RouteRules(slots, routing.drop_first_rank, EMPTY[routing.empty_query], NEAR_SIMILARITY)


class RouteServer:
    """Holds the latest prototypes of all clients, and everything that follows from them."""

    def __init__(self, names: tuple[str, ...], params: LatteParams, store: PrototypeStore) -> None:
        n, (classes, dim) = len(names), store.streams.zero_shot.text.shape
        self.now, self.routing, self.rules = 0, params.routing, route_rules(params, n)
        slots = self.rules.slots
        length = min(n, slots + 2 + SPARE)
        self.routes = RouteTable(
            vectors=np.zeros((classes, n, dim), np.float32),
            similarity=np.zeros((classes, n, n), np.float32),
            seen=np.zeros((classes, n), np.bool_),
            common=np.zeros((n, n), np.int64),
            current=np.full((classes, n), -1, np.int64),
            stamp=np.full((classes, n), -1, np.int64),
            changed=np.full(classes, -1, np.int64),
            ranking=rank_clients(names, params.routing),
            nearest=np.zeros((n, classes, length), np.int64),
            values=np.zeros((n, classes, length)),
            length=np.zeros((n, classes), np.int64),
            bound=np.full((n, classes), -np.inf),
            external=np.full((n, classes, slots), -1, np.int64),
            donors=np.full((n, classes, slots), -1, np.int64),
            pulled=np.full(n, -1, np.int64),
            pulls=np.zeros(n, np.int64),
            since=np.zeros((n, classes), np.int64),
            downloads=np.zeros((n, n), np.int64),
        )
        self.room = RouteRoom(
            chosen=np.empty(slots, np.int64),
            rows=np.empty(slots + 1, np.int64),
            values=np.empty(slots + 1),
            order=np.empty(length, np.int64),
            exact=np.empty(length),
            mean=np.empty(n),
            starts=np.empty(classes + 1, np.int64),
        )

    def play(self, window: Window, uploads: UploadBatch) -> list[ListChanges]:
        """Play the syncs of a window; return the lists that change in the pulls, in order."""
        parts: list[ListChanges] = []
        at, syncs, members = 0, len(window.starts) - 1, int(np.diff(window.starts).max())
        rows = max(2 * members * len(self.routes.seen), FEWEST_ROWS)  # what may change in two syncs
        while at < syncs:
            client, label, handled = (np.empty(rows, np.int64) for _ in range(3))
            items = np.empty((rows, self.rules.slots), np.int64)
            out = ListChanges(client, label, handled, items, np.zeros(rows, np.bool_))
            rest = window._replace(starts=window.starts[at:]), uploads._replace(starts=uploads.starts[at:])
            played, count = play(self.routes, self.rules, *rest, self.now + at, self.room, out)
            at += played
            changes = ListChanges._make(column[:count] for column in out)
            for row in np.flatnonzero(changes.doubtful):
                self._settle(changes, int(row))
            parts.append(changes)
        self.now += syncs
        return parts

    def _settle(self, changes: ListChanges, row: int) -> None:
        """Take a choice again with the operations of the readable simulator."""
        routes, routing, client, label = self.routes, self.routing, int(changes.client[row]), int(changes.label[row])
        if routes.seen[label, client]:
            uploaded = self._uploaded(slice(label, label + 1))
            donors = choose_among_nearest(uploaded, routing, client, routes.similarity[label, client])
        elif routing.drop_first_rank:
            donors = choose_donors(self._uploaded, routing, client, label, seen=False)
        else:
            uploaded = self._uploaded(slice(None))
            donors = donors_of_unseen(uploaded, routing, client, label, routes.similarity[:, client])
        accept(routes, client, label, donors)
        changes.items[row] = routes.external[client, label]

    def _uploaded(self, labels: slice) -> Uploaded:
        """Return the uploads of some classes as the definition of the donors takes them."""
        return Uploaded(self.routes.vectors[labels], self.routes.seen[labels].T, self.routes.ranking)

    def referenced(self) -> Integers:
        """Return every item that a client may still read."""
        return np.concatenate([self.routes.current.ravel(), self.routes.external.ravel()])

    def downloads(self) -> Integers:
        """Return (N, N): how many prototypes of client j client i received."""
        routes = self.routes
        total = routes.downloads.copy()
        times = np.broadcast_to((routes.pulls[:, None] - routes.since)[:, :, None], routes.donors.shape)
        client, _, _ = at = np.nonzero(routes.donors >= 0)
        np.add.at(total, (client, routes.donors[at]), times[at])
        return total
