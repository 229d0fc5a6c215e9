"""A backup of a store as one file, the same for every kind of store.

The file is 8 bytes, ``LATTEBAK``, and then frames: the length of a message and its CRC-32, 4 bytes each,
little-endian, and the message in msgpack, with its ``type``: one ``head``, any number of ``token``, any number of
``client`` in the order of joining, and one ``end``, which has the SHA-256 of everything before it. Nothing follows.
A file is read to its end and checked before anything of it is used.
"""

from __future__ import annotations

import hashlib
import os
import stat
import struct
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Annotated, BinaryIO, TypeAlias

import msgspec

from ..coordination.upload_records import Record
from ..core.names import client_name
from ..errors import refuse
from ..files.atomic import writing
from ..files.reading import open_file, size_of
from ..version import __version__
from ..wire.messages import Key, Short
from .tokens import ADMIN, CLIENT, Token

BACKUP_MAGIC = b"LATTEBAK"
BACKUP_FORMAT = 1
_FRAME = struct.Struct("<II")  # length and CRC-32 of a message

UploadVersion = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
Seconds = Annotated[float, msgspec.Meta(ge=0.0, le=1e11)]  # since 1970, until the year 5138


class BackupHead(msgspec.Struct, frozen=True, tag="head"):
    """The first message: ``task`` is the fingerprint of the store's task, ``created`` is in seconds since 1970.

    ``software`` is the version that wrote the file. ``secret`` is that of the store, 32 hexadecimal digits; a store
    that never served has none.
    """

    format: int
    task: Short | None
    created: Seconds
    software: Short = ""
    secret: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")] | None = None


class BackupToken(msgspec.Struct, frozen=True, tag="token"):
    """A token, without its secret; see :class:`.tokens.Token`."""

    id: Short
    role: Short
    client: str
    digest: Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
    created: Seconds
    revoked: Seconds | None


class BackupClient(msgspec.Struct, frozen=True, tag="client"):
    """The latest upload of a client; see :class:`latte.coordination.upload_records.Record`."""

    name: str
    version: UploadVersion
    key: Key
    body: bytes
    checksum: int
    updated: Seconds


class BackupEnd(msgspec.Struct, frozen=True, tag="end"):
    """The number of tokens and of clients in the file, and the SHA-256 of everything before this message."""

    tokens: int
    clients: int
    sha256: bytes


BackupPart: TypeAlias = BackupHead | BackupToken | BackupClient | BackupEnd
_ORDER = (BackupHead, BackupToken, BackupClient, BackupEnd)


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup that was checked; ``clients`` is their number, and :meth:`records` yields their uploads."""

    head: BackupHead
    tokens: Sequence[Token]
    clients: int
    file: BufferedReader
    name: str

    def records(self) -> Iterator[Record]:
        """Yield the uploads; a file that has changed since it was checked is refused at its end."""
        for part in _parts(self.file, self.name):
            if isinstance(part, BackupClient):
                yield Record(part.name, part.version, part.key, part.body, part.updated)


# --- write --------------------------------------------------------------------------------------------------


def write_backup(
    path: Path, task: str | None, tokens: Iterable[Token], records: Iterable[Record], secret: str | None = None
) -> BackupEnd:
    """Write a backup that only its owner may read; the file is complete or absent."""
    with writing(path) as file:
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            Path(file.name).chmod(0o600)
        out = _Frames(file)
        out.add(BackupHead(BACKUP_FORMAT, task, time.time(), __version__, secret))
        for token in tokens:
            out.add(BackupToken(token.id, token.role, token.client, token.digest, token.created, token.revoked))
        for record in records:
            fields = record.version, record.key, record.body, record.checksum, record.updated
            out.add(BackupClient(record.client, *fields))
        return out.end()


class _Frames:
    """Messages that are written one after the other."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._digest = file, hashlib.sha256()
        self._counts = dict.fromkeys(_ORDER, 0)
        self._write(BACKUP_MAGIC)

    def add(self, part: BackupPart) -> None:
        """Write a message."""
        message = msgspec.msgpack.encode(part)
        self._counts[type(part)] += 1
        self._write(_FRAME.pack(len(message), zlib.crc32(message)))
        self._write(message)

    def end(self) -> BackupEnd:
        """Write the last message and return it."""
        part = BackupEnd(self._counts[BackupToken], self._counts[BackupClient], self._digest.digest())
        self.add(part)
        return part

    def _write(self, content: bytes) -> None:
        self._digest.update(content)
        self._file.write(content)


# --- read ---------------------------------------------------------------------------------------------------


@contextmanager
def open_backup(path: Path) -> Iterator[Backup]:
    """Check the whole file, then yield the backup; a damaged file is refused."""
    with open_file(path, "backup") as file:
        head, tokens, names = None, dict[str, Token](), set[str]()
        for part in _parts(file, str(path)):
            if isinstance(part, BackupHead):
                head = part
            elif isinstance(part, BackupToken):
                _add_once(tokens, _token(part, str(path)), str(path))
            elif isinstance(part, BackupClient):
                _check_client(part, names, str(path))
                names.add(part.name)
        assert head is not None  # the order of parts was checked
        yield Backup(head, tuple(tokens.values()), len(names), file, str(path))


def _parts(file: BufferedReader, name: str) -> Iterator[BackupPart]:
    """Yield the messages of a file; they are in order, each has its checksum, and the last has that of the file."""
    file.seek(0)
    left, digest, counts = size_of(file), hashlib.sha256(), [0] * len(_ORDER)
    if _take(file, len(BACKUP_MAGIC), left, digest, name) != BACKUP_MAGIC:
        raise refuse(name, "a file of another kind", "one that latte store backup wrote")
    left -= len(BACKUP_MAGIC)
    kind = -1
    while kind < len(_ORDER) - 1:
        before = digest.digest()
        length, crc = _FRAME.unpack(_take(file, _FRAME.size, left, digest, name))
        message = _take(file, length, left - _FRAME.size, digest, name)
        left -= _FRAME.size + length
        part = _decode(message, crc, name)
        kind = _next_kind(kind, part, name)
        counts[kind] += 1
        if isinstance(part, BackupEnd):
            _check_end(part, (counts[1], counts[2], before), left, name)
        yield part


def _take(file: BufferedReader, size: int, left: int, digest: hashlib._Hash, name: str) -> bytes:
    """Return the next ``size`` bytes; refuse a size beyond the end of the file before memory is taken."""
    content = file.read(size) if size <= left else b""
    if len(content) != size or size > left:
        raise refuse(name, f"a file that ends too early, at byte {file.tell()}", "a whole backup")
    digest.update(content)
    return content


def _decode(message: bytes, crc: int, name: str) -> BackupPart:
    if zlib.crc32(message) != crc:
        raise refuse(name, "a damaged file (a checksum does not match)", "the file as it was written")
    try:
        part: BackupPart = msgspec.msgpack.decode(message, type=BackupPart)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise refuse(name, f"a message that cannot be one ({str(error)[:200]})", "a backup") from None
    if isinstance(part, BackupHead) and part.format != BACKUP_FORMAT:
        raise refuse(name, f"a backup of format {part.format}", f"{BACKUP_FORMAT}: a newer latte wrote it")
    return part


def _next_kind(kind: int, part: BackupPart, name: str) -> int:
    """Return the kind of a message; refuse a second head or end, and a kind that belongs before the last one."""
    place = _ORDER.index(type(part))
    once = place in (0, len(_ORDER) - 1)
    if place < kind or (place == kind and once) or (kind == -1) != (place == 0):
        raise refuse(name, "messages out of order", "head, tokens, clients, end")
    return place


def _check_end(part: BackupEnd, want: tuple[int, int, bytes], left: int, name: str) -> None:
    if (part.tokens, part.clients, part.sha256) != want:
        raise refuse(name, "a damaged file (its SHA-256 does not match)", "the file as it was written")
    if left:
        raise refuse(name, f"{left} bytes behind the end", "nothing")


def _check_client(part: BackupClient, names: set[str], name: str) -> None:
    record = Record(part.name, part.version, part.key, part.body, part.updated)
    if client_name(part.name) in names:
        raise refuse(name, f"client {part.name!r} twice", "each once")
    if record.checksum != part.checksum:
        raise refuse(name, f"a damaged upload of client {part.name!r}", "what latte store backup wrote")


def _token(part: BackupToken, name: str) -> Token:
    if part.role not in (ADMIN, CLIENT):
        raise refuse(name, f"a token that cannot be one ({part.id!r})", "what latte store backup wrote")
    client = client_name(part.client) if part.role == CLIENT else ""
    return Token(part.id, part.role, client, part.digest, part.created, part.revoked)


def _add_once(tokens: dict[str, Token], token: Token, name: str) -> None:
    if token.id in tokens:
        raise refuse(name, f"token {token.id!r} twice", "each once")
    tokens[token.id] = token
