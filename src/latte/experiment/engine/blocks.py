"""The global memory for many clients: no similarities are kept, each sync compares blocks of clients with everyone.

Memory grows with the prototypes only. Two donors whose similarities differ by less than float32 rounding may be
exchanged against the readable simulator: with very many clients such near ties are common, and harmless.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Protocol

import numpy as np

from ...core.types import Integers, Mask, Vectors
from ...methods.latte import LatteParams
from .pool import Pool
from .server import EMPTY, ranking_of
from .state import CLIENT, NONE, Given, Rules, Uploads
from .timeline import Window

BLOCK = 256  # clients that are compared with everyone at a time
COMPILED = importlib.util.find_spec("numba") is not None
NOBODY = -2.0  # below every cosine


class Donors(Protocol):
    """Finds, for some rows of ``vectors`` (n, D), the most similar rows."""

    def __call__(self, vectors: Vectors, queries: Integers, k: int) -> tuple[Integers, Vectors]:
        """Return positions (q, k), best first and -1 for none, and similarities; a row is its own neighbour."""


class BlockServer:
    """Plays syncs as :class:`Server` does, in memory that grows with N · C and not with N²."""

    def __init__(self, names: tuple[str, ...], params: LatteParams, pool: Pool, find: Donors) -> None:
        n, classes = len(names), pool.streams.zero_shot.classes
        slots = min(params.routing.external_slots, n - 1)
        self.rules = Rules(slots, params.released, EMPTY[params.routing.empty_query], 0.0)
        self.ranking = ranking_of(names, params.routing)
        self.pool, self.find, self.samples = pool, find, len(pool.streams)
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
        by_mean = self._by_mean(members) if self.rules.empty == CLIENT else {}
        for label in range(len(self.current)):
            donors = np.full((len(members), self.rules.slots), -1, np.int64)
            seen = self.current[label, members] >= 0
            if self.rules.slots and seen.any():
                donors[seen] = self._nearest(label, members[seen])
            if label in by_mean:
                rows, chosen = by_mean[label]
                donors[rows] = chosen
            elif self.rules.empty not in (CLIENT, NONE):
                first = self.ranking[1 : self.rules.slots + 1]
                donors[~seen] = np.where(self.current[label, first] >= 0, first, -1)
            yield label, donors

    # --- a class that the client has seen -----------------------------------------------------------------

    def vectors_of(self, label: int) -> tuple[Integers, Vectors]:
        """Return who has seen a class, in the order that decides among equals, and their prototypes as stored."""
        who = self.ranking[self.current[label, self.ranking] >= 0]
        return who, self.pool.vectors[self.current[label, who] - self.samples]

    def _nearest(self, label: int, members: Integers) -> Integers:
        who, vectors = self.vectors_of(label)
        place = np.empty(self.current.shape[1], np.int64)
        place[who] = np.arange(len(who))
        slots, drop = self.rules.slots, self.rules.drop_first
        k = min(slots + 1, len(who))
        found, similarity = self.find(vectors, place[members], k)
        wanted = self._without_best(similarity, len(who)) if drop else found != place[members][:, None]
        wanted &= found >= 0
        return first_wanted(np.where(found >= 0, who[found], -1), wanted, slots)

    def _without_best(self, similarity: Vectors, donors: int) -> Mask:
        """Say which places are from the second to the last slot, where who has not seen the class counts as 0 (B4)."""
        place = np.broadcast_to(np.arange(similarity.shape[1]), similarity.shape)
        place = place + np.where(similarity < 0, self.current.shape[1] - donors, 0)
        wanted: Mask = (place >= 1) & (place <= self.rules.slots)
        return wanted

    # --- a class that the client has not seen -------------------------------------------------------------

    def _by_mean(self, members: Integers) -> dict[int, tuple[Integers, Integers]]:
        """Return per class the rows of members that have not seen it, and their donors by mean similarity (B3)."""
        seen = (self.current >= 0).T.astype(np.float32)  # (N, C)
        rows = np.flatnonzero(seen[members].min(axis=1, initial=1) == 0)
        parts: dict[int, list[tuple[Integers, Integers]]] = {}
        for start in range(0, len(rows) if self.rules.slots else 0, BLOCK):
            block = rows[start : start + BLOCK]
            scores = self._mean_scores(members[block], seen)
            for label in range(len(self.current)):
                blank = np.flatnonzero(seen[members[block], label] == 0)
                chosen = self._best_of(scores[blank], seen[:, label] > 0, members[block[blank]])
                parts.setdefault(label, []).append((block[blank], chosen))
        return {y: (np.concatenate([a for a, _ in p]), np.concatenate([b for _, b in p])) for y, p in parts.items()}

    def _mean_scores(self, members: Integers, seen: Vectors) -> Vectors:
        """Return the mean similarity (M, N) over the classes both have seen."""
        total = np.zeros((len(members), len(seen)), np.float32)
        for label in range(len(self.current)):
            own = np.flatnonzero(seen[members, label])
            if len(own):
                who, vectors = self.vectors_of(label)
                mine = self.pool.vectors[self.current[label, members[own]] - self.samples]
                total[np.ix_(own, who)] += mine @ vectors.T
        common = seen[members] @ seen.T
        scores: Vectors = np.where(common > 0, total / np.maximum(common, 1), np.float32(NOBODY))
        return scores

    def _best_of(self, scores: Vectors, seen: Mask, own: Integers) -> Integers:
        """Return the donors (M, slots) with the highest ``scores`` (M, N) among those who have seen the class."""
        who = self.ranking[seen[self.ranking]]
        if not len(who) or not len(scores):
            return np.full((len(scores), self.rules.slots), -1, np.int64)
        ranked = scores[:, who]
        ranked[who == own[:, None]] = -np.inf
        order = best_columns(ranked, min(self.rules.slots, len(who)))
        good = np.isfinite(np.take_along_axis(ranked, order, axis=1))
        return first_wanted(who[order], good, self.rules.slots)


def best_columns(scores: Vectors, k: int) -> Integers:
    """Return the columns (M, k) of the largest of each row, best first, the first among equals."""
    if k > 0 and COMPILED:
        from .loops_large import best_of_rows

        compiled: Integers = best_of_rows(scores, k)
        return compiled
    if k < scores.shape[1]:
        near = np.sort(np.argpartition(-scores, k - 1, axis=1)[:, :k], axis=1)
    else:
        near = np.broadcast_to(np.arange(scores.shape[1]), scores.shape)
    order = np.argsort(-np.take_along_axis(scores, near, axis=1), axis=1, kind="stable")
    columns: Integers = np.take_along_axis(near, order, axis=1)
    return columns


def first_wanted(donors: Integers, wanted: Mask, slots: int) -> Integers:
    """Return the first ``slots`` wanted donors of each row (M, slots), -1 where there are fewer."""
    order = np.argsort(~wanted, axis=1, kind="stable")[:, :slots]
    chosen = np.where(np.take_along_axis(wanted, order, axis=1), np.take_along_axis(donors, order, axis=1), -1)
    short = slots - chosen.shape[1]
    return np.pad(chosen, ((0, 0), (0, max(short, 0))), constant_values=-1)


def compare_all(vectors: Vectors, queries: Integers, k: int) -> tuple[Integers, Vectors]:
    """Find the ``k`` most similar rows exactly, in blocks."""
    found, similarity = np.empty((len(queries), k), np.int64), np.empty((len(queries), k), np.float32)
    for start in range(0, len(queries), BLOCK):
        part = slice(start, start + BLOCK)
        scores = vectors[queries[part]] @ vectors.T
        found[part] = best_columns(scores, k)
        similarity[part] = np.take_along_axis(scores, found[part], axis=1)
    return found, similarity
