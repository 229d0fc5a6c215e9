"""What an exchange of any messages needs: names, the latest uploads, a lock, a state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from ..errors import refuse
from .names import check_task, client_name, pack_names, pack_task, unpack_names
from .stored import require
from .task_exchange import TaskExchange, Up
from .types import Arrays, Message, Rounding, State, array_fields
from .validate import message
from .zero_shot import ZeroShot

Down = TypeVar("Down", bound=Message)


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
        return self._verified(upload)

    def store(self, client: str, prepared: Up) -> None:
        """Store what :meth:`prepare` returned; a new client joins."""
        with self._lock:
            self._uploads[client] = prepared

    def pull(self, client: str) -> Down:
        """Return what ``client`` gets from the others."""
        return self.pull_many([client])[0]

    def pull_many(self, clients: Sequence[str]) -> list[Down]:
        """Return what each of ``clients`` gets, all from the uploads of one moment."""
        names = [client_name(client) for client in clients]
        with self._lock:
            uploads = {name: self._uploads[name] for name in sorted(self._uploads)}
        for name in names:
            if name not in uploads:
                raise self._unknown(name)
        return [self.answer(name, uploads) for name in names]

    def forget(self, client: str) -> None:
        """Remove ``client`` and what it uploaded."""
        with self._lock:
            if self._uploads.pop(client_name(client), None) is None:
                raise self._unknown(client)

    def _verified(self, upload: Up) -> Up:
        """Return a copy of a good upload that no other code can change."""
        message("upload", upload, self.Upload, self.task)
        for name in array_fields(self.Upload):
            if not isinstance(getattr(upload, name), np.ndarray):
                raise refuse(f"upload.{name}", type(getattr(upload, name)).__name__, "an array")
        self.verify(upload)
        arrays = {name: getattr(upload, name).copy() for name in array_fields(self.Upload)}
        copy: Up = self.Upload(**arrays, task=self.task)
        return copy

    # --- state --------------------------------------------------------------------------------------------

    def state(self) -> State:
        """Return a copy of everything, as arrays: one per field of the uploads, with a row per client."""
        with self._lock:
            uploads = dict(self._uploads)
        columns = array_fields(self.Upload) if uploads else ()
        stacked = {name: np.stack([getattr(upload, name) for upload in uploads.values()]) for name in columns}
        return {**pack_names(list(uploads)), **stacked, "task": pack_task(self.task)}

    def load(self, arrays: Arrays) -> None:
        """Continue from what :meth:`state` returned; nothing changes if it does not fit."""
        empty = not np.size(arrays.get("name_lengths", ()))
        require(arrays, ("names", "name_lengths", "task", *(() if empty else array_fields(self.Upload))))
        check_task(arrays["task"], self.task)
        names = unpack_names(arrays["names"], arrays["name_lengths"])
        columns = {name: arrays[name] for name in array_fields(self.Upload)} if names else {}
        for name, column in columns.items():
            if not isinstance(column, np.ndarray) or not column.ndim or len(column) != len(names):
                raise refuse(name, f"shape {np.shape(column)}", f"a row for each of {len(names)} clients")
        rows = [{name: np.asarray(column[i]) for name, column in columns.items()} for i in range(len(names))]
        uploads = {
            name: self._verified(self.Upload(**row, task=self.task)) for name, row in zip(names, rows, strict=True)
        }
        with self._lock:
            self._uploads = uploads

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            return {**vars(self), "_uploads": dict(self._uploads), "_lock": None}
