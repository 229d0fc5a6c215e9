"""What exchanges have in common, whatever they store: one task, checked names, one lock."""

from __future__ import annotations

from collections.abc import Iterable
from threading import RLock
from typing import Any, Generic, TypeVar

from ..errors import InputError, refuse
from .copying import WholeCopy
from .names import client_name
from .types import Message
from .zero_shot import ZeroShot

Up = TypeVar("Up", bound=Message)


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

    def prepare(self, upload: Up, rounding: float | None = None) -> Any:
        """Check an upload and return what :meth:`store` stores of it; nothing changes."""
        raise NotImplementedError

    def store(self, client: str, prepared: Any) -> None:
        """Store what :meth:`prepare` returned; a new client joins."""
        raise NotImplementedError

    def _unknown(self, client: str) -> InputError:
        return refuse("client", repr(client), f"one of the {len(self)} clients that have pushed before")

    def __setstate__(self, values: dict[str, Any]) -> None:
        vars(self).update(values, _lock=RLock())
