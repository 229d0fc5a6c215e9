"""Messages between a client and a server: typed msgpack, checked while it is decoded.

A client sends a :class:`SyncRequest` and gets a :class:`SyncReply`. Unknown fields are ignored and missing ones have
defaults, so that an old client can talk to a new server and the reverse, as long as ``protocol`` is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..core.evidence import MOST_LABELS, Pairs
from ..core.unknown import BINS
from ..core.validate import LONGEST
from ..errors import InputError, need
from .blocks import NEXT, Block
from .rows import EncodedRows, row_ids

try:
    import msgspec
except ModuleNotFoundError:
    need("msgspec", "http")  # its error says how to get it
    raise

PROTOCOL = 1  # what this program prefers
SPOKEN = (PROTOCOL,)  # what it understands
HEADER = "Latte-Protocol"  # of answers, such as "1" or "1, 2"
UNSUPPORTED = "unsupported_protocol"  # the code of the problem
_MOST = 100  # characters of a header that are read

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


def spoken_header() -> str:
    """Return the value of the header.

    >>> spoken_header()
    '1'
    """
    return ", ".join(map(str, SPOKEN))


def read_header(value: str | None) -> tuple[int, ...]:
    """Return the versions that a server names in its header; a server without the header speaks version 1.

    >>> read_header("1, 2"), read_header(None), read_header("nonsense")
    ((1, 2), (1,), (1,))
    """
    words = [word.strip() for word in (value or "")[:_MOST].split(",")]
    return tuple(int(word) for word in words if word.isdecimal() and len(word) < 7) or (1,)


def choose_version(theirs: Sequence[int]) -> int | None:
    """Return the highest version that both sides speak; None if there is none.

    >>> choose_version([1, 2]), choose_version([2, 3])
    (1, None)
    """
    return max(set(SPOKEN).intersection(theirs), default=None)


def upgrade_advice(theirs: Sequence[int]) -> str:
    """Return the advice to the owner of a client whose server speaks other versions only.

    >>> upgrade_advice([2])
    'the server speaks protocol 2, this program 1: upgrade latte on this device'
    """
    older = max(theirs) < min(SPOKEN)
    names = " and ".join(map(str, theirs))
    where = "on the server" if older else "on this device"
    return f"the server speaks protocol {names}, this program {spoken_header()}: upgrade latte {where}"


class Have(msgspec.Struct, frozen=True):
    """The rows of the last download that a client has: ``ids`` are 8 bytes each, made with its own random ``seed``."""

    array: Short
    seed: Annotated[int, msgspec.Meta(ge=0, le=_LARGEST)]
    ids: bytes


class DeviceReport(msgspec.Struct, frozen=True):
    """A client's report about itself, for the owner of the fleet. Every field is optional, and nothing depends on it.

    ``images`` were classified so far; ``differing`` of them have another label than zero-shot's. Of the latest 100
    images, ``agreement`` is the share with zero-shot's label, and ``entropy`` the mean of the zero-shot entropies;
    ``collapsed`` is the share of the most frequent class among the zero-shot predictions, where that is too large. The
    memory holds something of ``classes`` classes. ``unreadable`` pictures could not be read, ``waiting`` pictures are
    in the queue, ``dropped`` ones had no room. Of ``labelled`` images, ``correct`` answers are right, and
    ``correct_zero_shot`` answers of zero-shot; ``gained`` images are right only with the memory, ``lost`` ones only
    without it. Those are of images that nobody chose because of their answers. Of all labelled images on which the
    adapted answer and that of zero-shot differ, ``helped``, ``harmed`` and ``neither`` count which one is right; they
    are sent by clients with labels. ``mcm`` is a histogram (see ``latte.core.unknown``), for a server that flags
    images. ``instance`` is drawn anew at every start of a device: two that take turns are two devices with one name.
    What a client does not say is UNSET, which is never sent: earlier clients say nothing of the last ones, and one that
    adds noise to its uploads says nothing of what its pictures show.
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
    helped: Count | msgspec.UnsetType = msgspec.UNSET
    harmed: Count | msgspec.UnsetType = msgspec.UNSET
    neither: Count | msgspec.UnsetType = msgspec.UNSET
    mcm: Annotated[bytes, msgspec.Meta(max_length=4 * BINS)] | msgspec.UnsetType = msgspec.UNSET
    software: Short = ""
    instance: Short | msgspec.UnsetType = msgspec.UNSET
    collapsed: Fraction | msgspec.UnsetType = msgspec.UNSET


def pairs_of(report: DeviceReport) -> Pairs | None:
    """Return what the labels of a client say of adapting; None where it says nothing, or nothing that can be true.

    Earlier clients call it ``gained`` and ``lost``, and do not say on how many images neither answer was right.
    """
    if isinstance(report.helped, int) and isinstance(report.harmed, int) and isinstance(report.neither, int):
        pairs = Pairs(report.helped, report.harmed, report.neither)
    elif isinstance(report.gained, int) and isinstance(report.lost, int) and report.gained + report.lost > 0:
        pairs = Pairs(report.gained, report.lost)
    else:
        return None
    return pairs if 0 < pairs.differing <= min(report.images, MOST_LABELS) else None


class FleetWord(msgspec.Struct, frozen=True):
    """What a server knows of the whole fleet: helped, harmed, neither (see :class:`DeviceReport`), and what to flag.

    Images whose MCM is below ``threshold`` are to be flagged: they are about this ``share`` of all. Where the owner
    wants none flagged, both are 0.
    """

    pairs: tuple[Count, Count, Count] = (0, 0, 0)
    share: Fraction = 0.0
    threshold: Fraction = 0.0


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

    ``name_shared``: another device has used the name of this one within the last hour. ``fleet`` is sent where there
    are labels in the fleet, or images to flag.
    """

    task: Short
    version: Version
    protocol: int = PROTOCOL
    download: tuple[Block, ...] | None = None
    name_shared: bool = False
    fleet: FleetWord | msgspec.UnsetType = msgspec.UNSET


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
        return msgspec.msgpack.decode(content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:  # DecodeError: bad bytes, or a bad field
        raise InputError(f"{kind.__name__}: not a message of this protocol: {str(error)[:200]}") from None


class _AnyVersion(msgspec.Struct, frozen=True):
    """All that is read of a message that another version may have written."""

    protocol: int = PROTOCOL


def protocol_of(content: bytes) -> int:
    """Return the version of the protocol that a message states, whatever else is in it; ours if it states none."""
    try:
        return msgspec.msgpack.decode(content, type=_AnyVersion).protocol
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return PROTOCOL


class SameRows:
    """The rows of an earlier message, place by place: what a server has of a client's uploads."""

    def __init__(self, rows: dict[str, EncodedRows]) -> None:
        self._rows = rows

    def __call__(self, name: str, encoded: EncodedRows) -> NDArray[np.int32]:
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

    def __call__(self, name: str, encoded: EncodedRows) -> NDArray[np.int32]:
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


# --- what a server refuses, and how it says so ----------------------------------------------------------------


CODES: dict[str, tuple[int, str]] = {  # of problems, which do not change: HTTP status, and title
    "bad_message": (400, "The body is not a message of this protocol"),
    "unsupported_protocol": (400, "The message is of a version of the protocol that the server does not speak"),
    "bad_request": (400, "The request cannot be understood"),
    "unauthorized": (401, "A valid bearer token is needed"),
    "forbidden": (403, "The token does not allow this"),
    "not_found": (404, "There is nothing here"),
    "unknown_client": (404, "The client has not uploaded anything"),
    "method_not_allowed": (405, "This method is not allowed here"),
    "too_slow": (408, "The request did not arrive in time"),
    "other_task": (409, "The client works on another task"),
    "stale_version": (409, "A later upload of this client is stored"),
    "unknown_base": (409, "The upload leaves out rows of an upload that is not stored"),
    "too_large": (413, "The body is too large"),
    "unsupported_media": (415, "The body has a type or an encoding that is not accepted"),
    "bad_upload": (422, "The upload cannot have come from an honest client"),
    "key_reused": (422, "The key belongs to another request of this client"),
    "too_many_requests": (429, "The client asks too often"),
    "head_too_large": (431, "The request line and the headers are too large"),
    "internal": (500, "The server failed"),
    "busy": (503, "Too many requests are waiting"),
    "stopping": (503, "The server is being stopped"),
    "store_unavailable": (503, "The store does not answer"),
    "too_many_clients": (507, "The federation is full"),
    "store_full": (507, "The disk of the store is full"),
}
LONGEST_DETAIL = 500  # characters of a detail that are sent, logged and remembered: it may quote what was sent


def shorten_detail(detail: str) -> str:
    """Return a detail that has at most LONGEST_DETAIL characters."""
    return detail if len(detail) <= LONGEST_DETAIL else f"{detail[: LONGEST_DETAIL - 1]}…"


@dataclass(eq=False)
class Problem(Exception):  # noqa: N818  it is the document that a client gets
    """A refusal (RFC 9457). ``retry_after`` in seconds tells when to try again; ``more`` are further members."""

    code: str
    detail: str
    retry_after: float | None = None
    more: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.code}: {self.detail}"

    @property
    def status(self) -> int:
        """The HTTP status."""
        return CODES[self.code][0]

    def document(self) -> dict[str, Any]:
        """Return the problem document."""
        status, title = CODES[self.code]
        return {
            "type": f"urn:latte:problem:{self.code}",
            "title": title,
            "status": status,
            "code": self.code,
            "detail": shorten_detail(self.detail),
            **self.more,
        }
