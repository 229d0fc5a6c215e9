"""The server of the engine: the prototypes of all clients, and which of them every client receives.

The similarities of all clients stay in memory, and only what changed is computed again (:class:`RouteServer`). For very
many clients each sync compares blocks of clients with all, and no similarity stays (:class:`BlockServer`). Imported
only where numba is installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ..core.maths import entropy
from ..core.types import Integers, Mask, Reals, Vectors
from ..core.zero_shot import ZeroShot
from ..methods.latte.client import LatteParams
from ..methods.latte.donors import NOTHING_IN_COMMON, Routing, Uploaded, donors_among, donors_of, donors_of_unseen
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
from .loops.route import DonorLists, RouteRoom, accept, blend, offer, offer_means, play
from .streams import Crew, Streams, read_only

AT_ONCE = 256  # prototypes that are computed together: they stay in a processor's nearest large cache
SPARE = 4  # clients on a list beyond those that are needed, so that one that leaves it is replaced without a search
FEWEST_ROWS = 8192  # of the list changes that one call of the loop can write
MEMBERS_AT_ONCE, CLIENTS_AT_ONCE = 256, 4096  # clients that are compared together, and with how many others
COUNTED = 1 << 30  # bytes of download counts (N, N); with more clients nothing is counted
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


def route_rules(params: LatteParams, clients: int) -> RouteRules:
    """Return the rules of a federation of so many clients."""
    routing = params.routing
    slots = min(routing.external_slots, clients - 1)
    return RouteRules(slots, routing.drop_first_rank, EMPTY[routing.empty_query], NEAR_SIMILARITY)


class _Server:
    """Holds the latest prototypes of all clients; ``current`` (C, N) and ``external`` (N, C, slots) are items."""

    current: Integers
    external: Integers

    def __init__(self, names: tuple[str, ...], params: LatteParams, store: PrototypeStore) -> None:
        self.routing, self.rules, self.store = params.routing, route_rules(params, len(names)), store
        memory = GlobalMemory(ZeroShot([[1.0], [-1.0]], ("a", "b")), params.routing, names)
        self.ranking = np.argsort(memory.state()["order"], kind="stable")  # decides between equal similarities

    def referenced(self) -> Integers:
        """Return every item that a client may still read."""
        return np.concatenate([self.current.ravel(), self.external.ravel()])


class RouteServer(_Server):
    """Keeps everything that follows from the prototypes."""

    def __init__(self, names: tuple[str, ...], params: LatteParams, store: PrototypeStore) -> None:
        super().__init__(names, params, store)
        self.now, n, (classes, dim) = 0, len(names), store.streams.zero_shot.text.shape
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
            ranking=self.ranking,
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
        self.current, self.external = self.routes.current, self.routes.external
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

    def downloads(self) -> Integers:
        """Return (N, N): how many prototypes of client j client i received."""
        routes = self.routes
        total = routes.downloads.copy()
        times = np.broadcast_to((routes.pulls[:, None] - routes.since)[:, :, None], routes.donors.shape)
        client, _, _ = at = np.nonzero(routes.donors >= 0)
        np.add.at(total, (client, routes.donors[at]), times[at])
        return total


class BlockServer(_Server):
    """Plays syncs in memory that grows with N · C and not with N²."""

    def __init__(self, names: tuple[str, ...], params: LatteParams, store: PrototypeStore) -> None:
        super().__init__(names, params, store)
        n, classes, self.samples = len(names), store.streams.zero_shot.classes, len(store.streams)
        self.current = np.full((classes, n), -1, np.int64)
        self.external = np.full((n, classes, self.rules.slots), -1, np.int64)
        self.counts = np.zeros((n, n), np.int64) if 8 * n * n <= COUNTED else None

    def downloads(self) -> Integers | None:
        """Return (N, N): how many prototypes of client j client i received; None if that takes too much memory."""
        return self.counts

    def play(self, window: Window, uploads: UploadBatch) -> Iterator[ListChanges]:
        """Play the syncs of a window; yield the lists that change in the pulls, class by class."""
        for sync in range(len(window.starts) - 1):
            part = slice(uploads.starts[sync], uploads.starts[sync + 1])
            items = np.where(uploads.seen[part], uploads.items[part], -1)
            self.current[uploads.label[part], uploads.client[part]] = items
            now = slice(window.starts[sync], window.starts[sync + 1])
            members, at = window.members[now], window.at[now]
            for label, donors in self._choose(members):
                items = np.where(donors >= 0, self.current[label, donors], -1)
                if self.counts is not None:
                    row, _ = there = np.nonzero(items >= 0)
                    np.add.at(self.counts, (members[row], donors[there]), 1)
                changed = (items != self.external[members, label]).any(axis=1)
                clients = members[changed]
                self.external[clients, label] = items[changed]
                labels, doubtful = np.full(len(clients), label), np.zeros(len(clients), np.bool_)
                yield ListChanges(clients, labels, at[changed], items[changed], doubtful)

    def _choose(self, members: Integers) -> Iterator[tuple[int, Integers]]:
        """Yield per class the donors (M, slots) of all members, -1 for none."""
        rules, slots = self.rules, self.rules.slots
        lists = self.find_nearest(members) if slots else None
        for label, now in enumerate(self.current):
            donors = np.full((len(members), slots), -1, np.int64)
            if lists:
                seen, clients, values = now[members] >= 0, lists.clients[label], lists.values[label]
                doubtful = np.zeros(len(members), np.bool_)
                donors[seen], doubtful[seen] = self._choose_seen(label, members[seen], clients[seen], values[seen])
                if rules.empty == CLIENT:  # those with nothing in common are equal, and tiles come in ranking order
                    donors[~seen] = clients[~seen, :slots]
                    close = self._too_close(values, slots - 1) & (values[:, slots - 1] > NOTHING_IN_COMMON)
                    doubtful[~seen] = close[~seen]
                elif rules.empty != NONE:
                    first = self.ranking[1 : slots + 1]
                    donors[~seen] = np.where(now[first] >= 0, first, -1)
                self._settle(label, members, np.flatnonzero(doubtful), donors)
            yield label, donors

    def _choose_seen(self, label: int, members: Integers, clients: Integers, values: Reals) -> tuple[Integers, Mask]:
        """Return the donors of members that have seen a class, and where rounding may have decided."""
        slots, n, donors = self.rules.slots, self.current.shape[1], int((self.current[label] >= 0).sum())
        if self.rules.drop_first:  # B4: without the best match, and a client that has not seen the class counts as 0
            place = np.arange(values.shape[1]) + np.where(values < 0, n - donors, 0)
            allowed = (place >= 1) & (place <= slots) & (clients >= 0)
            beside_unseen = (np.abs(values) < self.rules.near).any(axis=1) & (donors < n)
            doubtful = self._too_close(values, 0) | self._too_close(values, slots) | beside_unseen
            return take_first(clients, allowed, slots), doubtful
        order = np.argsort(clients == members[:, None], axis=1, kind="stable")  # the client itself comes last
        others, similar = np.take_along_axis(clients, order, axis=1), np.take_along_axis(values, order, axis=1)
        allowed = (others >= 0) & (others != members[:, None])
        return take_first(others, allowed, slots), self._too_close(similar, slots - 1)

    def _too_close(self, values: Reals, last: int) -> Mask:
        """Say where rounding could have exchanged the places ``last`` and the next."""
        with np.errstate(invalid="ignore"):  # -inf beside -inf
            close: Mask = values[:, last] - values[:, last + 1] < self.rules.near
        return close

    def _settle(self, label: int, members: Integers, rows: Integers, donors: Integers) -> None:
        """Take choices again with the operations of the readable simulator."""
        if not len(rows):
            return
        mine = self._uploaded(slice(label, label + 1))

        def uploaded(labels: slice) -> Uploaded:
            return mine if labels.start is not None else self._uploaded(labels)

        for row in rows:
            own = int(members[row])
            donors[row] = choose_donors(uploaded, self.routing, own, label, bool(self.current[label, own] >= 0))

    def _uploaded(self, labels: slice) -> Uploaded:
        """Return the uploads of some classes as the definition of the donors takes them."""
        items = self.current[labels]
        vectors = np.zeros((*items.shape, self.store.vectors.shape[1]), np.float32)
        vectors[items >= 0] = self.store.vectors[items[items >= 0] - self.samples]
        return Uploaded(vectors, items.T >= 0, self.ranking)

    def find_nearest(self, members: Integers) -> DonorLists:
        """Return the clients that are most similar to the members (C, M, slots + 2), themselves included.

        In a class that a member has not seen, these are the others of the highest mean similarity over the classes
        that both have seen (B3), if the rules say so.
        """
        parts = [members[first : first + MEMBERS_AT_ONCE] for first in range(0, len(members), MEMBERS_AT_ONCE)]
        lists = [self._empty_lists(len(part)) for part in parts]
        for start in range(0, len(self.ranking), CLIENTS_AT_ONCE):
            self._offer(self.ranking[start : start + CLIENTS_AT_ONCE], parts, lists)
        empty = self._empty_lists(0)  # a sync without members
        return DonorLists(*(np.concatenate(arrays, axis=1) for arrays in zip(empty, *lists, strict=True)))

    def _empty_lists(self, members: int) -> DonorLists:
        shape = (len(self.current), members, self.rules.slots + 2)
        return DonorLists(np.full(shape, -1, np.int64), np.full(shape, -np.inf))

    def _offer(self, clients: Integers, parts: list[Integers], lists: list[DonorLists]) -> None:
        """Offer some clients, in the order that decides between equal similarities, to the lists of all members."""
        known, by_mean = self.current[:, clients] >= 0, self.rules.empty == CLIENT
        places = [np.flatnonzero(row) for row in known]
        vectors = [self._prototypes(label, clients[place]) for label, place in enumerate(places)]
        known = np.ascontiguousarray(known.T)

        def compare(number: int) -> None:
            members, mine = parts[number], lists[number]
            seen = self.current[:, members] >= 0
            total = np.zeros((len(members), len(clients) if by_mean else 0))
            for label, theirs in enumerate(vectors):
                rows = np.flatnonzero(seen[label])
                products = self._prototypes(label, members[rows]) @ theirs.T
                best = DonorLists(mine.clients[label], mine.values[label])
                offer(products, rows, clients, places[label], total, best)
            if by_mean and not seen.all():
                with np.errstate(invalid="ignore"):  # zeros and ones: BLAS was seen to raise the flag all the same
                    common = seen.T.astype(np.float32) @ known.T.astype(np.float32)
                unseen, score = np.ascontiguousarray(~seen.T), np.empty(len(clients))
                offer_means(total, common, members, unseen, clients, known, score, mine)

        self.store.crew.share(compare, range(len(parts)))

    def _prototypes(self, label: int, clients: Integers) -> Vectors:
        vectors: Vectors = self.store.vectors[self.current[label, clients] - self.samples]
        return vectors


def take_first(donors: Integers, allowed: Mask, slots: int) -> Integers:
    """Return the first ``slots`` allowed donors of each row (M, slots), -1 where there are fewer."""
    order = np.argsort(~allowed, axis=1, kind="stable")[:, :slots]
    chosen = np.where(np.take_along_axis(allowed, order, axis=1), np.take_along_axis(donors, order, axis=1), -1)
    short = slots - chosen.shape[1]
    return np.pad(chosen, ((0, 0), (0, max(short, 0))), constant_values=-1)
