"""Exchange of Ristretto: everyone's latest class sums, and a personal head for each client.

The sums of few clients are stored exactly, those of many in single precision.
"""

from __future__ import annotations

import copy
import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ...core.exchange import TableExchange
from ...core.types import Arrays, Integers, Mask, Reals, Rounding, State, TeachingRights
from ...core.validate import at_least, check_task, exactly, pack_names, pack_task, require, unpack_names
from ...core.zero_shot import ZeroShot
from ...errors import refuse
from ..classes import YOUNG
from ..labels import LabelSums, LabelTable, label_fields, label_inverse, split_state
from .heads import Heads, HeadTask, RistrettoParams, SharedCovariance, heads_of, solve, teach
from .pooling import (
    TOGETHER,
    CrowdTable,
    Evidence,
    Offsets,
    Span,
    SumsTable,
    draw_directions,
    factors_within,
    offsets_of,
    pool_some,
    slices,
    span_width,
)
from .sums import EPS, LIVE, ClassSums, Head, checked_sums

LARGEST_SECRET = 2**128 - 1
NO_LIMIT = 2**63 - 1
NUMBERS = re.compile(r"(\d+)", re.ASCII)
# Up to so many clients an exact answer costs about as much as an approximate one (benchmarks/robustness/ristretto.py
# crowd): in a simulation, where everyone syncs at once, and behind a server, where every pull is one client's.
EXACT_TOGETHER, EXACT_ALONE = 1024, 256
SAMPLE = 256  # clients that a covariance of very many comes from
SEEN_COUNT = 0.5  # of soft labels that make a class seen: less is what doubts about images of other classes add up to


@dataclass(frozen=True, slots=True)
class Freshness:
    """How many clients are answered exactly, and what answers to more of them rest on.

    (The noise and the pooling are those of all clients, and fresh, with any number of them.)

    Parameters
    ----------
    exact
        Up to so many clients, the first pull after an upload calculates everything anew from all of them. With more
        clients, class sums are stored in single precision.
    pushes
        For so many uploads serves the covariance of more clients, which all heads share and which comes from a
        ``sample`` of them.
    directions
        Random directions along which the distance between two of more clients is measured.
    secret
        What they are drawn from: a client that knew them could upload class means that only seem to be near, so every
        server draws a secret of its own.
    """

    exact: int = EXACT_TOGETHER
    pushes: int = 256
    directions: int = 48
    secret: int = 0

    def __post_init__(self) -> None:
        for name in ("exact", "pushes", "directions"):
            at_least(name, getattr(self, name), 1)
        at_least("secret", self.secret, 0, LARGEST_SECRET)

    @classmethod
    def of(cls, params: RistrettoParams, secret: int = 0, served: bool = False) -> Freshness:
        """Return what ``params`` ask for; ``served``: every pull is one client's, as behind a server."""
        limit = EXACT_ALONE if served else EXACT_TOGETHER
        return cls(NO_LIMIT if params.approximation == "off" else limit, secret=secret)

    @property
    def sample(self) -> int:
        """How many clients the covariance of more than ``exact`` clients comes from."""
        return min(self.exact, SAMPLE)


class Solved(NamedTuple):
    """Heads, routes (n, n) and pooled counts (n, C) of all, and the ``place`` (n,) of each row of the table in them."""

    heads: Heads
    routes: Reals
    counts: Reals
    place: Integers


class RistrettoExchange(TableExchange[ClassSums]):
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

    _table: SumsTable | CrowdTable

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
        self._joined = np.zeros(zero_shot.classes, np.bool_)
        self._labels = LabelTable(label_fields(zero_shot))
        if self.params.trust == "open":
            self._labels.grant(TeachingRights(frozenset()))
        self._replace(SumsTable(*zero_shot.text.shape), None, None, 0, 0)

    def use_secret(self, secret: int, served: bool = False) -> None:
        """Draw the directions of a crowd from ``secret``; nothing is stored yet. ``served``: a server calls it."""
        with self._lock:
            if len(self):
                raise refuse("secret", f"one for {len(self)} clients that are stored", "it before the first upload")
            if served:
                self.freshness = Freshness.of(self.params, secret, served)
            else:
                self.freshness = dataclasses.replace(self.freshness, secret=secret)

    def watch_classes(self, joined: Iterable[str]) -> None:
        """Let zero-shot decide on these classes, which have joined the task, while there is little evidence of them."""
        with self._lock:
            self._joined = np.isin(self.zero_shot.classnames, list(joined))

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
        self._spread: float | None = None  # what labels need beside a covariance in use

    def _new_crowd(self) -> CrowdTable:
        """Return a table for many clients."""
        (classes, dim), rules = self.zero_shot.text.shape, self.freshness
        span = span_width(classes, dim) if self.params.trust == "open" else 0
        return CrowdTable(classes, draw_directions(dim, rules.directions, rules.secret), span)

    def _changed(self) -> None:
        """Store the table in the form for its number of clients; what was solved is out of date."""
        table, self._solved = self._table, None
        if isinstance(table, SumsTable) == (len(table) <= self.freshness.exact):
            return
        if isinstance(table, SumsTable):
            other: SumsTable | CrowdTable = self._new_crowd()
            evidence = table.evidence
        else:
            other, evidence = SumsTable(*self.zero_shot.text.shape), table.crowd.evidence(np.arange(len(table)))
        for name, counts, means in zip(table.names, evidence.counts, evidence.means, strict=True):
            other.put(name, ClassSums(counts, means))
        self._table, self._shared, self._span = other, None, None

    # --- the exchange -------------------------------------------------------------------------------------

    def prepare(self, upload: ClassSums, rounding: Rounding | None = None) -> ClassSums:
        """Check an upload and return what :meth:`store` stores of it; nothing changes."""
        return checked_sums(upload, self.zero_shot)

    def store(self, client: str, prepared: ClassSums) -> None:
        """Store what :meth:`prepare` returned; a new client joins."""
        with self._lock:
            self._table.put(client, prepared)
            self._put_labels(client, prepared)
            self._age += 1
            self._changed()

    def _put_labels(self, client: str, upload: ClassSums) -> None:
        sums = LabelSums._fields if upload.labels is not None else ()
        self._labels.put(client, {name: getattr(upload, name) for name in sums} or None)
        if not self._labels:
            self._spread = None

    @property
    def labels(self) -> Mapping[str, int]:
        """How many labels the latest upload of each client stands for; clients without are left out."""
        with self._lock:
            return self._labels.labels

    @property
    def rights(self) -> TeachingRights:
        """Whose labels count in full, and whose not at all; by default everybody's do, nobody's in an open task."""
        return self._labels.rights

    def grant(self, rights: TeachingRights) -> None:
        """Replace the rights to teach."""
        with self._lock:
            self._labels.grant(rights)
            self._solved = None

    def pull_many(self, clients: Sequence[str]) -> list[Head]:
        """Return the heads of many clients, with products for all of them at once."""
        return self.pull_traced(clients)[0]

    def pull_traced(self, clients: Sequence[str]) -> tuple[list[Head], Reals]:
        """Return the heads, and the share of each client's evidence that each head uses: (m, N), a client's own 1."""
        with self._lock:
            rows, table = self._rows_of(clients), self._table
            if isinstance(table, CrowdTable):
                return self._some(table, rows)
            return self._everyone(table, rows)

    def coverage(self, clients: Sequence[str]) -> Mask:
        """Return which classes (m, C) each of ``clients`` has seen: their soft counts are at least half an image."""
        with self._lock:
            return np.asarray(self._table.arrays[0][self._rows_of(clients)] >= SEEN_COUNT)

    def forget(self, client: str) -> None:
        """Remove ``client`` and what it uploaded; heads that others hold stay as they are until they pull."""
        with self._lock:
            self._table.remove(*self._names_of([client], self._table.row_of))
            self._labels.put(client, None)
            if not self._labels:
                self._spread = None
            self._changed()

    # --- heads --------------------------------------------------------------------------------------------

    def _everyone(self, table: SumsTable, rows: Integers) -> tuple[list[Head], Reals]:
        """Return the heads and routes of ``rows``, where all clients are solved for at once.

        They are the same to the last bit in whatever order the clients came; in a fleet, whatever they are called, too.
        In an open task they stand in the order of their names, as in the specification: before clients have seen a few
        images of each class, the last bit of a sum turns the span (see ``span_of``).
        """
        if not len(table):
            return [], np.zeros((0, 0))
        if self._solved is None:
            order = table.by_content if self.params.trust == "fleet" else by_name(table.names)
            place = np.argsort(order)
            evidence = Evidence(*(array[order] for array in table.evidence))
            if not (evidence.counts.sum(axis=1) > LIVE).any():  # nobody has an image without a label
                shape = evidence.means.shape
                heads = Heads(np.zeros(shape), np.zeros(shape[:2]), np.zeros(len(table)))
                self._shared, self._solved = None, Solved(heads, np.eye(len(table)), np.zeros(shape[:2]), place)
                return self._everyone(table, rows)
            solution = solve(evidence.times(factors_within(evidence.counts, self.params.count_cap)), self._task)
            heads, centre = heads_of(solution.offsets, solution.shared, self._task), solution.offsets.centre
            names, sums = self._labels.capped()
            if names:
                at = place[self._rows_of(names)]
                inverse = label_inverse(solution.shared.covariance)
                shares = solution.routes[:, at]
                teach(heads, centre, shares, centre[at], LabelSums(**sums), solution.spread, inverse, self.params.eta)
            self._shared, self._solved = None, Solved(heads, solution.routes, solution.offsets.counts, place)
        heads, routes, counts, place = self._solved
        return self._messages(heads, counts, place[rows]), routes[np.ix_(place[rows], place)]

    def _some(self, table: CrowdTable, rows: Integers) -> tuple[list[Head], Reals]:
        """Return the heads and routes of ``rows`` alone, with a covariance that may be some uploads old."""
        params, self._approximated = self.params, True
        factors = factors_within(table.crowd.counts, params.count_cap)
        too_old = self._age >= self.freshness.pushes or (bool(self._labels) and self._spread is None)
        if self._shared is None or too_old:  # that of a new sample
            sample = sample_rows(len(factors), self.freshness.sample, self._turn)
            solution = solve(table.crowd.evidence(sample).times(factors[sample]), self._task)
            self._shared, self._span = solution.shared, solution.span
            self._spread = solution.spread if self._labels else None
            if self._span is not None:
                table.use_span(self._span.directions)
            self._age, self._turn = 0, self._turn + 1
        crowd, messages, routes = table.crowd, list[Head](), np.empty((len(rows), len(table)))

        def neighbourhoods(some: Integers) -> tuple[Reals, Offsets]:
            shares, pooled = pool_some(crowd, some, params.routing, factors, self._span)
            return shares, offsets_of(pooled, self._task.centred_text, params.kappa)

        names, sums = self._labels.capped()
        if names:
            at, inverse = self._rows_of(names), label_inverse(self._shared.covariance)
            donors = np.concatenate([neighbourhoods(at[part])[1].centre for part in slices(len(at), TOGETHER)])
        for part in slices(len(rows), TOGETHER):
            routes[part], offsets = neighbourhoods(rows[part])
            heads = heads_of(offsets, self._shared, self._task)
            if names:
                assert self._spread is not None
                shares = routes[part][:, at]
                teach(heads, offsets.centre, shares, donors, LabelSums(**sums), self._spread, inverse, params.eta)
            messages += self._messages(heads, offsets.counts, np.arange(len(heads.trust)))
        return messages, routes

    def _messages(self, heads: Heads, counts: Reals, places: Integers) -> list[Head]:
        """Return some of the heads, each with arrays of its own; ``counts`` (m, C) are what they rest on."""
        weights, bias, trust = heads
        young = self._joined & (counts < YOUNG)
        masks = [young[i].copy() if young[i].any() else None for i in range(len(young))]
        return [Head(weights[i].copy(), bias[i].copy(), np.array(trust[i]), self.task, masks[i]) for i in places]

    # --- state --------------------------------------------------------------------------------------------

    def state(self) -> State:
        """Return a copy of everything, as arrays. ``covariance`` (0 or 1, D, D) is that in use, if it may be old."""
        with self._lock:
            dim, shared = self.zero_shot.dim, self._shared
            counts, vectors = (np.array(array, order="C") for array in self._table.arrays[:2])
            few = isinstance(self._table, SumsTable)
            return {
                **pack_names(self._table.names),
                "counts": counts,
                "means": (vectors if few else vectors[:0]).astype(np.float64),  # (n or 0, C, D), and the others
                "sums": (vectors[:0] if few else vectors).astype(np.float32),
                "covariance": np.zeros((0, dim, dim)) if shared is None else shared.covariance[None].copy(),
                "age": np.array(self._age, np.int64),
                "turn": np.array(self._turn, np.int64),
                "task": pack_task(self.task),
                **self._span_state(),
                **self._labels.state(),
                **({} if self._spread is None else {"labels.spread": np.array(self._spread)}),
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
        arrays, labels = split_state(arrays, "labels.")
        require(arrays, names if self.params.trust == "fleet" else (*names, "span", "span_noise"))
        check_task(arrays["task"], self.task)
        clients = unpack_names(arrays["names"], arrays["name_lengths"])
        around = exactly("labels.spread", labels.get("labels.spread", np.zeros(())), np.float64, ())
        taught = self._labels.rows({name: array for name, array in labels.items() if name != "labels.spread"})
        if not set(taught) <= set(clients) or not 0 <= around <= 1 or (labels and not taught):
            raise refuse("labels.names", "clients that are not among the names, or a spread", "some of the clients")
        table = self._loaded_table(clients, arrays, taught)
        shared, span = self._loaded_covariance(arrays["covariance"]), self._loaded_span(arrays)
        if isinstance(table, CrowdTable) and span is not None:
            table.use_span(span.directions)
        age, turn = (at_least(name, int(exactly(name, arrays[name], np.int64, ())), 0) for name in ("age", "turn"))
        with self._lock:
            self._replace(table, shared, span, age, turn)
            self._spread = float(around) if "labels.spread" in labels else None
            self._labels.replace(taught)

    def _loaded_table(self, names: list[str], arrays: Arrays, taught: Mapping[str, Any]) -> SumsTable | CrowdTable:
        """Return a table of what :meth:`state` has copied; refuse what no clients can have uploaded."""
        (classes, dim), many = self.zero_shot.text.shape, len(names) > self.freshness.exact
        counts = exactly("counts", arrays["counts"], np.float64, (len(names), classes))
        means = exactly("means", arrays["means"], np.float64, (0 if many else len(names), classes, dim))
        sums = exactly("sums", arrays["sums"], np.float32, (len(names) if many else 0, classes, dim))
        if not many:
            table = SumsTable(classes, dim)
            for name, count, mean in zip(names, counts, means, strict=True):
                table.put(name, self.prepare(ClassSums(count, mean, self.task, **taught.get(name, {}))))
            return table
        crowd = self._new_crowd()
        for name, count, total in zip(names, counts, sums, strict=True):
            mean = total.astype(np.float64) / np.maximum(count, EPS)[:, None]
            self.prepare(ClassSums(count, mean, self.task, **taught.get(name, {})))
            crowd.restore(name, count, total)
        return crowd

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
            own = {"_table": copy.deepcopy(self._table), "_labels": copy.copy(self._labels)}
            return {**vars(self), **own, "_solved": None, "_lock": None}


def by_name(names: Sequence[str]) -> Integers:
    """Return the rows (n,) in the order of the names, and of the numbers in them.

    >>> by_name(["client 10", "client 9", "b"])
    array([2, 1, 0])
    """
    parts = [[int(part) if i % 2 else part for i, part in enumerate(NUMBERS.split(name))] for name in names]
    return np.array(sorted(range(len(names)), key=lambda row: (parts[row], names[row])), np.int64)


def sample_rows(n: int, size: int, turn: int) -> Integers:
    """Return ``size`` of n rows, evenly spaced; each ``turn`` takes others, until all have been in one.

    >>> sample_rows(10, 3, 0), sample_rows(10, 3, 1)
    (array([0, 3, 6]), array([1, 4, 7]))
    """
    return np.arange(size) * n // size + turn % max(n // size, 1)
