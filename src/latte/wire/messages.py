"""What travels between a client and a server: typed msgpack, checked while it is decoded.

A client sends a :class:`SyncRequest` and gets a :class:`SyncReply`. Unknown fields are ignored and missing ones have
defaults, so that an old client can talk to a new server and the reverse, as long as ``protocol`` is the same.
"""

from __future__ import annotations

from typing import Annotated, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..core.extras import need
from ..core.names import LONGEST
from ..errors import InputError
from .array_blocks import NEXT, Block
from .hashes import row_ids
from .rows import EncodedRows
from .versions import PROTOCOL as PROTOCOL  # known by this name, too

try:
    import msgspec
except ModuleNotFoundError:
    need("msgspec", "http")  # its error says how to get it
    raise

MEDIA_TYPE = "application/vnd.latte+msgpack"
NO_VERSION = 0  # the version of a client that has uploaded nothing
_LARGEST = 2**63 - 1

Version = Annotated[int, msgspec.Meta(ge=0, le=_LARGEST)]
Count = Annotated[int, msgspec.Meta(ge=0, le=_LARGEST)]
Fraction = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
Short = Annotated[str, msgspec.Meta(max_length=256)]
Name = Annotated[str, msgspec.Meta(max_length=LONGEST)]  # of a client; its bytes are counted by client_name
Key = Annotated[bytes, msgspec.Meta(max_length=64)]

T = TypeVar("T", bound=msgspec.Struct)


class Have(msgspec.Struct, frozen=True):
    """The rows of the last download that a client has: ``ids`` are 8 bytes each, made with its own random ``seed``."""

    array: Short
    seed: Annotated[int, msgspec.Meta(ge=0, le=_LARGEST)]
    ids: bytes


class DeviceReport(msgspec.Struct, frozen=True):
    """A client's report about itself, for the owner of the fleet. Every field is optional, and nothing depends on it.

    ``images`` were classified so far; ``differing`` of them have another label than zero-shot's. Of the latest 100
    images, ``agreement`` is the share with zero-shot's label, and ``entropy`` the mean of the zero-shot entropies. The
    memory holds something of ``classes`` classes. ``unreadable`` pictures could not be read, ``waiting`` pictures are
    in the queue, ``dropped`` ones had no room. Of ``labelled`` images, ``correct`` answers are right, and
    ``correct_zero_shot`` answers of zero-shot; ``gained`` images are right only with the memory, ``lost`` ones only
    without it. ``instance`` is drawn anew at every start of a device: two that take turns are two devices with one
    name. What a client does not say is UNSET, which is never sent: earlier clients say nothing of the last ones, and
    one that adds noise to its uploads says nothing of what its pictures show.
    """

    images: Count = 0
    differing: Count | msgspec.UnsetType = msgspec.UNSET
    agreement: Fraction | msgspec.UnsetType = msgspec.UNSET
    entropy: Fraction | msgspec.UnsetType = msgspec.UNSET
    classes: Count | msgspec.UnsetType = msgspec.UNSET
    unreadable: Count = 0
    waiting: Count = 0
    dropped: Count = 0
    labelled: Count = 0
    correct: Count = 0
    correct_zero_shot: Count = 0
    gained: Count | msgspec.UnsetType = msgspec.UNSET
    lost: Count | msgspec.UnsetType = msgspec.UNSET
    software: Short = ""
    instance: Short | msgspec.UnsetType = msgspec.UNSET


class SyncRequest(msgspec.Struct, frozen=True):
    """An upload, a request for a download, or both.

    ``version`` numbers the uploads of a client, and grows. ``upload`` may leave out rows that are the same in the
    upload with the version ``base``. ``key`` makes a repetition harmless: the same key is the same request.
    ``precision`` is that of the download; None: the client wants none.
    """

    task: Short
    client: Name
    protocol: int = PROTOCOL
    version: Version = NO_VERSION
    base: Version = NO_VERSION
    key: Key = b""
    upload: tuple[Block, ...] | None = None
    precision: Short | None = None
    have: tuple[Have, ...] = ()
    report: DeviceReport | None = None


class SyncReply(msgspec.Struct, frozen=True):
    """``version`` is that of the client's upload that the server has; ``download`` may leave out rows of ``have``.

    ``name_shared``: another device has used the name of this one within the last hour.
    """

    task: Short
    version: Version
    protocol: int = PROTOCOL
    download: tuple[Block, ...] | None = None
    name_shared: bool = False


class Upload(msgspec.Struct, frozen=True):
    """The latest upload of a client as it is stored: complete blocks, and the report that came with them."""

    blocks: tuple[Block, ...]
    report: DeviceReport | None = None


_encoder = msgspec.msgpack.Encoder()


def pack(message: msgspec.Struct) -> bytes:
    """Return a message as bytes."""
    return _encoder.encode(message)


def unpack(content: bytes, kind: type[T]) -> T:
    """Return the message of ``kind`` in ``content``; anything else is refused."""
    try:
        message: T = msgspec.msgpack.decode(content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:  # DecodeError: bad bytes, or a bad field
        raise InputError(f"{kind.__name__}: not a message of this protocol: {str(error)[:200]}") from None
    return message


class _AnyVersion(msgspec.Struct, frozen=True):
    """All that is read of a message that another version may have written."""

    protocol: int = PROTOCOL


def protocol_of(content: bytes) -> int:
    """Return the version of the protocol that a message states, whatever else is in it; ours if it states none."""
    try:
        return msgspec.msgpack.decode(content, type=_AnyVersion).protocol
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return PROTOCOL


# --- which rows the other side has -----------------------------------------------------------------------------


class SameRows:
    """The rows of an earlier message, place by place: what a server has of a client's uploads."""

    def __init__(self, rows: dict[str, EncodedRows]) -> None:
        self._rows = rows

    def find(self, name: str, encoded: EncodedRows) -> NDArray[np.int32]:
        """Return the place of each row that has not changed, NEXT for the others."""
        before = self._rows.get(name)
        if before is None or before.shape != encoded.shape:
            return np.full(len(encoded), NEXT, np.int32)
        same = (before == encoded).all(axis=1)
        return np.where(same, np.arange(len(encoded)), NEXT).astype(np.int32)


class HeldRows:
    """The rows that a client says it has."""

    def __init__(self, have: tuple[Have, ...]) -> None:
        self._have = {rows.array: rows for rows in have}

    def find(self, name: str, encoded: EncodedRows) -> NDArray[np.int32]:
        """Return the place of each row in the client's list; NEXT for a row that the client lacks."""
        source = np.full(len(encoded), NEXT, np.int32)
        have = self._have.get(name)
        if have is None or not have.ids or len(have.ids) % 8:
            return source
        ids = np.frombuffer(have.ids, "<u8")
        order = np.argsort(ids, kind="stable")
        mine = row_ids(encoded, have.seed)
        place = order[np.minimum(np.searchsorted(ids, mine, sorter=order), len(ids) - 1)]
        held = ids[place] == mine
        source[held] = place[held]
        return source


def have_of(rows: dict[str, EncodedRows], seed: int) -> tuple[Have, ...]:
    """Return the list of the rows of a download, by the name of their array."""
    return tuple(Have(name, seed, row_ids(encoded, seed).astype("<u8").tobytes()) for name, encoded in rows.items())
