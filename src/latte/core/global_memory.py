"""The global memory: everyone's latest prototypes, and who gets which. It is the in-process Exchange."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from threading import RLock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .copying import WholeCopy
from .maths import top_k
from .names import client_name, pack_names, unpack_names
from .routing import Routing
from .stored import exactly, require, stored_entropies, stored_mask, stored_vectors
from .table import FEWEST, Table
from .types import Arrays, External, Integers, Mask, Prototypes, Reals, State
from .validate import at_least, boolean, entropies, refuse, unit_where

NOTHING_IN_COMMON = -2.0  # below every cosine: such a donor comes last, but it may come
LAST_PLACE = 2**63 - 1  # in the order of joining


class GlobalMemory(WholeCopy):
    """Everyone's latest prototypes in one growing (N, C, D) array.

    Any number of threads may use one global memory: a lock makes each call a whole, so that an upload is seen wholly or
    not at all, and a state or a copy is that of one moment. (The rows that :meth:`join` and :meth:`neighbours` return
    are good until a client leaves: threads use :meth:`push` and :meth:`pull`.)

    >>> import numpy as np
    >>> memory = GlobalMemory(classes=2, dim=2, routing=Routing(external_slots=1))
    >>> both = Prototypes(np.eye(2, dtype=np.float32), np.array([0.1, 0.2]), np.array([True, True]))
    >>> memory.push("ann", both)
    >>> memory.push("bob", both)
    >>> memory.pull("ann").valid
    array([[ True],
           [ True]])
    """

    def __init__(self, classes: int, dim: int, routing: Routing, clients: Iterable[str] = ()) -> None:
        self.classes, self.dim, self.routing = (
            at_least("classes", classes, 2),
            at_least("dim", dim, 1),
            routing,
        )
        self._lock = RLock()
        self._replace([], Table.empty(FEWEST, self.classes, self.dim))
        for client in clients:
            self.join(client)

    def _replace(self, names: list[str], table: Table) -> None:
        self._names, self._table = names, table
        self._rows = {name: row for row, name in enumerate(names)}
        self._renumber()

    def _renumber(self) -> None:
        """Derive what follows from the rows: the place of who joins next, and (when it is asked for) the ranking."""
        order = self._table.order[: len(self)]
        self._next = int(order.max()) + 1 if self.routing.by_joining and len(order) else 0
        self._sorted: Integers | None = None

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, client: object) -> bool:
        return client in self._rows

    @property
    def clients(self) -> tuple[str, ...]:
        """The names of the clients, by row."""
        with self._lock:
            return tuple(self._names)

    # --- the exchange -------------------------------------------------------------------------------------

    def push(self, client: str, prototypes: Prototypes) -> None:
        """Store the latest prototypes of ``client``; a new client joins."""
        name = client_name(client)
        seen = boolean("prototypes.seen", prototypes.seen, (self.classes,))
        entropy = entropies("prototypes.entropy", prototypes.entropy, seen)
        vectors = unit_where("prototypes.vectors", prototypes.vectors, seen, (self.classes, self.dim))
        with self._lock:
            row, table = self._joined(name), self._table
            table.vectors[row], table.entropy[row], table.seen[row] = vectors, entropy, seen

    def pull(self, client: str) -> External:
        """Return, per class, the prototypes of the k_e clients most similar to ``client`` (eq. 2)."""
        with self._lock:
            return self.gather(*self.neighbours(client))

    def gather(self, donors: Integers, valid: Mask) -> External:
        """Return the prototypes of what :meth:`neighbours` chose."""
        columns = np.arange(self.classes)[:, None]
        with self._lock:
            entropy = np.where(valid, self._table.entropy[donors, columns], 1.0)
            vectors = self._table.vectors[donors, columns]
        vectors[~valid] = 0
        return External(vectors, entropy, valid)

    # --- membership ---------------------------------------------------------------------------------------

    def join(self, client: str) -> int:
        """Return the row of ``client``, a new one (with nothing seen) if it was not there."""
        name = client_name(client)
        with self._lock:
            return self._joined(name)

    def _joined(self, name: str) -> int:
        if name in self._rows:
            return self._rows[name]
        row = len(self)
        if row == len(self._table.order):
            self._table = self._table.resized(2 * row)
        self._table.order[row] = self._next if self.routing.by_joining else _stable_hash(name)
        self._names.append(name)
        self._rows[name] = row
        self._next += 1
        self._sorted = None
        return row

    def forget(self, client: str) -> None:
        """Remove ``client`` and what it uploaded. Those who already hold its prototypes keep them until they pull."""
        name = client_name(client)
        with self._lock:
            row, last = self._row(name), len(self) - 1
            self._table.remove(row, last)
            self._names[row] = self._names[last]
            self._rows[self._names[row]] = row
            del self._rows[name], self._names[last]
            self._renumber()

    def _row(self, client: str) -> int:
        row = self._rows.get(client_name(client))
        if row is None:
            raise refuse("client", repr(client), f"one of the {len(self)} clients that have pushed before")
        return row

    # --- routing ------------------------------------------------------------------------------------------

    def neighbours(self, client: str) -> tuple[Integers, Mask]:
        """Return the rows (C, E) whose prototypes ``client`` gets, most similar first, and which are real."""
        with self._lock:
            return self._neighbours(self._row(client))

    def _neighbours(self, own: int) -> tuple[Integers, Mask]:
        n, seen = len(self), self._table.seen
        slots = min(self.routing.external_slots, n - 1)
        ranking = self._by_order()
        similarity = self._similarities(own)[ranking]  # (n, C), in an order that no push can change
        if self.routing.drop_first_rank:
            rows = ranking[top_k(np.ascontiguousarray(similarity.T), slots + 1)[:, 1:]]
            return rows, seen[rows, np.arange(self.classes)[:, None]] & self._query_allowed(own)
        scores = np.where(seen[own], similarity, self._scores_of_unseen(own, similarity, ranking))
        scores[~seen[ranking]] = -np.inf
        scores[ranking == own] = -np.inf  # B4: oneself, by identity
        best = top_k(np.ascontiguousarray(scores.T), slots)
        return ranking[best], np.isfinite(np.take_along_axis(scores.T, best, axis=1))

    def _query_allowed(self, own: int) -> Mask:
        """Return (C, 1): may this class be asked for, given what the client has seen?"""
        allowed = self._table.seen[own] | (self.routing.empty_query == "released")
        column: Mask = allowed[:, None]
        return column

    def _by_order(self) -> Integers:
        if self._sorted is None:
            self._sorted = np.argsort(self._table.order[: len(self)], kind="stable")
        return self._sorted

    def _similarities(self, own: int) -> Reals:
        """Return g_own,y · g_j,y as (n, C); 0 where either has not seen y."""
        query = self._table.vectors[own][:, :, None]
        rows = self._table.vectors[: len(self)].transpose(1, 0, 2)
        similarity: Reals = np.matmul(rows, query)[:, :, 0].T.astype(np.float64)
        return similarity

    def _scores_of_unseen(self, own: int, similarity: Reals, ranking: Integers) -> Reals:
        """Return the scores (n, 1) or (n, C) by which donors of a class the client has not seen are ranked (B3)."""
        if self.routing.empty_query == "none":
            return np.full((len(ranking), 1), -np.inf)
        if self.routing.empty_query == "released":  # joining order, without the first
            place = np.arange(len(ranking))
            chosen = (place > 0) & (place <= self.routing.external_slots)
            return np.where(chosen, -1.0 * place, -np.inf)[:, None]
        seen = self._table.seen
        common = seen[ranking] & seen[own]
        count = common.sum(axis=1)
        total = np.where(common, similarity, 0.0).sum(axis=1)
        mean: Reals = np.where(count > 0, total / np.maximum(count, 1), NOTHING_IN_COMMON)
        return mean[:, None]

    # --- state --------------------------------------------------------------------------------------------

    def state(self) -> State:
        """Return a copy of everything, as arrays."""
        with self._lock:
            return {**pack_names(self._names), **self._table.resized(len(self))._asdict()}

    def load(self, arrays: Arrays) -> None:
        """Continue from what :meth:`state` returned; nothing changes if it does not fit."""
        require(arrays, ("names", "name_lengths", *Table._fields))
        names = unpack_names(arrays["names"], arrays["name_lengths"])
        table = self._checked(arrays, names).resized(max(len(names), FEWEST))
        with self._lock:
            self._replace(names, table)

    def _checked(self, arrays: Arrays, names: list[str]) -> Table:
        seen = stored_mask("seen", arrays["seen"], (len(names), self.classes))
        entropy = stored_entropies("entropy", arrays["entropy"], seen)
        vectors = stored_vectors("vectors", arrays["vectors"], seen, self.dim)
        return Table(vectors, entropy, seen, self._checked_order(arrays["order"], names))

    def _checked_order(self, value: object, names: list[str]) -> NDArray[np.uint64]:
        order = exactly("order", value, np.uint64, (len(names),))
        if not self.routing.by_joining:
            if order.tolist() != [_stable_hash(name) for name in names]:
                raise refuse("order", "another order than that of the names", "the state of a memory with this routing")
            return order
        if len(np.unique(order)) < len(order) or (order > LAST_PLACE).any():
            raise refuse("order", "a place twice or out of range", "the order of joining")
        if LAST_PLACE in order:  # there is no place behind it: only who came before whom counts
            order = order.copy()
            order[np.argsort(order)] = np.arange(len(order))
        return order

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:  # copies: what is pickled later must be of one moment
            table, names, rows = self._table.resized(len(self._table.order)), list(self._names), dict(self._rows)
            return {**vars(self), "_table": table, "_names": names, "_rows": rows, "_lock": None}

    def __setstate__(self, values: dict[str, Any]) -> None:
        vars(self).update(values, _lock=RLock())


def _stable_hash(client: str) -> int:
    """Return 64 bits that depend on the name only, so that ties do not depend on who came first."""
    return int.from_bytes(hashlib.blake2b(client.encode(), digest_size=8).digest(), "little")
