"""The global memory for very many clients: each sync compares blocks of clients with all, and no similarity stays.

Memory grows with the prototypes, not with the square of the number of clients.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..core.types import Integers, Mask, Reals, Vectors
from ..methods.latte.client import LatteParams
from ..methods.latte.donors import NOTHING_IN_COMMON, Uploaded
from .loops.arrays import CLIENT, NONE, ListChanges, UploadBatch, Window
from .loops.route import DonorLists, offer, offer_means
from .server import PrototypeStore, choose_donors, rank_clients, route_rules

MEMBERS_AT_ONCE, CLIENTS_AT_ONCE = 256, 4096  # clients that are compared together, and with how many others
COUNTED = 1 << 30  # bytes of download counts (N, N); with more clients nothing is counted


class BlockServer:
    """Plays syncs as ``RouteServer`` does, in memory that grows with N · C and not with N²."""

    def __init__(self, names: tuple[str, ...], params: LatteParams, store: PrototypeStore) -> None:
        n, classes = len(names), store.streams.zero_shot.classes
        self.routing, self.rules = params.routing, route_rules(params, n)
        self.ranking = rank_clients(names, params.routing)
        self.store, self.samples = store, len(store.streams)
        self.current = np.full((classes, n), -1, np.int64)
        self.external = np.full((n, classes, self.rules.slots), -1, np.int64)
        self.counts = np.zeros((n, n), np.int64) if 8 * n * n <= COUNTED else None

    def referenced(self) -> Integers:
        """Return every item that a client may still read."""
        return np.concatenate([self.current.ravel(), self.external.ravel()])

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
