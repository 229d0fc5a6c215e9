"""The exchange of Ristretto: everyone's latest class sums, and a personal head for each client."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from threading import RLock
from typing import Any, NamedTuple

import numpy as np

from .class_sums import ClassSums, Head, checked_sums
from .copying import WholeCopy
from .linear_heads import Heads, RistrettoParams, SharedCovariance, Task, heads_of, solve
from .names import check_task, client_name, pack_names, pack_task, unpack_names
from .neighbourhoods import noise_of, offsets_of, parts, pool
from .stored import exactly, require
from .sums_table import SumsTable
from .types import Arrays, Integers, Reals, State
from .validate import at_least, refuse
from .zero_shot import ZeroShot


@dataclass(frozen=True, slots=True)
class Freshness:
    """How fresh the covariance is, which all heads share.

    Up to ``exact`` clients, it is calculated anew from all of them whenever a head is asked for after an upload. With
    more clients, it comes from a sample of ``exact`` of them and is used for ``pushes`` uploads, and class means are
    stored in single precision. (The noise, the routes and the pooling are those of all clients, and fresh, with any
    number of them.)
    """

    exact: int = 256
    pushes: int = 256

    def __post_init__(self) -> None:
        at_least("exact", self.exact, 1)
        at_least("pushes", self.pushes, 1)


class Solved(NamedTuple):
    """The heads and the routes (n, n) of everyone, and the ``place`` (n,) of each row of the table in them."""

    heads: Heads
    routes: Reals
    place: Integers


class RistrettoExchange(WholeCopy):
    """Everyone's latest class sums in one growing (N, C, D) array.

    It serves the task of one ``zero_shot`` classifier. Any number of threads may use one exchange: a lock makes each
    call a whole.

    >>> import numpy as np
    >>> zero_shot = ZeroShot(np.eye(2), ("cat", "dog"))
    >>> exchange = RistrettoExchange(zero_shot)
    >>> exchange.push("ann", ClassSums(np.array([3.0, 1.0]), 0.9 * np.eye(2), zero_shot.fingerprint))
    >>> exchange.pull("ann")
    Head(trust 0.038, 2 classes, task='...')
    """

    def __init__(
        self,
        zero_shot: ZeroShot,
        params: RistrettoParams | None = None,
        clients: Iterable[str] = (),
        freshness: Freshness | None = None,
    ) -> None:
        self.zero_shot, self.params = zero_shot, params or RistrettoParams()
        self.freshness = freshness or Freshness()
        self._task = Task.of(zero_shot, self.params)
        self._lock = RLock()
        self._replace(SumsTable(zero_shot.classes, zero_shot.dim), None, 0, 0)
        for client in clients:  # a client joins with its first upload: here names are only checked
            client_name(client)

    def _replace(self, table: SumsTable, shared: SharedCovariance | None, age: int, turn: int) -> None:
        self._table, self._shared, self._age, self._turn = table, shared, age, turn
        self._solved: Solved | None = None

    def __repr__(self) -> str:
        shape = f"{len(self)} clients, C={self.zero_shot.classes}, D={self.zero_shot.dim}"
        return f"RistrettoExchange({shape}, task={self.task[:8]!r})"

    def __len__(self) -> int:
        return len(self._table)

    @property
    def task(self) -> str:
        """The fingerprint of the classifier that all clients share."""
        return self.zero_shot.fingerprint

    @property
    def clients(self) -> tuple[str, ...]:
        """The names of the clients in the order of joining: the columns of what :meth:`pull_traced` returns."""
        with self._lock:
            return tuple(self._table.names)

    # --- the exchange -------------------------------------------------------------------------------------

    def push(self, client: str, upload: ClassSums) -> None:
        """Store the latest class sums of ``client``; a new client joins."""
        name, checked = client_name(client), checked_sums(upload, self.zero_shot)
        with self._lock:
            self._table.put(name, checked)
            if len(self) > self.freshness.exact and self._table.dtype == np.float64:
                self._table = self._table.narrowed()
            self._age += 1
            self._solved = None

    def pull(self, client: str) -> Head:
        """Return the head of ``client``, from its own evidence and that of clients like it."""
        return self.pull_many([client])[0]

    def pull_many(self, clients: Sequence[str]) -> list[Head]:
        """Return the heads of many clients, with products for all of them at once."""
        return self.pull_traced(clients)[0]

    def pull_traced(self, clients: Sequence[str]) -> tuple[list[Head], Reals]:
        """Return the heads, and the share of each client's evidence that each head uses: (m, N), a client's own 1."""
        names = [client_name(client) for client in clients]
        with self._lock:
            for name in names:
                self._require(name)
            rows = self._table.rows_of(names)
            heads, routes = self._everyone(rows) if len(self) <= self.freshness.exact else self._some(rows)
        trust = [np.array(value) for value in heads.trust]
        triples = zip(heads.weights, heads.bias, trust, strict=True)
        return [Head(weights.copy(), bias.copy(), share, self.task) for weights, bias, share in triples], routes

    def forget(self, client: str) -> None:
        """Remove ``client`` and what it uploaded; heads that others hold stay as they are until they pull."""
        name = client_name(client)
        with self._lock:
            self._require(name)
            self._table.remove(name)
            self._solved = None

    def _require(self, name: str) -> None:
        if name not in self._table:
            raise refuse("client", repr(name), f"one of the {len(self)} clients that have pushed before")

    # --- heads --------------------------------------------------------------------------------------------

    def _everyone(self, rows: Integers) -> tuple[Heads, Reals]:
        """Return the heads and routes of ``rows``, where all clients are solved for at once."""
        if self._solved is None:
            self._shared, self._solved = None, self._solve_all()
        heads, routes, place = self._solved
        return Heads(*(array[place[rows]] for array in heads)), routes[np.ix_(place[rows], place)]

    def _solve_all(self) -> Solved:
        """Return the heads and routes of everyone, to the last bit the same whatever the clients are called."""
        if not len(self):
            return Solved(self._nothing(), np.zeros((0, 0)), np.zeros(0, np.int64))
        order = self._table.by_content
        solution = solve(self._table.evidence.of(order), self._task)
        heads = heads_of(solution.offsets, solution.shared, self._task)
        return Solved(heads, solution.routes, np.argsort(order))

    def _some(self, rows: Integers) -> tuple[Heads, Reals]:
        """Return the heads and routes of ``rows`` alone, with a covariance that may be some uploads old."""
        evidence, shared = self._table.evidence, self._refreshed()
        noise, heads, routes = noise_of(evidence), [self._nothing()], [np.zeros((0, len(self)))]
        for part in parts(rows, evidence):
            pooled = pool(evidence, part, noise, self.params.routing)
            offsets = offsets_of(pooled, self._task.centred_text, self.params.kappa)
            heads.append(heads_of(offsets, shared, self._task))
            routes.append(pooled.routes)
        return Heads(*map(np.concatenate, zip(*heads, strict=True))), np.concatenate(routes)

    def _nothing(self) -> Heads:
        classes, dim = self.zero_shot.text.shape
        return Heads(np.zeros((0, classes, dim)), np.zeros((0, classes)), np.zeros(0))

    def _refreshed(self) -> SharedCovariance:
        """Return the covariance of a sample, a new one where the last is too old."""
        if self._shared is None or self._age >= self.freshness.pushes:
            sample = sample_rows(len(self), self.freshness.exact, self._turn)
            self._shared = solve(self._table.evidence.of(sample), self._task).shared
            self._age, self._turn = 0, self._turn + 1
        return self._shared

    # --- state --------------------------------------------------------------------------------------------

    def state(self) -> State:
        """Return a copy of everything, as arrays. ``covariance`` (0 or 1, D, D): the one in use, if it may be old."""
        with self._lock:
            names, evidence, dim = self._table.names, self._table.evidence, self.zero_shot.dim
            shared = np.zeros((0, dim, dim)) if self._shared is None else self._shared.covariance[None].copy()
            return {
                **pack_names(names),
                "counts": evidence.counts.copy(),
                "means": evidence.means.copy(),
                "covariance": shared,
                "age": np.array(self._age, np.int64),
                "turn": np.array(self._turn, np.int64),
                "task": pack_task(self.task),
            }

    def load(self, arrays: Arrays) -> None:
        """Continue from what :meth:`state` returned; nothing changes if it does not fit."""
        require(arrays, ("names", "name_lengths", "counts", "means", "covariance", "age", "turn", "task"))
        check_task(arrays["task"], self.task)
        names = unpack_names(arrays["names"], arrays["name_lengths"])
        table, shared = self._loaded_table(names, arrays), self._loaded_covariance(arrays["covariance"])
        age, turn = (at_least(name, int(exactly(name, arrays[name], np.int64, ())), 0) for name in ("age", "turn"))
        with self._lock:
            self._replace(table, shared, age, turn)

    def _loaded_table(self, names: list[str], arrays: Arrays) -> SumsTable:
        shape = (len(names), *self.zero_shot.text.shape)
        counts = exactly("counts", arrays["counts"], np.float64, shape[:2])
        dtype = np.float32 if getattr(arrays["means"], "dtype", None) == np.float32 else np.float64
        means = exactly("means", arrays["means"], dtype, shape)
        table = SumsTable(self.zero_shot.classes, self.zero_shot.dim, dtype)
        for name, one, mean in zip(names, counts, means, strict=True):
            table.put(name, checked_sums(ClassSums(one, mean, self.task), self.zero_shot))
        return table

    def _loaded_covariance(self, value: Any) -> SharedCovariance | None:
        dim = self.zero_shot.dim
        array = exactly("covariance", value, np.float64, (min(len(value), 1) if np.ndim(value) else 0, dim, dim))
        if not len(array):
            return None
        if not np.isfinite(array).all() or not np.allclose(array[0], array[0].T):
            raise refuse("covariance", "values that cannot be one", "a finite, symmetric matrix")
        return SharedCovariance.of(array[0].copy(), self.params.rho)

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            return {**vars(self), "_table": copy.deepcopy(self._table), "_solved": None, "_lock": None}

    def __setstate__(self, values: dict[str, Any]) -> None:
        vars(self).update(values, _lock=RLock())


def sample_rows(n: int, size: int, turn: int) -> Integers:
    """Return ``size`` of n rows, evenly spaced; each ``turn`` takes others, until all have been in one.

    >>> sample_rows(10, 3, 0), sample_rows(10, 3, 1)
    (array([0, 3, 6]), array([1, 4, 7]))
    """
    return np.arange(size) * n // size + turn % max(n // size, 1)
