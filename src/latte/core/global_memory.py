"""The global memory: everyone's latest prototypes, and whose each client gets. It is Latte's in-process Exchange."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from threading import RLock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .copying import WholeCopy
from .donors import Donors, Uploaded, donors_of, donors_of_many
from .maths import entropy
from .names import check_task, client_name, pack_names, pack_task, unpack_names
from .routing import Routing
from .stored import exactly, require, stored_entropies, stored_mask, stored_vectors
from .table import FEWEST, Table
from .types import Arrays, External, Integers, Prototypes, State
from .validate import boolean, message, refuse, unit_where
from .zero_shot import ZeroShot

LAST_PLACE = 2**63 - 1  # in the order of joining


class GlobalMemory(WholeCopy):
    """Everyone's latest prototypes in one growing (N, C, D) array.

    It serves the task of one ``zero_shot`` classifier and refuses prototypes that were made with another. Any number of
    threads may use one global memory: a lock makes each call a whole, so that an upload is seen wholly or not at all,
    and a state or a copy is that of one moment. (The rows that :meth:`join` and :meth:`neighbours` return are good
    until a client leaves: threads use :meth:`push` and :meth:`pull`.)

    >>> import numpy as np
    >>> zero_shot = ZeroShot(np.eye(2), ("cat", "dog"))
    >>> memory = GlobalMemory(zero_shot, Routing(external_slots=1))
    >>> both = Prototypes(np.eye(2, dtype=np.float32), np.array([True, True]), zero_shot.fingerprint)
    >>> memory.push("ann", both)
    >>> memory.push("bob", both)
    >>> memory.pull("ann").valid
    array([[ True],
           [ True]])
    """

    def __init__(self, zero_shot: ZeroShot, routing: Routing, clients: Iterable[str] = ()) -> None:
        self.zero_shot, self.routing = zero_shot, routing
        self._lock = RLock()
        self._replace([], Table.empty(FEWEST, zero_shot.classes, zero_shot.dim))
        for client in clients:
            self.join(client)

    def __repr__(self) -> str:
        shape = f"{len(self)} clients, C={self.zero_shot.classes}, D={self.zero_shot.dim}"
        return f"GlobalMemory({shape}, {self.routing}, task={self.task[:8]!r})"

    @property
    def task(self) -> str:
        """The fingerprint of the classifier that all clients share."""
        return self.zero_shot.fingerprint

    def _replace(self, names: list[str], table: Table) -> None:
        self._names, self._table = names, table
        self._rows = {name: row for row, name in enumerate(names)}
        self._renumber()

    def _renumber(self) -> None:
        """Derive what follows from the rows: the place of the next client, and (when it is needed) the ranking."""
        order = self._table.order[: len(self)]
        self._next = int(order.max()) + 1 if self.routing.by_joining and len(order) else 0
        self._ranking: Integers | None = None

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

    def push(self, client: str, upload: Prototypes) -> None:
        """Store the latest prototypes of ``client``, with their entropies (B5); a new client joins."""
        name, (classes, dim) = client_name(client), self.zero_shot.text.shape
        message("upload", upload, Prototypes, self.task)
        seen = boolean("upload.seen", upload.seen, (classes,))
        vectors = unit_where("upload.vectors", upload.vectors, seen, (classes, dim))
        uncertainty = np.where(seen, entropy(self.zero_shot.logits(vectors)), 1.0)
        with self._lock:
            row, table = self._joined(name), self._table
            table.vectors[row], table.entropy[row], table.seen[row] = vectors, uncertainty, seen

    def pull(self, client: str) -> External:
        """Return, per class, the prototypes of the k_e clients most similar to ``client`` (eq. 2)."""
        with self._lock:
            return self._gather(self.neighbours(client))

    def pull_many(self, clients: Sequence[str]) -> list[External]:
        """Return what :meth:`pull` returns for each of ``clients``, with one product per class for all of them."""
        return self.pull_traced(clients)[0]

    def pull_traced(self, clients: Sequence[str]) -> tuple[list[External], Integers]:
        """Return the downloads of :meth:`pull_many`, and how many prototypes each client gets from which: (m, N)."""
        with self._lock:
            donors = self._neighbours(np.array([self._row(client) for client in clients], np.int64))
            counts = np.zeros((len(clients), len(self)), np.int64)
            row, _, _ = at = np.nonzero(donors.valid)
            np.add.at(counts, (row, donors.rows[at]), 1)
            return [self._gather(Donors(*one)) for one in zip(*donors, strict=True)], counts

    def _gather(self, donors: Donors) -> External:
        """Return the prototypes of the chosen rows (C, E)."""
        columns = np.arange(self.zero_shot.classes)[:, None]
        uncertainty = np.where(donors.valid, self._table.entropy[donors.rows, columns], 1.0)
        vectors = self._table.vectors[donors.rows, columns]
        vectors[~donors.valid] = 0
        return External(vectors, uncertainty, donors.valid, self.task)

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
        self._ranking = None
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

    def neighbours(self, client: str) -> Donors:
        """Return the rows (C, E) whose prototypes ``client`` gets, most similar first, and which are real."""
        with self._lock:
            return donors_of(self._uploaded(), self.routing, self._row(client))

    def _neighbours(self, rows: Integers) -> Donors:
        """Return the same for many, as (m, C, E); for one, the product of one is cheaper."""
        if len(rows) == 1:
            one = donors_of(self._uploaded(), self.routing, int(rows[0]))
            return Donors(one.rows[None], one.valid[None])
        return donors_of_many(self._uploaded(), self.routing, rows)

    def _uploaded(self) -> Uploaded:
        if self._ranking is None:
            self._ranking = np.argsort(self._table.order[: len(self)], kind="stable")
        return Uploaded(self._table.vectors[: len(self)], self._table.seen[: len(self)], self._ranking)

    # --- state --------------------------------------------------------------------------------------------

    def state(self) -> State:
        """Return a copy of everything, as arrays."""
        with self._lock:
            table = self._table.resized(len(self))._asdict()
            return {**pack_names(self._names), **table, "task": pack_task(self.task)}

    def load(self, arrays: Arrays) -> None:
        """Continue from what :meth:`state` returned; nothing changes if it does not fit."""
        require(arrays, ("names", "name_lengths", *Table._fields, "task"))
        check_task(arrays["task"], self.task)
        names = unpack_names(arrays["names"], arrays["name_lengths"])
        table = self._checked(arrays, names).resized(max(len(names), FEWEST))
        with self._lock:
            self._replace(names, table)

    def _checked(self, arrays: Arrays, names: list[str]) -> Table:
        seen = stored_mask("seen", arrays["seen"], (len(names), self.zero_shot.classes))
        entropy = stored_entropies("entropy", arrays["entropy"], seen)
        vectors = stored_vectors("vectors", arrays["vectors"], seen, self.zero_shot.dim)
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
