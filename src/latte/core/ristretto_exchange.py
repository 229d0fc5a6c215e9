"""The exchange of Ristretto: everyone's latest class sums, and a personal head for each client."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import refuse
from .class_sums import ClassSums, Head, checked_sums
from .crowd import TOGETHER, CrowdTable, pool_some
from .linear_heads import Heads, HeadTask, RistrettoParams, SharedCovariance, heads_of, solve
from .names import check_task, client_name, pack_names, pack_task, unpack_names
from .neighbourhoods import Evidence, Span, factors_within, offsets_of, span_width
from .stored import exactly, require
from .sums_store import Freshness, fitting, load_table, table_state
from .sums_table import SumsTable
from .task_exchange import TaskExchange
from .types import Arrays, Integers, Mask, Reals, Rounding, State
from .validate import at_least
from .zero_shot import ZeroShot

__all__ = ["Freshness", "RistrettoExchange"]

SEEN_COUNT = 0.5  # of soft labels that make a class seen: less is what doubts about images of other classes add up to


class Solved(NamedTuple):
    """The heads and the routes (n, n) of everyone, and the ``place`` (n,) of each row of the table in them."""

    heads: Heads
    routes: Reals
    place: Integers


class RistrettoExchange(TaskExchange[ClassSums]):
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
        super().__init__(zero_shot, clients)
        self.params = params or RistrettoParams()
        self.freshness = freshness or Freshness.of(self.params)
        self._task = HeadTask.of(zero_shot, self.params)
        self._approximated = False
        self._replace(SumsTable(zero_shot.classes, zero_shot.dim), None, None, 0, 0)

    def use_secret(self, secret: int, served: bool = False) -> None:
        """Draw the directions of a crowd from ``secret``; nothing is stored yet. ``served``: a server calls it."""
        with self._lock:
            if len(self):
                raise refuse("secret", f"one for {len(self)} clients that are stored", "it before the first upload")
            if served:
                self.freshness = Freshness.of(self.params, secret, served)
            else:
                self.freshness = dataclasses.replace(self.freshness, secret=secret)

    @property
    def approximation(self) -> str:
        """What was approximate in answers so far, in words; empty if all were exact."""
        rules = self.freshness
        if not self._approximated:
            return ""
        return (
            f"more than {rules.exact:,} clients: distances along {rules.directions} random directions, "
            f"covariance of a sample of {rules.sample}"
        )

    def _replace(
        self, table: SumsTable | CrowdTable, shared: SharedCovariance | None, span: Span | None, age: int, turn: int
    ) -> None:
        self._table, self._shared, self._span, self._age, self._turn = table, shared, span, age, turn
        self._solved: Solved | None = None

    def _fit(self) -> None:
        """Store the table in the form for its number of clients."""
        table = fitting(self._table, self.zero_shot, self.freshness, self.params.trust)
        if table is not self._table:
            self._table, self._shared, self._span = table, None, None

    def __len__(self) -> int:
        return len(self._table)

    @property
    def clients(self) -> tuple[str, ...]:
        """The names of the clients in the order of joining: the columns of what :meth:`pull_traced` returns."""
        with self._lock:
            return tuple(self._table.names)

    # --- the exchange -------------------------------------------------------------------------------------

    def prepare(self, upload: ClassSums, rounding: Rounding | None = None) -> ClassSums:
        """Check an upload and return what :meth:`store` stores of it; nothing changes."""
        return checked_sums(upload, self.zero_shot)

    def store(self, client: str, prepared: ClassSums) -> None:
        """Store what :meth:`prepare` returned; a new client joins."""
        with self._lock:
            self._table.put(client, prepared)
            self._fit()
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
            rows, table = self._table.rows_of(names), self._table
            if isinstance(table, CrowdTable):
                return self._some(table, rows)
            return self._everyone(table, rows)

    def coverage(self, clients: Sequence[str]) -> Mask:
        """Return which classes (m, C) each of ``clients`` has seen: their soft counts are at least half an image."""
        names = [client_name(client) for client in clients]
        with self._lock:
            for name in names:
                self._require(name)
            return np.asarray(self._table.arrays[0][self._table.rows_of(names)] >= SEEN_COUNT)

    def forget(self, client: str) -> None:
        """Remove ``client`` and what it uploaded; heads that others hold stay as they are until they pull."""
        name = client_name(client)
        with self._lock:
            self._require(name)
            self._table.remove(name)
            self._fit()
            self._solved = None

    def _require(self, name: str) -> None:
        if name not in self._table:
            raise self._unknown(name)

    # --- heads --------------------------------------------------------------------------------------------

    def _everyone(self, table: SumsTable, rows: Integers) -> tuple[list[Head], Reals]:
        """Return the heads and routes of ``rows``, where all clients are solved for at once."""
        if self._solved is None:
            self._shared, self._solved = None, self._solve_all(table)
        heads, routes, place = self._solved
        return self._messages(heads, place[rows]), routes[np.ix_(place[rows], place)]

    def _solve_all(self, table: SumsTable) -> Solved:
        """Return the heads and routes of everyone, to the last bit the same whatever the clients are called."""
        if not len(table):
            return Solved(self._nothing(), np.zeros((0, 0)), np.zeros(0, np.int64))
        order = table.by_content
        evidence = Evidence(*(array[order] for array in table.evidence))
        solution = solve(evidence.times(factors_within(evidence.counts, self.params.count_cap)), self._task)
        heads = heads_of(solution.offsets, solution.shared, self._task)
        return Solved(heads, solution.routes, np.argsort(order))

    def _some(self, table: CrowdTable, rows: Integers) -> tuple[list[Head], Reals]:
        """Return the heads and routes of ``rows`` alone, with a covariance that may be some uploads old."""
        params, self._approximated = self.params, True
        factors = factors_within(table.crowd.counts, params.count_cap)
        shared = self._refreshed(table, factors)
        crowd = table.crowd
        messages: list[Head] = []
        routes = np.empty((len(rows), len(table)))
        for start in range(0, len(rows), TOGETHER):
            part = slice(start, start + TOGETHER)
            routes[part], pooled = pool_some(crowd, rows[part], params.routing, factors, self._span)
            heads = heads_of(offsets_of(pooled, self._task.centred_text, params.kappa), shared, self._task)
            messages += self._messages(heads, np.arange(len(heads.trust)))
        return messages, routes

    def _messages(self, heads: Heads, places: Integers) -> list[Head]:
        """Return some of the heads, each with arrays of its own."""
        weights, bias, trust = heads
        return [Head(weights[i].copy(), bias[i].copy(), np.array(trust[i]), self.task) for i in places]

    def _nothing(self) -> Heads:
        classes, dim = self.zero_shot.text.shape
        return Heads(np.zeros((0, classes, dim)), np.zeros((0, classes)), np.zeros(0))

    def _refreshed(self, table: CrowdTable, factors: Reals) -> SharedCovariance:
        """Return the covariance of a sample; if the last is too old, of a new sample."""
        if self._shared is None or self._age >= self.freshness.pushes:
            sample = sample_rows(len(factors), self.freshness.sample, self._turn)
            solution = solve(table.crowd.evidence(sample).times(factors[sample]), self._task)
            self._shared, self._span = solution.shared, solution.span
            if self._span is not None:
                table.use_span(self._span.directions)
            self._age, self._turn = 0, self._turn + 1
        return self._shared

    # --- state --------------------------------------------------------------------------------------------

    def state(self) -> State:
        """Return a copy of everything, as arrays. ``covariance`` (0 or 1, D, D) is that in use, if it may be old."""
        with self._lock:
            dim, shared = self.zero_shot.dim, self._shared
            return {
                **pack_names(self._table.names),
                **table_state(self._table),
                "covariance": np.zeros((0, dim, dim)) if shared is None else shared.covariance[None].copy(),
                "age": np.array(self._age, np.int64),
                "turn": np.array(self._turn, np.int64),
                "task": pack_task(self.task),
                **self._span_state(),
            }

    def _span_state(self) -> State:
        """Return the span in which an open task measures distances, if there is one in use; a fleet has none."""
        if self.params.trust == "fleet":
            return {}
        shape, span = (self.zero_shot.dim, span_width(*self.zero_shot.text.shape)), self._span
        directions = np.zeros((0, *shape)) if span is None else span.directions[None].copy()
        return {"span": directions, "span_noise": np.array([] if span is None else [span.noise])}

    def load(self, arrays: Arrays) -> None:
        """Continue from what :meth:`state` returned; nothing changes if it does not fit."""
        names = ("names", "name_lengths", "counts", "means", "sums", "covariance", "age", "turn", "task")
        require(arrays, names if self.params.trust == "fleet" else (*names, "span", "span_noise"))
        check_task(arrays["task"], self.task)
        clients = unpack_names(arrays["names"], arrays["name_lengths"])
        table = load_table(clients, arrays, self.zero_shot, self.freshness, self.params.trust)
        shared, span = self._loaded_covariance(arrays["covariance"]), self._loaded_span(arrays)
        if isinstance(table, CrowdTable) and span is not None:
            table.use_span(span.directions)
        age, turn = (at_least(name, int(exactly(name, arrays[name], np.int64, ())), 0) for name in ("age", "turn"))
        with self._lock:
            self._replace(table, shared, span, age, turn)

    def _loaded_covariance(self, value: Any) -> SharedCovariance | None:
        dim = self.zero_shot.dim
        array = exactly("covariance", value, np.float64, (min(len(value), 1) if np.ndim(value) else 0, dim, dim))
        if not len(array):
            return None
        if not np.isfinite(array).all() or not np.allclose(array[0], array[0].T):
            raise refuse("covariance", "values that cannot be one", "a finite, symmetric matrix")
        return SharedCovariance.of(array[0].copy(), self._task)

    def _loaded_span(self, arrays: Arrays) -> Span | None:
        if self.params.trust == "fleet":
            return None
        count = len(arrays["covariance"])  # both come from one sample
        shape = self.zero_shot.dim, span_width(*self.zero_shot.text.shape)
        directions = exactly("span", arrays["span"], np.float64, (count, *shape))
        noise = exactly("span_noise", arrays["span_noise"], np.float64, (count,))
        if not (np.isfinite(directions).all() and np.isfinite(noise).all() and (noise > 0).all()):
            raise refuse("span", "values that cannot be one", "finite directions, and a noise above 0")
        return Span(directions[0].copy(), float(noise[0])) if count else None

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            return {**vars(self), "_table": copy.deepcopy(self._table), "_solved": None, "_lock": None}


def sample_rows(n: int, size: int, turn: int) -> Integers:
    """Return ``size`` of n rows, evenly spaced; each ``turn`` takes others, until all have been in one.

    >>> sample_rows(10, 3, 0), sample_rows(10, 3, 1)
    (array([0, 3, 6]), array([1, 4, 7]))
    """
    return np.arange(size) * n // size + turn % max(n // size, 1)
