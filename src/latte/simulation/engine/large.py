"""Federations of very many clients: an approximate index finds the donors, and its recall is measured.

Needs numba and faiss: ``pip install "latte-tta[fast,scale]"``.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
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
from .blocks import BLOCK, BlockServer, Lists, first_wanted
from .crew import Crew
from .latte_engine import Replay, read_all, windows_of
from .state import CLIENT
from .versions import Pool

EXACT_UP_TO = 100_000  # clients: an index is faster from about 55,000 on, but misses donors; see docs/performance.md
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

    def __init__(self, best_of_rows: Callable[..., Any], crew: Crew, probes: int = 32) -> None:
        self.best_of_rows, self.crew, self.probes = best_of_rows, crew, probes

    def __call__(
        self, vectors: Vectors, queries: Integers, k: int, strangers: tuple[Vectors, int]
    ) -> tuple[Integers, Vectors]:
        """Find about the ``k`` most similar rows of ``vectors`` (n, D) for some of them, and how similar they are.

        ``strangers`` gives the classes that every row has seen (n, C) and a number: so many more rows are found
        among those that have one or two classes in common with the query.
        """
        classes, more = strangers
        own, around = self._lists(vectors)
        members = np.split(np.argsort(own, kind="stable"), _cuts(own, len(around)))
        found = np.full((len(queries), k + more), -1, np.int64)
        similarity = np.full((len(queries), k), -np.inf, np.float32)
        asked = own[queries]

        def look(job: tuple[int, Integers]) -> None:
            number, rows = job
            candidates = np.sort(np.concatenate([members[one] for one in around[number]]))
            scores = vectors[queries[rows]] @ vectors[candidates].T
            best = self.best_of_rows(scores, min(k, len(candidates)))
            found[rows, : best.shape[1]] = candidates[best]
            similarity[rows, : best.shape[1]] = np.take_along_axis(scores, best, axis=1)
            if more:
                scores[classes[queries[rows]] @ classes[candidates].T > 2] = -np.inf
                best = self.best_of_rows(scores, min(more, len(candidates)))
                real = np.isfinite(np.take_along_axis(scores, best, axis=1))
                found[rows, k : k + best.shape[1]] = np.where(real, candidates[best], -1)

        lists = enumerate(np.split(np.argsort(asked, kind="stable"), _cuts(asked, len(around))))
        self.crew.share(look, (job for job in lists if len(job[1])))
        return found, similarity

    def _lists(self, vectors: Vectors) -> tuple[Integers, Integers]:
        """Return the list of each row (n,), and the lists around each list (lists, probes)."""
        count = max(1, min(2 * int(np.sqrt(len(vectors))), len(vectors) // 40))
        limits = {"min_points_per_centroid": 1, "max_points_per_centroid": 32}
        means = _faiss().Kmeans(vectors.shape[1], count, niter=5, seed=0, spherical=True, **limits)
        means.train(vectors)
        _, own = means.index.search(vectors, 1)
        around = self.best_of_rows(means.centroids @ means.centroids.T, min(self.probes, count))
        return own[:, 0], around


class ApproximateServer(BlockServer):
    """Finds the most similar with an index, and those by mean similarity among the most similar in other classes."""

    def __init__(self, names: tuple[str, ...], params: LatteParams, pool: Pool) -> None:
        super().__init__(names, params, pool)
        self.find, self.rng = Ivf(pool.loops.best_of_rows, pool.crew), np.random.default_rng(0)
        self.near, self.unseen = Recall(), Recall()

    def nearest(self, members: Integers) -> Lists:
        """Return about what the exact path returns, and measure on some members how much of it was found."""
        slots, by_mean = self.rules.slots, self.rules.empty == CLIENT
        shape = (len(self.current), len(members), slots + 1)
        lists = Lists(np.full(shape, -1, np.int64), np.full(shape, -np.inf, np.float32))
        wide = np.full((len(members), len(self.current), (WIDTH + STRANGERS) * slots if by_mean else 0), -1, np.int32)
        for label in range(len(self.current)):
            self._near(label, members, (lists, wide))
        if by_mean:
            candidates = wide.reshape(len(members), -1)
            scores = self._score(members, candidates)
            for label in range(len(self.current)):
                blank = np.flatnonzero(self.current[label, members] < 0)
                lists.who[label, blank, :slots] = self._from_candidates(label, candidates[blank], scores[blank])
        self._probe(members, lists)
        return lists

    def _near(self, label: int, members: Integers, out: tuple[Lists, Any]) -> None:
        """Write the most similar of a class, and candidates from it for other classes: near ones, then strangers.

        A mean over few classes in common varies most, so that the best by mean are often strangers.
        """
        lists, wide = out
        slots, by_mean = self.rules.slots, wide.shape[2] > 0
        rows = np.flatnonzero(self.current[label, members] >= 0)
        if not len(rows):
            return
        who = self.ranking[self.current[label, self.ranking] >= 0]
        vectors = self._prototypes(label, who)
        place = np.empty(self.current.shape[1], np.int64)
        place[who] = np.arange(len(who))
        near, more = (WIDTH * slots, STRANGERS * slots) if by_mean else (slots, 0)
        k = min(near + 1, len(who))
        seen = (self.current[:, who] >= 0).T.astype(np.float32)
        own = place[members[rows]]
        found, similarity = self.find(vectors, own, k, (seen, more))
        real = found >= 0
        width = min(k, slots + 1)
        lists.who[label, rows, :width] = np.where(real, who[found], -1)[:, :width]
        lists.values[label, rows, :width] = similarity[:, :width]
        if by_mean:
            wanted = real & (found != own[:, None])
            wide[rows, label, :near] = first_wanted(who[found[:, :k]], wanted[:, :k], near)
            wide[rows, label, near:] = first_wanted(who[found[:, k:]], wanted[:, k:], more)

    def _probe(self, members: Integers, lists: Lists) -> None:
        some = self.rng.permutation(len(members))[:PROBED]
        exact = super().nearest(members[some])
        seen = self.current[:, members[some]] >= 0
        found = lists.who[:, some]
        self.near.count(found[seen], exact.who[seen])
        self.unseen.count(found[~seen], exact.who[~seen])

    def _score(self, members: Integers, candidates: Any) -> Vectors:
        from .loops_large import mean_similarities

        places = np.where(self.current >= 0, self.current - self.samples, -1)
        scores: Vectors = np.empty(candidates.shape, np.float32)

        def some(part: slice) -> None:
            scores[part] = mean_similarities(members[part], candidates[part], places, self.pool.vectors)

        self.pool.crew.share(some, (slice(start, start + BLOCK) for start in range(0, len(members), BLOCK)))
        return scores

    def _from_candidates(self, label: int, candidates: Any, scores: Vectors) -> Integers:
        ranked = np.where(self.current[label, candidates] >= 0, scores, -np.inf)
        order = self.pool.loops.best_of_rows(ranked, min(self.rules.slots, ranked.shape[1]))
        good = np.isfinite(np.take_along_axis(ranked, order, axis=1))
        return first_wanted(np.take_along_axis(candidates, order, axis=1).astype(np.int64), good, self.rules.slots)


class SomeServer(BlockServer):
    """Serves some clients exactly and the others not at all: a sample to measure an approximate index by."""

    some: Integers = np.zeros(0, np.int64)

    def nearest(self, members: Integers) -> Lists:
        """Return the lists of the clients ``some``, and empty ones for the others."""
        rows = np.flatnonzero(np.isin(members, self.some))
        exact = super().nearest(members[rows])
        shape = (len(self.current), len(members), exact.who.shape[2])
        lists = Lists(np.full(shape, -1, np.int64), np.full(shape, -np.inf, np.float32))
        lists.who[:, rows], lists.values[:, rows] = exact
        return lists


def run_sample(
    federation: Federation, params: LatteParams, schedule: Schedule, rng: np.random.Generator, some: Integers
) -> list[Integers]:
    """Return the labels of the clients ``some`` when their donors, of all clients, are found exactly."""
    replay = Replay(federation, params, loops("auto"), server=SomeServer)
    assert isinstance(replay.server, SomeServer)
    replay.server.some = some
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
    with Crew(threads) as crew:
        kind = ApproximateServer if index == "ivf" else BlockServer
        replay = Replay(federation, params, loops("auto"), crew, kind)
        axes = np.array([params.alpha]), np.array([params.beta])
        grid = read_all(replay, params, axes, windows_of(schedule, rng))
    labels = tuple(np.split(grid.labels[0, 0], grid.streams.offsets[1:-1]))
    server = replay.server
    recalls = (server.near.share, server.unseen.share) if isinstance(server, ApproximateServer) else (1.0, 1.0)
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
