"""The global memory: the latest prototypes of all clients, and which of them a client gets. It is Latte's Exchange."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from threading import RLock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import refuse
from .copying import WholeCopy
from .donors import Donors, donors_of, donors_of_many
from .maths import entropy
from .names import check_task, client_name, pack_names, pack_task, unpack_names
from .near_ties import Uploaded
from .own_class import check_own_class
from .prepared import prepared_rows
from .routing import Routing
from .row_copies import Picked, RowCopies, RowForm
from .stored import require
from .stored_table import stable_place, stored_table
from .table import FEWEST, Table
from .types import Arrays, External, Integers, Mask, Prototypes, Reals, Rounding, State, Vectors
from .validate import boolean, message, unit_where
from .zero_shot import ZeroShot


class PreparedRow(NamedTuple):
    """A checked upload: ``vectors`` (C, D), ``entropy`` and ``seen`` (C,)."""

    vectors: Vectors
    entropy: Reals
    seen: Mask


class GlobalMemory(WholeCopy):
    """The latest prototypes of all clients in one growing (N, C, D) array.

    It serves the task of one ``zero_shot`` classifier and refuses prototypes that were made with another. Any number of
    threads may use one global memory: a lock makes each call atomic, so that an upload is seen wholly or not at all,
    and a state or a copy is that of one moment. (The rows that :meth:`join` and :meth:`neighbours` return are valid
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
        self._copies: dict[str, RowCopies] = {}
        self._rows = {name: row for row, name in enumerate(names)}
        self._renumber()

    def _renumber(self) -> None:
        """Derive the place of the next client from the rows; the ranking is derived when it is needed."""
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
        self.store(client_name(client), self.prepare(upload))

    def prepare(self, upload: Prototypes, rounding: Rounding | None = None) -> PreparedRow:
        """Check an upload and return what :meth:`store` stores of it; nothing changes.

        With a ``rounding``, the distance by which encoding can have moved each vector, a prototype has to be classified
        as its own class by zero-shot. An honest prototype is: it is a sum, with positive weights, of embeddings that
        are classified so, and the embeddings of one class form a convex cone.
        """
        classes, dim = self.zero_shot.text.shape
        message("upload", upload, Prototypes, self.task)
        seen = boolean("upload.seen", upload.seen, (classes,))
        vectors = unit_where("upload.vectors", upload.vectors, seen, (classes, dim))
        logits = self.zero_shot.logits(vectors)
        if rounding is not None:
            check_own_class("upload.vectors", logits, seen, self.zero_shot, rounding)
        return PreparedRow(vectors, np.where(seen, entropy(logits), 1.0), seen)

    def store(self, client: str, row: PreparedRow) -> None:
        """Store what :meth:`prepare` returned; a new client joins."""
        with self._lock:
            place = self._ensure_row(client)
            self._table.put(place, *row)
            self._note_change(place)

    def prepare_many(self, uploads: Prototypes, roundings: Reals) -> list[PreparedRow | None]:
        """Return what :meth:`prepare` returns for each of m uploads, whose arrays are stacked: (m, C, D) and (m, C).

        For an upload that may have to be refused it is None: :meth:`prepare` then decides, and says why.
        """
        good, rows = prepared_rows(uploads, roundings, self.zero_shot)
        return [PreparedRow(*row) if fine else None for fine, row in zip(good.tolist(), rows, strict=True)]

    def pull(self, client: str) -> External:
        """Return, per class, the prototypes of the k_e clients most similar to ``client`` (eq. 2)."""
        with self._lock:
            return self._gather(self.neighbours(client))

    def pull_many(self, clients: Sequence[str]) -> list[External]:
        """Return what :meth:`pull` returns for each of ``clients``, with one product per class for all of them."""
        with self._lock:
            return self._gather_many(self._neighbours(self._rows_of(clients)))

    def pull_traced(self, clients: Sequence[str]) -> tuple[list[External], Integers]:
        """Return the downloads of :meth:`pull_many`, and how many prototypes each client gets from which: (m, N)."""
        with self._lock:
            donors = self._neighbours(self._rows_of(clients))
            counts = np.zeros((len(clients), len(self)), np.int64)
            row, _, _ = at = np.nonzero(donors.valid)
            np.add.at(counts, (row, donors.rows[at]), 1)
            return self._gather_many(donors), counts

    def pick(self, clients: Sequence[str]) -> Picked:
        """Return which prototypes each of ``clients`` gets, as rows, without the prototypes themselves."""
        with self._lock:
            rows, valid = self._neighbours(self._rows_of(clients))
            entropy = self._table.entropy[rows, np.arange(self.zero_shot.classes)[:, None]]
            return Picked(rows, valid, np.where(valid, entropy, 1.0))

    def picked_vectors(self, picked: Picked, name: str, form: RowForm | None) -> NDArray[Any]:
        """Return the vectors of :meth:`pick` in a ``form`` (None: as they are), as (m, C E, width).

        Copies in that form are kept under its ``name`` until their client uploads again.
        """
        with self._lock:
            vectors, (m, classes, slots) = self._table.vectors, picked.rows.shape
            places = (picked.rows + vectors.shape[1] * np.arange(classes)[:, None]).reshape(-1)
            if form is None:
                rows = vectors.reshape(-1, vectors.shape[2]).take(places, axis=0)
            else:
                if name not in self._copies:
                    self._copies[name] = RowCopies(form, vectors)
                rows = self._copies[name].take(vectors, places)
            shaped: NDArray[Any] = rows.reshape(m, classes * slots, rows.shape[1])
            return shaped

    def _note_change(self, row: int) -> None:
        for copies in self._copies.values():
            copies.change(row)

    def coverage(self, clients: Sequence[str]) -> Mask:
        """Return which classes (m, C) each of ``clients`` has a prototype of."""
        with self._lock:
            return self._table.seen[[self._row(client) for client in clients]]

    def _gather_many(self, donors: Donors) -> list[External]:
        return [self._gather(Donors(*arrays)) for arrays in zip(*donors, strict=True)]

    def _gather(self, donors: Donors) -> External:
        """Return the prototypes of the chosen rows (C, E)."""
        columns = np.arange(self.zero_shot.classes)[:, None]
        uncertainty = np.where(donors.valid, self._table.entropy[donors.rows, columns], 1.0)
        vectors = self._table.vectors[columns, donors.rows]
        vectors[~donors.valid] = 0
        return External(vectors, uncertainty, donors.valid, self.task)

    # --- membership ---------------------------------------------------------------------------------------

    def join(self, client: str) -> int:
        """Return the row of ``client``, a new one (with nothing seen) if it was not there."""
        name = client_name(client)
        with self._lock:
            return self._ensure_row(name)

    def _ensure_row(self, name: str) -> int:
        if name in self._rows:
            return self._rows[name]
        row = len(self)
        if row == len(self._table.order):
            self._table, self._copies = self._table.resized(2 * row), {}
        self._table.order[row] = self._next if self.routing.by_joining else stable_place(name)
        self._names.append(name)
        self._rows[name] = row
        self._next += 1
        self._ranking = None
        return row

    def forget(self, client: str) -> None:
        """Remove ``client`` and its upload. Clients that have its prototypes already keep them until they pull."""
        name = client_name(client)
        with self._lock:
            row, last = self._row(name), len(self) - 1
            self._table.remove(row, last)
            self._note_change(row)
            self._note_change(last)
            self._names[row] = self._names[last]
            self._rows[self._names[row]] = row
            del self._rows[name], self._names[last]
            self._renumber()

    def _rows_of(self, clients: Sequence[str]) -> Integers:
        return np.array([self._row(client) for client in clients], np.int64)

    def _row(self, client: str) -> int:
        row = self._rows.get(client_name(client))
        if row is None:
            raise refuse("client", repr(client), f"one of the {len(self)} clients that have pushed before")
        return row

    # --- routing ------------------------------------------------------------------------------------------

    def neighbours(self, client: str) -> Donors:
        """Return the rows (C, E) whose prototypes ``client`` gets, most similar first, and which are real."""
        with self._lock:
            return donors_of(self._collect_uploads(), self.routing, self._row(client))

    def _neighbours(self, rows: Integers) -> Donors:
        """Return what :meth:`neighbours` returns for many clients, as (m, C, E)."""
        return donors_of_many(self._collect_uploads(), self.routing, rows)

    def _collect_uploads(self) -> Uploaded:
        if self._ranking is None:
            self._ranking = np.argsort(self._table.order[: len(self)], kind="stable")
        table, n = self._table, len(self)
        return Uploaded(table.vectors[:, :n], table.seen[:n], self._ranking, table.digests[:n])

    # --- state --------------------------------------------------------------------------------------------

    def state(self) -> State:
        """Return a copy of everything, as arrays."""
        with self._lock:
            table = self._table.resized(len(self)).by_client()
            return {**pack_names(self._names), **table, "task": pack_task(self.task)}

    def load(self, arrays: Arrays) -> None:
        """Continue from what :meth:`state` returned; nothing changes if it does not fit."""
        require(arrays, ("names", "name_lengths", "vectors", "entropy", "seen", "order", "task"))
        check_task(arrays["task"], self.task)
        names = unpack_names(arrays["names"], arrays["name_lengths"])
        table = stored_table(arrays, names, self.zero_shot, self.routing.by_joining).resized(max(len(names), FEWEST))
        with self._lock:
            self._replace(names, table)

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:  # copies: what is pickled later must be of one moment
            table, names, rows = self._table.resized(len(self._table.order)), list(self._names), dict(self._rows)
            return {**vars(self), "_table": table, "_names": names, "_rows": rows, "_copies": {}, "_lock": None}

    def __setstate__(self, values: dict[str, Any]) -> None:
        vars(self).update(values, _lock=RLock())
