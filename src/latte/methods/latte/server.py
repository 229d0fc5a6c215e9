"""Global memory: the latest prototypes of all clients, and which of them a client gets. It is Latte's exchange."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...core.exchange import FEWEST, NamedRows, TableExchange
from ...core.maths import entropy
from ...core.types import Arrays, External, Integers, Mask, Prototypes, Reals, Rounding, State, Vectors
from ...core.validate import (
    boolean,
    check_task,
    client_name,
    exactly,
    message,
    pack_names,
    pack_task,
    require,
    stored_entropies,
    stored_mask,
    stored_vectors,
    unit_where,
    unpack_names,
)
from ...core.zero_shot import ZeroShot
from ...errors import refuse
from .donors import Digests, Donors, Routing, Uploaded, digests_of, donors_of_many

SINGLE_ROUNDING = 1e-6  # the rounding of unit vectors in single precision, with room for sums over their dimensions
LAST_PLACE = 2**63 - 1  # in the order of joining
STORED = ("vectors", "entropy", "seen", "order")  # the rest follows from these
_CHUNK = 256  # rows whose digests are computed at a time, to bound the memory

RowForm: TypeAlias = Callable[[Vectors], NDArray[Any]]  # (n, D) vectors -> (n, width), row by row


class Rows(NamedTuple):
    """What is stored, a row per client."""

    vectors: Vectors  # (n, C, D); those of one class lie side by side in memory: a pull compares them with each other
    entropy: Reals  # (n, C)
    seen: Mask  # (n, C)
    order: NDArray[np.uint64]  # (n,) decides ties: the lower number comes first
    digests: Digests  # (n, C) of the vectors, side by side as these
    stale: Mask  # (n,) whose digests are computed when they are needed, many rows at once


class PreparedRow(NamedTuple):
    """A checked upload: ``vectors`` (C, D), ``entropy`` and ``seen`` (C,)."""

    vectors: Vectors
    entropy: Reals
    seen: Mask


class Picked(NamedTuple):
    """What m clients get, without the vectors: the ``rows`` (m, C, E) of a memory, ``valid``, and ``entropy``."""

    rows: Integers
    valid: Mask
    entropy: Reals

    def of(self, places: Any) -> Picked:
        """Return the arrays of some of the clients."""
        return Picked(*(array[places] for array in self))


class GlobalMemory(TableExchange[Prototypes]):
    """The latest prototypes of all clients in one growing array.

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
        super().__init__(zero_shot)
        self.routing = routing
        self._labels = np.arange(zero_shot.classes)[:, None]  # beside rows (C, E)
        self._replace(self._new_table())
        for client in clients:
            self.join(client)

    def __repr__(self) -> str:
        shape = f"{len(self)} clients, C={self.zero_shot.classes}, D={self.zero_shot.dim}"
        return f"GlobalMemory({shape}, {self.routing}, task={self.task[:8]!r})"

    def _new_table(self) -> NamedRows:
        classes, dim = self.zero_shot.text.shape
        vectors, shape = np.zeros((classes, FEWEST, dim), np.float32), (FEWEST, classes)
        entropies, seen, order = np.ones(shape), np.zeros(shape, np.bool_), np.zeros(FEWEST, np.uint64)
        digests, stale = np.zeros((classes, FEWEST), np.uint64), np.zeros(FEWEST, np.bool_)
        return NamedRows(*Rows(vectors.transpose(1, 0, 2), entropies, seen, order, digests.T, stale))

    def _replace(self, table: NamedRows) -> None:
        self._table, self._encoded = table, dict[str, _EncodedRows]()

    @property
    def _rows(self) -> Rows:
        return Rows(*self._table.arrays)

    # --- uploads ------------------------------------------------------------------------------------------

    def prepare(self, upload: Prototypes, rounding: Rounding | None = None) -> PreparedRow:
        """Check an upload and return what :meth:`store` stores of it, with the entropies (B5); nothing changes.

        With a ``rounding``, the distance by which encoding can have moved the vectors (or each row), a prototype has to
        be classified as its own class by zero-shot. An honest prototype is: it is a sum, with positive weights, of
        embeddings that are classified so, and the embeddings of one class form a convex cone.
        """
        task = self.zero_shot
        message("upload", upload, Prototypes, self.task)
        seen = boolean("upload.seen", upload.seen, (task.classes,))
        vectors = unit_where("upload.vectors", upload.vectors, seen, task.text.shape)
        logits = task.logits(vectors)  # (C, C), a row per prototype
        if rounding is not None and (seen & (logits.max(axis=1) > np.diagonal(logits))).any():
            # a vector that moved by its rounding changes the difference of two logits by at most that times the
            # distance of the two texts times the scale
            slack = task.scale * (np.asarray(rounding)[..., None] + SINGLE_ROUNDING) * task.distances
            excess = logits - np.diagonal(logits)[:, None] - slack
            odd = np.flatnonzero(seen & (excess.max(axis=1) > 0))
            if len(odd):
                own, other = task.classnames[odd[0]], task.classnames[excess[odd[0]].argmax()]
                shown = f"row {odd[0]} ({own!r}), which zero-shot classifies as {other!r}"
                raise refuse("upload.vectors", shown, "prototypes of their own classes")
        return PreparedRow(vectors, np.where(seen, entropy(logits), 1.0), seen)

    def store(self, client: str, prepared: PreparedRow) -> None:
        """Store what :meth:`prepare` returned; a new client joins."""
        with self._lock:
            place = None if client in self._table.row_of else self._next_place(client)
            self._table.set(client, *prepared, place, 0, True)
            self._encode_again(self._table.row_of[client])

    def join(self, client: str) -> int:
        """Return the row of ``client``, a new one (with nothing seen) if it was not there."""
        name = client_name(client)
        with self._lock:
            if name not in self._table.row_of:
                self._table.set(name, 0, 1, False, self._next_place(name), 0, False)
            return self._table.row_of[name]

    def _next_place(self, name: str) -> int:
        """Return the place of a new client in the order that decides ties."""
        if not self.routing.by_joining:
            return stable_place(name)
        return int(self._rows.order.max()) + 1 if len(self) else 0

    def forget(self, client: str) -> None:
        """Remove ``client`` and its upload. Clients that have its prototypes already keep them until they pull."""
        with self._lock:
            (row,) = self._rows_of([client])
            self._table.remove(client_name(client))
            self._encode_again(row, len(self))  # the last row took its place

    def _encode_again(self, *rows: int) -> None:
        for encoded in self._encoded.values():
            encoded.fresh[[row for row in rows if row < len(encoded.fresh)]] = False

    # --- downloads ----------------------------------------------------------------------------------------

    def _uploaded(self) -> Uploaded:
        rows = self._rows
        return Uploaded(
            rows.vectors.transpose(1, 0, 2), rows.seen, np.argsort(rows.order, kind="stable"), self._digests
        )

    def _digests(self) -> Digests:
        """Return the digests (C, n), after those of the rows that have changed were computed."""
        rows = self._rows
        vectors, digests = rows.vectors.transpose(1, 0, 2), rows.digests.T
        stale = np.flatnonzero(rows.stale)
        for start in range(0, len(stale), _CHUNK):
            part = stale[start : start + _CHUNK]
            for label, of_class in enumerate(vectors):
                digests[label, part] = digests_of(of_class[part])
        rows.stale[stale] = False
        return digests

    def neighbours(self, client: str) -> Donors:
        """Return the rows (C, E) whose prototypes ``client`` gets, most similar first, and which are real."""
        picked = self.pick([client])
        return Donors(picked.rows[0], picked.valid[0])

    def pick(self, clients: Sequence[str]) -> Picked:
        """Return which prototypes each of ``clients`` gets, as rows, without the prototypes themselves."""
        with self._lock:
            rows, valid = donors_of_many(self._uploaded(), self.routing, self._rows_of(clients))
            uncertainty = self._rows.entropy[rows, self._labels]
            return Picked(rows, valid, np.where(valid, uncertainty, 1.0))

    def pull_many(self, clients: Sequence[str]) -> list[External]:
        """Return, per class, the prototypes of the k_e clients most similar to each of ``clients`` (eq. 2)."""
        with self._lock:
            return self._downloads(self.pick(clients))

    def pull_traced(self, clients: Sequence[str]) -> tuple[list[External], Integers]:
        """Return the downloads of :meth:`pull_many`, and how many prototypes each client gets from which: (m, N)."""
        with self._lock:
            picked = self.pick(clients)
            counts = np.zeros((len(clients), len(self)), np.int64)
            client, _, _ = at = np.nonzero(picked.valid)
            np.add.at(counts, (client, picked.rows[at]), 1)
            return self._downloads(picked), counts

    def _downloads(self, picked: Picked) -> list[External]:
        downloads, stored = [], self._rows.vectors
        for rows, valid, uncertainty in zip(*picked, strict=True):
            vectors = stored[rows, self._labels]
            vectors[~valid] = 0
            downloads.append(External(vectors, uncertainty, valid, self.task))
        return downloads

    def picked_vectors(self, picked: Picked, name: str, form: RowForm | None) -> NDArray[Any]:
        """Return the vectors of :meth:`pick` in a ``form`` (None: as they are), as (m, C E, width).

        Copies in that form are kept under its ``name`` until their client uploads again.
        """
        with self._lock:
            stored = self._rows.vectors
            if form is not None:
                if name not in self._encoded or len(self._encoded[name].fresh) < len(stored):
                    self._encoded[name] = _EncodedRows(form, stored)
                stored = self._encoded[name].refreshed(stored, picked.rows, self._labels)
            vectors: NDArray[Any] = stored[picked.rows, self._labels]
            return vectors.reshape(len(vectors), -1, vectors.shape[-1])

    def coverage(self, clients: Sequence[str]) -> Mask:
        """Return which classes (m, C) each of ``clients`` has a prototype of."""
        with self._lock:
            return self._rows.seen[self._rows_of(clients)]

    # --- state --------------------------------------------------------------------------------------------

    def state(self) -> State:
        """Return a copy of everything, as arrays."""
        with self._lock:
            rows = {name: np.array(getattr(self._rows, name), order="C") for name in STORED}
            return {**pack_names(self._table.names), **rows, "task": pack_task(self.task)}

    def load(self, arrays: Arrays) -> None:
        """Continue from what :meth:`state` returned; nothing changes if it does not fit."""
        require(arrays, ("names", "name_lengths", *STORED, "task"))
        check_task(arrays["task"], self.task)
        names = unpack_names(arrays["names"], arrays["name_lengths"])
        seen = stored_mask("seen", arrays["seen"], (len(names), self.zero_shot.classes))
        uncertainty = stored_entropies("entropy", arrays["entropy"], seen)
        vectors = stored_vectors("vectors", arrays["vectors"], seen, self.zero_shot.dim)
        order = exactly("order", arrays["order"], np.uint64, (len(names),))
        if self.routing.by_joining:
            if len(np.unique(order)) < len(order) or (order > LAST_PLACE).any():
                raise refuse("order", "a place twice or out of range", "the order of joining")
            if LAST_PLACE in order:  # there is no place behind it: number the clients anew, in the same order
                order = np.argsort(np.argsort(order)).astype(np.uint64)
        elif order.tolist() != [stable_place(name) for name in names]:
            raise refuse("order", "another order than that of the names", "the state of a memory with this routing")
        table = self._new_table()
        for name, *row in zip(names, vectors, uncertainty, seen, order, strict=True):
            table.set(name, *row, 0, True)
        with self._lock:
            self._replace(table)

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:  # a copy: what is pickled later must be of one moment
            return {**vars(self), "_table": copy.deepcopy(self._table), "_encoded": {}, "_lock": None}


class _EncodedRows:
    """Vectors (n, C, D) in the ``form`` in which a server sends them; each is encoded once after a change."""

    def __init__(self, form: RowForm, vectors: Vectors) -> None:
        n, classes, dim = vectors.shape
        example = form(np.zeros((1, dim), np.float32))
        self.form = form
        self.fresh = np.zeros((2 * n, classes), np.bool_)  # with room for more clients
        self.vectors = np.empty((2 * n, classes, example.shape[1]), example.dtype)

    def refreshed(self, vectors: Vectors, rows: Integers, labels: Integers) -> NDArray[Any]:
        """Return all of them, of which those at ``rows, labels`` are up to date."""
        sent = np.zeros_like(self.fresh)
        sent[rows, labels] = True
        stale = np.nonzero(sent & ~self.fresh)
        if len(stale[0]):
            self.vectors[stale] = self.form(vectors[stale])
            self.fresh[stale] = True
        return self.vectors


def stable_place(client: str) -> int:
    """Return 64 bits that depend on the name only, so that ties do not depend on the order of joining."""
    return int.from_bytes(hashlib.blake2b(client.encode(), digest_size=8).digest(), "little")
