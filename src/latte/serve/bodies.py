"""The bodies of requests: read within limits, decoded with a schema; and the bodies of answers."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from ..coordination.problems import Problem
from ..errors import InputError
from ..wire.messages import MEDIA_TYPE, SyncReply, SyncRequest, pack, protocol_of, unpack
from ..wire.versions import HEADER, SPOKEN, UNSUPPORTED, spoken_header

_JSON_BYTES = 16_384  # of a small request in JSON
_ACCEPTED = (MEDIA_TYPE, "application/msgpack", "application/x-msgpack")

MOST_OPEN = 8  # bodies of one client that have begun and not ended: a device sends one at a time
MOST_HELD = 256 << 20  # bytes of bodies that are not answered, and of answers that are not read, of all callers

T = TypeVar("T", bound=msgspec.Struct)


# --- limits of all callers together ---------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class Holder:
    """A body or an answer that takes ``size`` bytes; ``drop`` gives it up, and None is one that is not given up."""

    drop: Callable[[], None] | None
    size: int = 0


class HeldBytes:
    """Counts what callers make a server hold. Beyond ``most``, the oldest that can be given up is given up.

    An honest body arrives, and an honest answer is read, while those of an attacker stay: the oldest are not honest.
    """

    def __init__(self, most: int = MOST_HELD) -> None:
        self._most, self._total = most, 0
        self._holders: dict[Holder, None] = {}  # in the order of their age
        self._open: dict[str, int] = {}  # bodies that have not arrived, by client

    def grow(self, holder: Holder, size: int) -> None:
        """Count bytes more of a holder, which may be given up at once."""
        self._holders[holder] = None
        holder.size += size
        self._total += size
        while self._total > self._most:
            oldest = next((one for one in self._holders if one.drop is not None), None)
            if oldest is None:
                return
            drop = oldest.drop
            self.remove(oldest)
            if drop is not None:
                drop()

    def remove(self, holder: Holder) -> None:
        """Count a holder no more."""
        if holder in self._holders:
            del self._holders[holder]
            self._total -= holder.size
            holder.size = 0

    @contextmanager
    def opened(self, client: str | None) -> Iterator[None]:
        """Count a body of a client while it arrives; refuse one too many. None: of a caller without a name."""
        if client is None:
            yield
            return
        count = self._open.get(client, 0)
        if count >= MOST_OPEN:
            raise Problem("too_many_requests", f"at most {MOST_OPEN} bodies of a client at once", retry_after=1.0)
        self._open[client] = count + 1
        try:
            yield
        finally:
            self._open[client] -= 1
            if not self._open[client]:
                del self._open[client]


class Body:
    """The body of one request of ``client``, counted in ``held`` until the block ends."""

    def __init__(self, held: HeldBytes, client: str | None) -> None:
        self._held, self._client, self._holder = held, client, Holder(None)
        self._time: asyncio.Timeout

    def __enter__(self) -> Body:
        return self

    def __exit__(self, *_: object) -> None:
        self._held.remove(self._holder)

    async def read(self, request: Request, most: int) -> bytes:
        """Return it; one that has more than ``most`` bytes is not read to the end."""
        content = bytearray()  # a list of parts would cost an attacker's smallest ones forty times their size
        try:
            with self._held.opened(self._client):
                async with asyncio.timeout(None) as self._time:
                    self._holder.drop = self._give_up
                    async for part in request.stream():
                        if len(content) + len(part) > most:
                            raise Problem("too_large", f"more than {most} bytes")
                        content += part
                        self._held.grow(self._holder, len(part))
        except TimeoutError:
            raise Problem("busy", "too many bodies are open", retry_after=1.0) from None
        except ClientDisconnect:
            raise Problem("bad_request", "the client went away while it was sending") from None
        finally:
            self._holder.drop = None
        return bytes(content)

    def _give_up(self) -> None:
        self._holder.drop = None  # once
        self._time.reschedule(asyncio.get_running_loop().time())


async def read_body(request: Request, most: int, types: tuple[str, ...], body: Body) -> bytes:
    """Return the body; a body that is too long is refused before it is read to the end."""
    headers = request.headers
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise Problem(
            "unsupported_media", f"content-encoding {headers['content-encoding'][:40]!r}: send it uncompressed"
        )
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in types:
        raise Problem("unsupported_media", f"content-type {kind[:80]!r}, want {types[0]}")
    declared = headers.get("content-length", "0")
    if declared.isdecimal() and int(declared[:20]) > most:
        raise Problem("too_large", f"{declared[:20]} bytes, at most {most}")
    return await body.read(request, most)


async def read_sync(request: Request, most: int, body: Body) -> tuple[SyncRequest, int]:
    """Return the message in a request, and how many bytes it had."""
    content = await read_body(request, most, _ACCEPTED, body)
    try:
        message = unpack(content, SyncRequest)
    except InputError as error:
        check_protocol(protocol_of(content))  # another version may have other types
        raise Problem("bad_message", str(error)) from None
    check_protocol(message.protocol)
    return message, len(content)


def check_protocol(version: int) -> None:
    """Refuse a version of the protocol that this server does not speak."""
    if version not in SPOKEN:
        detail = f"protocol {version}; this server speaks {spoken_header()}"
        raise Problem(UNSUPPORTED, detail, more={"protocols": list(SPOKEN)})


async def read_json_body(request: Request, kind: type[T], body: Body) -> T:
    """Return a small request in JSON."""
    content = await read_body(request, _JSON_BYTES, ("application/json",), body)
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem("bad_message", str(error)[:200]) from None


def sync_response(reply: SyncReply) -> Response:
    """Return an answer to a client."""
    return Response(pack(reply), media_type=MEDIA_TYPE)


def problem_response(problem: Problem) -> Response:
    """Return a refusal: with the scheme for 401, and with the time to wait if the client may try again."""
    headers = {"WWW-Authenticate": "Bearer"} if problem.status == 401 else {}
    if problem.retry_after is not None:
        headers["Retry-After"] = str(max(1, math.ceil(problem.retry_after)))
    headers[HEADER] = spoken_header()
    document: dict[str, Any] = problem.document()
    return JSONResponse(document, problem.status, headers, media_type="application/problem+json")
