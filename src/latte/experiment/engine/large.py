"""Federations of very many clients: an approximate index finds the donors, and its recall is measured.

Needs numba and faiss: ``pip install "latte-tta[fast,scale]"``.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.types import Integers, Vectors
from ...core.validate import choice
from ...data.benchmark import Federation
from ...methods.latte import LatteParams
from ..outcome import Outcome
from ..schedule import Schedule
from .backend import loops
from .blocks import BlockServer, best_columns, compare_all, first_wanted
from .crew import Crew
from .latte import Replay, read_all, windows_of
from .state import CLIENT

EXACT_UP_TO = 5_000  # clients; docs/performance.md has the measurement
# Candidates for a class that a client has not seen, of each class that it has: so many times its slots
WIDTH, STRANGERS = 3, 4
PROBED = 200  # queries per class that are also answered exactly, to measure recall


@dataclass(frozen=True, eq=False)
class LargeOutcome:
    """What a run gives, which index found the donors, and the share of the exact donors that it found.

    ``recall`` is that for classes the client has seen; ``recall_unseen`` that for those ranked by mean similarity,
    1 where there are none.
    """

    outcome: Outcome
    index: str
    recall: float
    recall_unseen: float


class Recall:
    """Counts how many of the exact donors were found."""

    def __init__(self) -> None:
        self.hits, self.wanted = 0, 0

    def count(self, found: Integers, exact: Integers) -> None:
        """Add some rows of donors (n, k), -1 for none."""
        real = exact >= 0
        self.hits += int((real & (found[:, None, :] == exact[:, :, None]).any(axis=2)).sum())
        self.wanted += int(real.sum())

    @property
    def share(self) -> float:
        """Return the share that was found; 1 where nothing was wanted."""
        return self.hits / self.wanted if self.wanted else 1.0


class Ivf:
    """Inverted lists over the prototypes of a class: a client looks into the lists around its own.

    faiss makes the lists. All clients of a list look into the same others, so that one matrix product serves them:
    several times faster than to scan the lists for one query at a time.
    """

    def __init__(self, probes: int = 32, rng: np.random.Generator | None = None) -> None:
        self.probes, self.rng = probes, rng or np.random.default_rng(0)
        self.near, self.unseen = Recall(), Recall()

    def __call__(
        self, vectors: Vectors, queries: Integers, k: int, strangers: tuple[Vectors, int] | None = None
    ) -> tuple[Integers, Vectors]:
        """Find about the ``k`` most similar rows.

        ``strangers`` gives the classes that every row has seen (n, C) and a number: so many more rows are found
        among those that have one or two classes in common with the query.
        """
        more = strangers[1] if strangers else 0
        own, around = self._lists(vectors)
        members = np.split(np.argsort(own, kind="stable"), _cuts(own, len(around)))
        found = np.full((len(queries), k + more), -1, np.int64)
        similarity = np.full((len(queries), k), -np.inf, np.float32)
        asked = own[queries]
        for number, rows in enumerate(np.split(np.argsort(asked, kind="stable"), _cuts(asked, len(around)))):
            if len(rows):
                candidates = np.sort(np.concatenate([members[one] for one in around[number]]))
                scores = vectors[queries[rows]] @ vectors[candidates].T
                best = best_columns(scores, min(k, len(candidates)))
                found[rows, : best.shape[1]] = candidates[best]
                similarity[rows, : best.shape[1]] = np.take_along_axis(scores, best, axis=1)
                if strangers:
                    scores[strangers[0][queries[rows]] @ strangers[0][candidates].T > 2] = -np.inf
                    best = best_columns(scores, min(more, len(candidates)))
                    real = np.isfinite(np.take_along_axis(scores, best, axis=1))
                    found[rows, k : k + best.shape[1]] = np.where(real, candidates[best], -1)
        self._probe(vectors, queries, k, found[:, :k])
        return found, similarity

    def _lists(self, vectors: Vectors) -> tuple[Integers, Integers]:
        """Return the list of each row (n,), and the lists around each list (lists, probes)."""
        count = max(1, min(2 * int(np.sqrt(len(vectors))), len(vectors) // 40))
        limits = {"min_points_per_centroid": 1, "max_points_per_centroid": 32}
        means = _faiss().Kmeans(vectors.shape[1], count, niter=5, seed=0, spherical=True, **limits)
        means.train(vectors)
        _, own = means.index.search(vectors, 1)
        around = best_columns(means.centroids @ means.centroids.T, min(self.probes, count))
        return own[:, 0], around

    def _probe(self, vectors: Vectors, queries: Integers, k: int, found: Integers) -> None:
        sample = self.rng.permutation(len(queries))[:PROBED]
        exact, _ = compare_all(vectors, queries[sample], k)
        self.near.count(found[sample], exact)


class ApproximateServer(BlockServer):
    """Takes the donors of a class that a client has not seen from the neighbours that it has in other classes."""

    find: Ivf

    def _lists(self, members: Integers) -> Iterator[tuple[int, Integers]]:
        if self.rules.empty != CLIENT:
            yield from super()._lists(members)
            return
        slots = self.rules.slots
        wide = np.full((len(members), len(self.current), (WIDTH + STRANGERS) * slots), -1, np.int32)
        for label in range(len(self.current)):
            self._widely(label, members, wide)
        candidates = wide.reshape(len(members), -1)
        scores = self._score(members, candidates)
        probed = self.find.rng.permutation(len(members))[:PROBED]
        seen = (self.current >= 0).T.astype(np.float32)
        exact = self._mean_scores(members[probed], seen)
        for label, around in enumerate(wide.transpose(1, 0, 2)):
            donors = around[:, :slots].astype(np.int64)
            blank = np.flatnonzero(self.current[label, members] < 0)
            donors[blank] = self._from_candidates(label, candidates[blank], scores[blank])
            checked = self.current[label, members[probed]] < 0
            rows = probed[checked]
            self.find.unseen.count(donors[rows], self._best_of(exact[checked], seen[:, label] > 0, members[rows]))
            yield label, donors

    def _widely(self, label: int, members: Integers, wide: Any) -> None:
        """Write candidates from one class for those who have seen it: near ones, then strangers.

        A mean over few classes in common varies most, so that the best by mean are often strangers.
        """
        rows = np.flatnonzero(self.current[label, members] >= 0)
        if len(rows):
            who, vectors = self.vectors_of(label)
            place = np.empty(self.current.shape[1], np.int64)
            place[who] = np.arange(len(who))
            own = place[members[rows]]
            near, more = WIDTH * self.rules.slots, STRANGERS * self.rules.slots
            k = min(near + 1, len(who))
            found, _ = self.find(vectors, own, k, ((self.current[:, who] >= 0).T.astype(np.float32), more))
            wanted = (found >= 0) & (found != own[:, None])
            wide[rows, label, :near] = first_wanted(who[found[:, :k]], wanted[:, :k], near)
            wide[rows, label, near:] = first_wanted(who[found[:, k:]], wanted[:, k:], more)

    def _score(self, members: Integers, candidates: Any) -> Vectors:
        from .loops_large import mean_similarities

        places = np.where(self.current >= 0, self.current - self.samples, -1)
        scores: Vectors = mean_similarities(members, candidates, places, self.pool.vectors)
        return scores

    def _from_candidates(self, label: int, candidates: Any, scores: Vectors) -> Integers:
        seen = self.current[label, candidates] >= 0
        ranked = np.where(seen, scores, -np.inf)
        order = best_columns(ranked, min(self.rules.slots, ranked.shape[1]))
        good = np.isfinite(np.take_along_axis(ranked, order, axis=1))
        return first_wanted(np.take_along_axis(candidates, order, axis=1).astype(np.int64), good, self.rules.slots)


class SomeServer(BlockServer):
    """Serves some clients exactly and the others not at all: a sample to measure an approximate index by."""

    some: Integers = np.zeros(0, np.int64)

    def _lists(self, members: Integers) -> Iterator[tuple[int, Integers]]:
        rows = np.flatnonzero(np.isin(members, self.some))
        for label, donors in super()._lists(members[rows]):
            everyone = np.full((len(members), self.rules.slots), -1, np.int64)
            everyone[rows] = donors
            yield label, everyone


def run_sample(
    federation: Federation, params: LatteParams, schedule: Schedule, rng: np.random.Generator, some: Integers
) -> list[Integers]:
    """Return the labels of the clients ``some`` when their donors, of all clients, are found exactly."""
    replay = Replay(federation, params, loops("auto"), find=compare_all)
    server = SomeServer(tuple(client.name for client in federation.clients), params, replay.pool, compare_all)
    server.some = some
    replay.server = server
    axes = np.array([params.alpha]), np.array([params.beta])
    grid = read_all(replay, params, axes, windows_of(schedule, rng))
    labels = np.split(grid.labels[0, 0], grid.streams.offsets[1:-1])
    return [labels[i] for i in some]


def run_large(
    federation: Federation,
    params: LatteParams,
    schedule: Schedule,
    rng: np.random.Generator,
    index: str = "auto",
    threads: int = 1,
) -> LargeOutcome:
    """Run Latte on very many clients; ``index`` is exact, ivf, or auto: exact up to EXACT_UP_TO clients."""
    choice("index", index, ("auto", "exact", "ivf"))
    if index == "auto":
        index = "exact" if len(federation) <= EXACT_UP_TO else "ivf"
    find = Ivf() if index == "ivf" else compare_all
    with Crew(threads) as crew:
        replay = Replay(federation, params, loops("auto"), crew, find)
        if index == "ivf":
            names = tuple(client.name for client in federation.clients)
            replay.server = ApproximateServer(names, params, replay.pool, find)
        axes = np.array([params.alpha]), np.array([params.beta])
        grid = read_all(replay, params, axes, windows_of(schedule, rng))
    labels = tuple(np.split(grid.labels[0, 0], grid.streams.offsets[1:-1]))
    recalls = (find.near.share, find.unseen.share) if isinstance(find, Ivf) else (1.0, 1.0)
    return LargeOutcome(Outcome(labels, None, f"fast, {index}"), index, *recalls)


def _faiss() -> Any:
    try:
        return importlib.import_module("faiss")
    except ModuleNotFoundError:
        raise ModuleNotFoundError('an approximate index needs faiss: pip install "latte-tta[fast,scale]"') from None


def _cuts(values: Integers, size: int) -> Integers:
    """Return where to split sorted ``values`` so that number v gets the part of value v."""
    cuts: Integers = np.cumsum(np.bincount(values, minlength=size))[:-1]
    return cuts
