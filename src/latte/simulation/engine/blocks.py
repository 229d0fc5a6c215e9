"""The global memory for many clients: no similarities are kept, each sync compares blocks of clients with everyone.

Memory grows with the prototypes only. Two donors whose similarities differ by less than float32 rounding may be
exchanged against the readable simulator: with very many clients such near ties are common, and harmless.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ...core.types import Integers, Mask, Vectors
from ...methods.latte import LatteParams
from .server import EMPTY, ranking_of
from .state import CLIENT, NONE, Given, Rules, Uploads
from .timeline import Window
from .versions import Pool

BLOCK, TILE = 256, 4096  # clients that are compared at a time, and with how many others


class Lists(NamedTuple):
    """The best donors so far, best first: who (C, M, K), -1 for none, and how similar (C, M, K)."""

    who: Integers
    values: Vectors


class Tile(NamedTuple):
    """Some clients in the order that decides among equals, with what they have seen."""

    who: Integers  # (T,)
    seen: Mask  # (T, C)
    places: list[Integers]  # per class, who of them has seen it
    vectors: list[Vectors]  # per class, their prototypes


class BlockServer:
    """Plays syncs as :class:`Server` does, in memory that grows with N · C and not with N²."""

    def __init__(self, names: tuple[str, ...], params: LatteParams, pool: Pool) -> None:
        n, classes = len(names), pool.streams.zero_shot.classes
        slots = min(params.routing.external_slots, n - 1)
        self.rules = Rules(slots, params.released, EMPTY[params.routing.empty_query], 0.0)
        self.ranking = ranking_of(names, params.routing)
        self.pool, self.samples = pool, len(pool.streams)
        self.current = np.full((classes, n), -1, np.int64)
        self.external = np.full((n, classes, slots), -1, np.int64)

    def live(self) -> Integers:
        """Return every item that somebody may still read."""
        return np.concatenate([self.current.ravel(), self.external.ravel()])

    def downloads(self) -> Integers | None:
        """Nobody counts them: (N, N) would not fit."""
        return None

    def play(self, window: Window, uploads: Uploads, offsets: Integers) -> Iterator[Given]:
        """Play the syncs of a window; yield what is different after each for who pulled, class by class."""
        for sync in range(len(window.starts) - 1):
            part = slice(uploads.starts[sync], uploads.starts[sync + 1])
            items = np.where(uploads.seen[part], uploads.items[part], -1)
            self.current[uploads.label[part], uploads.client[part]] = items
            now = slice(window.starts[sync], window.starts[sync + 1])
            members, sample = window.members[now], offsets[window.members[now]] + window.at[now]
            for label, donors in self._lists(members):
                yield self._give(members, sample, label, donors)

    def _give(self, members: Integers, sample: Integers, label: int, donors: Integers) -> Given:
        items = np.where(donors >= 0, self.current[label, donors], -1)
        changed = (items != self.external[members, label]).any(axis=1)
        who = members[changed]
        self.external[who, label] = items[changed]
        labels = np.full(len(who), label)
        return Given(who, labels, sample[changed], items[changed], np.zeros(len(who), np.bool_))

    def _lists(self, members: Integers) -> Iterator[tuple[int, Integers]]:
        """Yield per class the donors (M, slots) of all members, -1 for none."""
        lists = self.nearest(members) if self.rules.slots else None
        for label, now in enumerate(self.current):
            donors = np.full((len(members), self.rules.slots), -1, np.int64)
            if lists:
                seen = now[members] >= 0
                donors[seen] = self._chosen(label, members[seen], lists.who[label, seen], lists.values[label, seen])
                if self.rules.empty == CLIENT:
                    donors[~seen] = lists.who[label, ~seen, : self.rules.slots]
                elif self.rules.empty != NONE:
                    first = self.ranking[1 : self.rules.slots + 1]
                    donors[~seen] = np.where(now[first] >= 0, first, -1)
            yield label, donors

    def _chosen(self, label: int, members: Integers, who: Integers, values: Vectors) -> Integers:
        """Return the donors of those who have seen a class, from the most similar who have."""
        donors = int((self.current[label] >= 0).sum())
        wanted = self._without_best(values, donors) if self.rules.drop_first else who != members[:, None]
        return first_wanted(who, wanted & (who >= 0), self.rules.slots)

    def _without_best(self, similarity: Vectors, donors: int) -> Mask:
        """Say which places are from the second to the last slot, where who has not seen the class counts as 0 (B4)."""
        place = np.broadcast_to(np.arange(similarity.shape[1]), similarity.shape)
        place = place + np.where(similarity < 0, self.current.shape[1] - donors, 0)
        wanted: Mask = (place >= 1) & (place <= self.rules.slots)
        return wanted

    # --- everyone against everyone, in tiles --------------------------------------------------------------

    def nearest(self, members: Integers) -> Lists:
        """Return the clients that are most similar to the members (C, M, slots + 1), themselves included.

        In a class that a member has not seen, these are the others of the highest mean similarity over the classes
        that both have seen (B3), where that is asked for.
        """
        shape = (len(self.current), len(members), self.rules.slots + 1)
        lists = Lists(np.full(shape, -1, np.int64), np.full(shape, -np.inf, np.float32))
        for start in range(0, len(self.ranking), TILE):
            tile = self._tile(self.ranking[start : start + TILE])

            def compare(part: slice, tile: Tile = tile) -> None:
                self._compare(members[part], tile, Lists(lists.who[:, part], lists.values[:, part]))

            parts = (slice(first, first + BLOCK) for first in range(0, len(members), BLOCK))
            self.pool.crew.share(compare, parts)
        return lists

    def _tile(self, who: Integers) -> Tile:
        seen = self.current[:, who] >= 0
        places = [np.flatnonzero(one) for one in seen]
        vectors = [self._prototypes(y, who[place]) for y, place in enumerate(places)]
        return Tile(who, np.ascontiguousarray(seen.T), places, vectors)

    def _prototypes(self, label: int, who: Integers) -> Vectors:
        vectors: Vectors = self.pool.vectors[self.current[label, who] - self.samples]
        return vectors

    def _compare(self, members: Integers, tile: Tile, lists: Lists) -> None:
        """Offer the clients of a tile to the lists of some members."""
        by_mean = self.rules.empty == CLIENT
        seen = self.current[:, members] >= 0
        total = np.zeros((len(members), len(tile.who)) if by_mean else (len(members), 0), np.float32)
        for label, vectors in enumerate(tile.vectors):
            rows = np.flatnonzero(seen[label])
            products = self._prototypes(label, members[rows]) @ vectors.T
            best = Lists(lists.who[label], lists.values[label])
            self.pool.loops.offer(products, rows, (tile.who, tile.places[label]), total, best)
        if by_mean and not seen.all():
            common = seen.T.astype(np.float32) @ tile.seen.T.astype(np.float32)
            self.pool.loops.offer_means(total, common, (members, ~seen.T), (tile.who, tile.seen), lists)


def first_wanted(donors: Integers, wanted: Mask, slots: int) -> Integers:
    """Return the first ``slots`` wanted donors of each row (M, slots), -1 where there are fewer."""
    order = np.argsort(~wanted, axis=1, kind="stable")[:, :slots]
    chosen = np.where(np.take_along_axis(wanted, order, axis=1), np.take_along_axis(donors, order, axis=1), -1)
    short = slots - chosen.shape[1]
    return np.pad(chosen, ((0, 0), (0, max(short, 0))), constant_values=-1)
