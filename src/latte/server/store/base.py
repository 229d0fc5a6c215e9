"""The interface of a store, and what it stores: the latest upload of every client.

A store answers only when what was written is durable. The exchange in memory is rebuilt from it at every start.
"""

from __future__ import annotations

import logging
import secrets
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar

from ...errors import InputError, refuse

if TYPE_CHECKING:
    from .tokens import TokenStore

log = logging.getLogger("latte.server")
ROW_COLUMNS = "name, version, key, body, checksum, updated"
CHUNK = 8 << 20  # bytes of uploads that are read or written at once: memory stays small, and round trips are few
CHECK = "latte store check"  # what finds and removes damaged uploads

StoredRow: TypeAlias = tuple[bytes, int, bytes, bytes, int, float]  # ROW_COLUMNS, as a database returns them
TokenRow: TypeAlias = tuple[str, str, bytes, bytes, float, float | None]  # id, role, client, digest, created, revoked
TokenChoice: TypeAlias = Callable[[list[TokenRow]], list[TokenRow]]
Facts: TypeAlias = Mapping[str, str | None]
T = TypeVar("T")
_BYTES = (bytes, bytearray, memoryview)
# of the columns: SQLite stores any type in any of them
_KINDS: tuple[Any, ...] = (_BYTES, int, _BYTES, _BYTES, int, (int, float))


@dataclass(frozen=True, slots=True)
class Record:
    """The latest upload of one client.

    ``version`` counts the client's uploads, ``key`` is that of the request that brought the upload, ``body`` is the
    packed upload, and ``updated`` is the server's clock in seconds since 1970, for people to read only.
    """

    client: str
    version: int
    key: bytes
    body: bytes
    updated: float

    @property
    def checksum(self) -> int:
        """The CRC-32 of everything but the clock."""
        head = f"{self.version}:{len(self.key)}:".encode()
        return zlib.crc32(self.body, zlib.crc32(self.key, zlib.crc32(head, zlib.crc32(name_bytes(self.client)))))

    @property
    def row(self) -> StoredRow:
        """The columns of the record in a database."""
        return name_bytes(self.client), self.version, self.key, self.body, self.checksum, self.updated


@dataclass(frozen=True, slots=True)
class Removal:
    """A client that was removed by another process."""

    client: str


class DamagedRecordError(InputError):
    """A stored upload whose bytes are not those that were written: what is the matter with it is its ``fault``."""

    def __init__(self, client: str, fault: str) -> None:
        super().__init__(f"store: the upload of client {client!r} is damaged ({fault}); run: {CHECK}")
        self.fault = fault


def record_of(row: StoredRow) -> Record:
    """Return the record in a row; refuse a row that does not match its checksum, or has other types."""
    if not all(map(isinstance, row, _KINDS)):
        types = ", ".join(type(value).__name__ for value in row)
        raise DamagedRecordError(name_text(row[0]), f"columns of the types {types}")
    name, version, key, body, checksum, updated = row
    record = Record(name_text(name), version, bytes(key), bytes(body), updated)
    if record.checksum != checksum:
        raise DamagedRecordError(record.client, "its checksum does not match")
    return record


def sound_records(rows: Iterable[StoredRow]) -> Iterator[Record]:
    """Yield the records in rows; a row that does not match its checksum is left out, with a line in the log.

    For a running server: it then asks the client for all rows, and the next upload replaces the damaged one.
    """
    for row in rows:
        try:
            yield record_of(row)
        except DamagedRecordError as error:
            log.error("%s", error)


def name_bytes(client: str) -> bytes:
    """Return the name of a client as it is stored."""
    return client.encode(errors="surrogateescape")


def name_text(stored: object) -> str:
    """Return a stored name as text; :func:`name_bytes` gives the same bytes again, even those of a damaged name.

    >>> name_text(b"camera"), name_text("camera"), name_text(7)
    ('camera', 'camera', '7')
    """
    return bytes(stored).decode(errors="surrogateescape") if isinstance(stored, _BYTES) else str(stored)


def in_chunks(items: Iterable[T], size: Callable[[T], int], most: int = CHUNK) -> Iterator[list[T]]:
    """Yield ``items`` in lists of at most ``most`` bytes; an item that is larger is alone.

    >>> list(in_chunks(["a", "bb", "c", "dddd"], len, 3))
    [['a', 'bb'], ['c'], ['dddd']]
    """
    chunk, total = list[T](), 0
    for item in items:
        if chunk and total + size(item) > most:
            yield chunk
            chunk, total = [], 0
        chunk.append(item)
        total += size(item)
    if chunk:
        yield chunk


class DamagedStoreError(InputError):
    """A store that cannot be read as a whole, or of which a part is missing."""


class StoreFullError(OSError):
    """There is no room left. Nothing was written, and later writes may succeed."""


class StoreUnavailableError(OSError):
    """The store does not answer. Nothing is known to be written, and later calls may succeed."""


class Store(ABC):
    """Durable records, one per client. One thread at a time may call it. ``shared``: other processes may write, too."""

    shared: ClassVar[bool]

    def claim(self, task: str) -> str:
        """Return the fingerprint of the task that the store belongs to; a new store belongs to ``task`` from now on."""
        return self._claim_fact("task", task)

    def secret(self) -> int:
        """Return the secret number of the store, the same for every process; it is drawn at the first call."""
        return int(self._claim_fact("secret", f"{secrets.randbits(128):032x}"), 16)

    @abstractmethod
    def _claim_fact(self, name: str, value: str) -> str:
        """Return a fact about the store, after setting it to ``value`` if it was not set."""

    @abstractmethod
    def read(self, clients: Sequence[str]) -> dict[str, Record]:
        """Return the sound records of ``clients``, by client; a client without one is left out."""

    @abstractmethod
    def write(self, records: Sequence[Record]) -> frozenset[str]:
        """Store records, all or none, and wait until they are durable.

        A stored record of the same or a later version stays. Return the clients whose record was not written for
        this reason.
        """

    @abstractmethod
    def remove(self, client: str) -> bool:
        """Remove the record of a client, durably; return whether there was one."""

    @abstractmethod
    def changes(self) -> Iterator[Record | Removal]:
        """Yield what any process changed since the last call; at the first call, every record.

        A damaged record is an error at the first call, and is left out later: a running server goes on.
        """

    @abstractmethod
    def is_empty(self) -> bool:
        """Return whether there is no record."""

    def replace(
        self,
        task: str | None,
        records: Iterable[Record],
        secret: int | None = None,
        tokens: TokenChoice | None = None,
        made: bool = False,
    ) -> None:
        """Put ``records`` of ``task`` (None: of no task yet) in the place of everything, all or nothing, durably.

        Without a ``secret``, the next call of :meth:`secret` draws a new one. ``tokens`` gets the tokens that are there
        and returns those that shall be; without it, tokens stay as they are. That tokens were ``made`` is a fact of the
        store from then on, even if there are none.
        """
        facts = {"task": task, "secret": None if secret is None else f"{secret:032x}"}
        self._replace(facts, records, tokens, made)

    @abstractmethod
    def _replace(self, facts: Facts, records: Iterable[Record], tokens: TokenChoice | None, made: bool) -> None:
        """Do it; a fact that is None is removed."""

    @abstractmethod
    def close(self) -> None:
        """Release what the store holds."""


def is_postgres(place: str | Path) -> bool:
    """Return whether a place that is named on the command line is a database server; otherwise it is a folder."""
    return str(place).startswith(("postgresql://", "postgres://"))


def open_store(place: str | Path, alone: bool = False) -> Store:
    """Return the store at ``place``: a folder, or the address of a PostgreSQL database.

    With ``alone``, a store on which a server runs is refused; a folder always is.
    """
    if is_postgres(place):
        from .postgres import PostgresStore

        return PostgresStore(str(place), alone)
    if "://" in str(place):
        raise refuse("store", repr(str(place)), "a folder, or postgresql://USER@HOST/DATABASE")
    from .sqlite import SqliteStore

    return SqliteStore(Path(place))


def has_store(place: str | Path) -> bool:
    """Return whether there may be a store at ``place``: a folder without one is left as it is."""
    from .sqlite import STORE_FILE

    return is_postgres(place) or Path(place, STORE_FILE).exists()


def open_tokens(place: str | Path) -> TokenStore:
    """Return the tokens that belong to the store at ``place``."""
    if is_postgres(place):
        from .postgres import PostgresTokens

        return PostgresTokens(str(place))
    from .tokens import TokenFile

    return TokenFile(Path(place))
