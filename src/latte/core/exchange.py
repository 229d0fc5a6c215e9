"""Exchanges in general: rows of clients that grow, names and a lock, the latest uploads, a state."""

from __future__ import annotations

import copy
from collections.abc import Container, Iterable, Sequence
from threading import RLock
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..errors import refuse
from .types import Arrays, Integers, Message, Rounding, State, array_fields, optional_fields
from .validate import check_task, client_name, exactly, message, pack_names, pack_task, require, unpack_names
from .zero_shot import ZeroShot

FEWEST = 8  # rows of a table to begin with

Up = TypeVar("Up", bound=Message)
Down = TypeVar("Down", bound=Message)


class WholeCopy:
    """``copy.copy`` gives what ``copy.deepcopy`` gives: a second memory that goes its own way.

    A shallow copy would share arrays with the original until one of the two replaces some of them.
    """

    def __copy__(self) -> Self:
        return copy.deepcopy(self)


class NamedRows:
    """Arrays with a row per client and room for more. ``names`` are the clients by row, ``row_of`` the row of each.

    >>> rows = NamedRows(np.zeros((1, 2)))
    >>> rows.set("ann", [1, 2])
    >>> rows.set("bob", [3, 4])
    >>> rows.remove("ann")
    >>> rows.names, rows.arrays[0]
    (['bob'], array([[3., 4.]]))
    """

    def __init__(self, *arrays: NDArray[Any]) -> None:
        self._room = arrays  # with rows for more clients than there are
        self.names: list[str] = []
        self.row_of: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.names)

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        """The rows that are in use."""
        n = len(self.names)
        return tuple([array[:n] for array in self._room])

    def set(self, name: str, *values: Any) -> None:
        """Replace the row of a client, one value per array, None: as it was; a new client joins."""
        row = self.row_of.get(name)
        if row is None:
            row, old = len(self.names), self._room
            if row == len(old[0]):
                self._room = tuple(np.empty_like(array, shape=(2 * row, *array.shape[1:])) for array in old)
                for new, array in zip(self._room, old, strict=True):  # in the same layout
                    new[:row] = array
            self.row_of[name] = row
            self.names.append(name)
        for array, value in zip(self._room, values, strict=True):
            if value is not None:
                array[row] = value

    def remove(self, name: str) -> None:
        """Remove a client: the last row takes its place."""
        row, last = self.row_of.pop(name), len(self.names) - 1
        for array in self._room:
            array[row], array[last] = array[last], 0
        moved = self.names.pop()
        if row < last:
            self.names[row], self.row_of[moved] = moved, row


class TaskExchange(WholeCopy, Generic[Up]):
    """An exchange for the task of one ``zero_shot`` classifier. A subclass decides what it stores and answers.

    A client joins with its first upload: of the names ``clients``, only the form is checked.
    """

    def __init__(self, zero_shot: ZeroShot, clients: Iterable[str] = ()) -> None:
        self.zero_shot = zero_shot
        self._lock = RLock()
        for client in clients:
            client_name(client)

    def __repr__(self) -> str:
        shape = f"{len(self)} clients, C={self.zero_shot.classes}, D={self.zero_shot.dim}"
        return f"{type(self).__name__}({shape}, task={self.task[:8]!r})"

    def __len__(self) -> int:
        return len(self.clients)

    @property
    def task(self) -> str:
        """The fingerprint of the classifier that all clients share."""
        return self.zero_shot.fingerprint

    @property
    def clients(self) -> tuple[str, ...]:
        """The names of the clients, in the order of their first uploads."""
        raise NotImplementedError

    def push(self, client: str, upload: Up) -> None:
        """Store the latest summary of ``client``; a new client joins."""
        self.store(client_name(client), self.prepare(upload))

    def prepare(self, upload: Up, rounding: Rounding | None = None) -> Any:
        """Refuse an upload that no client can have made, or return what :meth:`store` stores of it; nothing changes.

        ``rounding`` is the distance by which encoding can have moved vectors of unit length, a number or one for each
        row; None: the upload comes from this process, and is only checked for what could do harm.
        """
        raise NotImplementedError

    def store(self, client: str, prepared: Any) -> None:
        """Store what :meth:`prepare` returned; a new client joins. It cannot fail."""
        raise NotImplementedError

    def pull(self, client: str) -> Any:
        """Return what ``client`` gets from the others."""
        return self.pull_many([client])[0]

    def pull_many(self, clients: Sequence[str]) -> list[Any]:
        """Return what each of ``clients`` gets, all from the uploads of one moment."""
        raise NotImplementedError

    def _names_of(self, clients: Iterable[str], known: Container[str]) -> list[str]:
        """Return the names of clients; refuse a client that is not among the ``known``."""
        names = [client_name(client) for client in clients]
        for name in names:
            if name not in known:
                raise refuse("client", repr(name), f"one of the {len(self)} clients that have pushed before")
        return names

    def __setstate__(self, values: dict[str, Any]) -> None:
        vars(self).update(values, _lock=RLock())


class TableExchange(TaskExchange[Up], Generic[Up]):
    """An exchange that stores a row per client in one ``_table`` of arrays."""

    _table: NamedRows

    @property
    def clients(self) -> tuple[str, ...]:
        """The names of the clients, by row."""
        with self._lock:
            return tuple(self._table.names)

    def __contains__(self, client: object) -> bool:
        return client in self._table.row_of

    def _rows_of(self, clients: Iterable[str]) -> Integers:
        """Return the rows of clients; refuse a client that is not there."""
        row_of = self._table.row_of
        return np.array([row_of[name] for name in self._names_of(clients, row_of)], np.int64)


class BaseExchange(TaskExchange[Up], Generic[Up, Down]):
    """Stores the latest upload of every client. A subclass names the ``Upload``, verifies one, and answers a client.

    ``Upload`` is a frozen dataclass of numpy arrays and a ``task``. Each array has the same shape and dtype for every
    client, so that the state is an array per field. A ``Download`` of another kind is named, too. Any number of threads
    may use one exchange.
    """

    Upload: ClassVar[type]

    def __init__(self, zero_shot: ZeroShot, clients: Iterable[str] = ()) -> None:
        super().__init__(zero_shot, clients)
        self._uploads: dict[str, Up] = {}

    # --- what a subclass decides --------------------------------------------------------------------------

    def verify(self, upload: Up) -> None:
        """Refuse an upload that no client can have made; its task is that of the exchange already."""
        raise NotImplementedError

    def answer(self, client: str, uploads: dict[str, Up]) -> Down:
        """Return what ``client`` gets from everyone's ``uploads``, its own included, which are sorted by name."""
        raise NotImplementedError

    # --- the exchange -------------------------------------------------------------------------------------

    @property
    def clients(self) -> tuple[str, ...]:
        """The names of the clients, in the order of their first uploads."""
        with self._lock:
            return tuple(self._uploads)

    def prepare(self, upload: Up, rounding: Rounding | None = None) -> Up:
        """Check an upload and return what :meth:`store` stores: a copy that no other code can change."""
        message("upload", upload, self.Upload, self.task)
        arrays = {name: getattr(upload, name) for name in array_fields(upload)}
        for name, array in arrays.items():
            if not isinstance(array, np.ndarray):
                raise refuse(f"upload.{name}", type(array).__name__, "an array")
        self.verify(upload)
        copy: Up = self.Upload(**{name: array.copy() for name, array in arrays.items()}, task=self.task)
        return copy

    def store(self, client: str, prepared: Up) -> None:
        """Store what :meth:`prepare` returned; a new client joins."""
        with self._lock:
            self._uploads[client] = prepared

    def pull_many(self, clients: Sequence[str]) -> list[Down]:
        """Return what each of ``clients`` gets, all from the uploads of one moment."""
        with self._lock:
            names = self._names_of(clients, self._uploads)
            uploads = {name: self._uploads[name] for name in sorted(self._uploads)}
        return [self.answer(name, uploads) for name in names]

    def forget(self, client: str) -> None:
        """Remove ``client`` and what it uploaded."""
        with self._lock:
            (name,) = self._names_of([client], self._uploads)
            del self._uploads[name]

    # --- state --------------------------------------------------------------------------------------------

    def state(self) -> State:
        """Return a copy of everything, as arrays: one per field of the uploads, with a row per client."""
        with self._lock:
            uploads = dict(self._uploads)
        stacked = dict[str, NDArray[Any]]()
        for name in (*array_fields(self.Upload), *optional_fields(self.Upload)) if uploads else ():
            rows = [getattr(upload, name) for upload in uploads.values()]
            if any(row is not None for row in rows):
                stacked[name] = np.stack([row for row in rows if row is not None])
                if name in optional_fields(self.Upload):  # with a mask of the clients that sent it
                    stacked[f"{name}.sent"] = np.array([row is not None for row in rows])
        return {**pack_names(list(uploads)), **stacked, "task": pack_task(self.task)}

    def load(self, arrays: Arrays) -> None:
        """Continue from what :meth:`state` returned; nothing changes if it does not fit."""
        empty, optional = not np.size(arrays.get("name_lengths", ())), optional_fields(self.Upload)
        fields = array_fields(self.Upload)
        sent = [name for name in optional if name in arrays or f"{name}.sent" in arrays]
        more = [*sent, *(f"{name}.sent" for name in sent)]
        require(arrays, ("names", "name_lengths", "task", *(() if empty else (*fields, *more))))
        check_task(arrays["task"], self.task)
        names = unpack_names(arrays["names"], arrays["name_lengths"])
        rows: list[dict[str, NDArray[Any]]] = [{} for _ in names]
        for name in (*fields, *sent) if names else ():
            column, there = arrays[name], np.ones(len(names), np.bool_)
            if name in sent:
                there = exactly(f"{name}.sent", arrays[f"{name}.sent"], np.bool_, (len(names),))
            if not isinstance(column, np.ndarray) or not column.ndim or len(column) != there.sum() or not there.any():
                raise refuse(name, f"shape {np.shape(column)}", f"a row for each of {int(there.sum())} clients")
            for i, value in zip(np.flatnonzero(there), column, strict=True):
                rows[i][name] = np.asarray(value)
        pairs = zip(names, rows, strict=True)
        uploads: dict[str, Up] = {name: self.prepare(self.Upload(**row, task=self.task)) for name, row in pairs}
        with self._lock:
            self._uploads = uploads

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            return {**vars(self), "_uploads": dict(self._uploads), "_lock": None}
