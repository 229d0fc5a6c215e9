"""HTTP/1.1 with limits on what a caller may send, and how slowly, before anybody knows who it is.

A request line and headers have at most 64 KiB, 100 lines and 20 seconds. The body may take as long as something of it
arrives every 20 seconds, and ten minutes in all; how many bytes it may have, the route decides. What is sent with a
body and is not body (chunk sizes, chunk extensions, trailers) has at most 16 KiB, plus an eighth of the body. Whatever
exceeds a limit is answered with a problem document where nothing else was answered yet, and the connection is closed.

A caller that sends a request before it has read the answer to the last one gets that answer, and the connection is
closed. An answer has the time of a body to be read.
"""

from __future__ import annotations

import asyncio
import math
import struct
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Literal, TypeAlias, TypeVar

import httptools
import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from uvicorn.protocols.http.flow_control import CLOSE_HEADER
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ...errors import InputError
from ...wire import messages
from ...wire.messages import MEDIA_TYPE, Problem, SyncRequest

_PIECE = 65_536  # bytes of a body that are kept together while it arrives
_JSON_BYTES = 16_384  # of a small request in JSON
_ACCEPTED = (MEDIA_TYPE, "application/msgpack", "application/x-msgpack")

MOST_OPEN = 8  # bodies of one client that have begun and not ended: a device sends one at a time
MOST_HELD = 128 << 20  # bytes of all callers: unfinished heads, bodies without an answer, answers that are not read

MOST_HEAD = 65_536  # bytes of a request line and headers: the client's have 400
MOST_HEADERS = 100  # the client sends 8; a short one takes 30 times its bytes in memory
HEAD_SECONDS = 20.0
MOST_FRAMING = 16_384  # bytes beside a body; more where the body is large
FRAMING_SHARE = 8  # one byte more for so many of the body: chunks of 50 bytes are the smallest that can go on for ever
QUIET_SECONDS = 20.0  # without a byte of a body that has begun, or of an answer
BODY_SECONDS = 600.0  # 3 MB, the upload of a thousand classes, at 5 kB per second
LEAVING_SECONDS = 20.0  # after which a server that is being stopped does not wait for a connection any more

T = TypeVar("T", bound=msgspec.Struct)


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
            if oldest is None or (drop := oldest.drop) is None:
                return
            self.remove(oldest)
            drop()

    def remove(self, holder: Holder) -> None:
        """Count a holder no more."""
        if holder in self._holders:
            del self._holders[holder]
            self._total -= holder.size
            holder.size = 0

    def open(self, client: str) -> None:
        """Count a body of a client, which begins to arrive; refuse one too many."""
        count = self._open.get(client, 0)
        if count >= MOST_OPEN:
            raise Problem("too_many_requests", f"at most {MOST_OPEN} bodies of a client at once", retry_after=1.0)
        self._open[client] = count + 1

    def close(self, client: str) -> None:
        """Count a body of a client no more: it has arrived, or will not."""
        self._open[client] -= 1
        if not self._open[client]:
            del self._open[client]


class Body:
    """The body of one request of ``client``, counted in ``held`` until the block ends."""

    def __init__(self, held: HeldBytes, client: str | None) -> None:
        self._held, self._client, self._holder, self._size = held, client, Holder(None), 0
        self._time: asyncio.Timeout

    def __enter__(self) -> Body:
        return self

    def __exit__(self, *_: object) -> None:
        self._held.remove(self._holder)

    async def read(self, request: Request, most: int) -> bytes:
        """Return it; one that has more than ``most`` bytes is not read to the end."""
        if self._client is not None:
            self._held.open(self._client)
        try:
            message = await request.receive()  # mostly the whole of it; until it is there, nothing is held
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            part: bytes = message.pop("body", b"")
            self._count(len(part), most)
            if not message.get("more_body", False):
                return part
            pieces = [bytearray(part)]
            del part
            return await self._rest(request, pieces, most)
        except ClientDisconnect:
            raise Problem("bad_request", "the client went away while it was sending") from None
        finally:
            if self._client is not None:
                self._held.close(self._client)

    async def _rest(self, request: Request, pieces: list[bytearray], most: int) -> bytes:
        # Pieces of one size leave no holes in memory; a list of an attacker's smallest parts costs forty times as much.
        try:
            async with asyncio.timeout(None) as self._time:
                self._holder.drop = self._give_up
                async for part in request.stream():
                    self._count(len(part), most)
                    if len(pieces[-1]) + len(part) > _PIECE:
                        pieces.append(bytearray())
                    pieces[-1] += part
        except TimeoutError:
            raise Problem("busy", "too many bodies are open", retry_after=1.0) from None
        finally:
            self._holder.drop = None
        return b"".join(pieces)

    def _count(self, size: int, most: int) -> None:
        """Count bytes that have arrived."""
        self._size += size
        if self._size > most:
            raise Problem("too_large", f"more than {most} bytes")
        self._held.grow(self._holder, size)

    def _give_up(self) -> None:
        self._holder.drop = None  # once
        self._time.reschedule(asyncio.get_running_loop().time())


def header(request: Request, name: bytes, default: str = "") -> str:
    """Return the first header of a name in small letters. Starlette takes longer, most of all if there is none."""
    for other, value in request.scope["headers"]:
        if other == name:
            return bytes(value).decode("latin-1")
    return default


async def read_body(request: Request, most: int, types: tuple[str, ...], body: Body) -> bytes:
    """Return the body; a body that is too long is refused before it is read to the end."""
    encoding = header(request, b"content-encoding", "identity")
    if encoding.lower() != "identity":
        raise Problem("unsupported_media", f"content-encoding {encoding[:40]!r}: send it uncompressed")
    kind = header(request, b"content-type").partition(";")[0].strip().lower()
    if kind not in types:
        raise Problem("unsupported_media", f"content-type {kind[:80]!r}, want {types[0]}")
    declared = header(request, b"content-length", "0")
    if declared.isdecimal() and int(declared[:20]) > most:
        raise Problem("too_large", f"{declared[:20]} bytes, at most {most}")
    return await body.read(request, most)


async def read_sync(request: Request, most: int, body: Body) -> tuple[SyncRequest, int]:
    """Return the message in a request, and how many bytes it had."""
    content = await read_body(request, most, _ACCEPTED, body)
    try:
        message = messages.unpack(content, SyncRequest)
    except InputError as error:
        check_protocol(messages.protocol_of(content))  # another version may have other types
        raise Problem("bad_message", str(error)) from None
    check_protocol(message.protocol)
    return message, len(content)


def check_protocol(version: int) -> None:
    """Refuse a version of the protocol that this server does not speak."""
    if version not in messages.SPOKEN:
        detail = f"protocol {version}; this server speaks {messages.spoken_header()}"
        raise Problem(messages.UNSUPPORTED, detail, more={"protocols": list(messages.SPOKEN)})


async def read_json_body(request: Request, kind: type[T], body: Body) -> T:
    """Return a small request in JSON."""
    content = await read_body(request, _JSON_BYTES, ("application/json",), body)
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem("bad_message", str(error)[:200]) from None


def problem_response(problem: Problem) -> Response:
    """Return a refusal: with the scheme for 401, and with the time to wait if the client may try again."""
    headers = {"WWW-Authenticate": "Bearer"} if problem.status == 401 else {}
    if problem.retry_after is not None:
        headers["Retry-After"] = str(max(1, math.ceil(problem.retry_after)))
    headers[messages.HEADER] = messages.spoken_header()
    document: dict[str, Any] = problem.document()
    return JSONResponse(document, problem.status, headers, media_type="application/problem+json")


Stage: TypeAlias = Literal["nothing", "head", "body"]  # what the caller is sending: the head of a request, its body


def unread_bytes(transport: asyncio.Transport) -> int:
    """Return the bytes of answers that have not reached the caller, also those that the system keeps where it says so.

    It takes more only when a third of what it keeps is gone: for a minute of a slow link, nothing else would change.
    """
    left = transport.get_write_buffer_size()
    if sys.platform == "linux":
        import fcntl
        import termios

        with suppress(OSError, ValueError):  # closed
            kept = fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, bytes(4))
            left += struct.unpack("i", kept)[0]
    return left


class BoundedHttp(HttpToolsProtocol):
    """The protocol of one connection; what its caller does not read is counted in ``held``."""

    def __init__(self, *arguments: Any, held: HeldBytes, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._stage: Stage = "nothing"
        self._message = 0  # counts the requests of the connection
        self._head = self._arrived = 0  # bytes of a head that is not complete, and of what arrived last
        self._body = self._framing = 0  # bytes of the body so far, and of what came with it
        self._ended = False  # whether a request ended in what arrived last
        self._timer: asyncio.TimerHandle | None = None
        self._timed: tuple[int, Stage] | None = None  # the request and stage that the timer is for
        self._began = self._heard = 0.0  # times of the loop
        self._refusal: Problem | None = None  # why the parser was stopped
        self._ahead = False  # whether a request came before the last answer was read
        self._over = False  # nothing is read any more: the last answer ends the connection
        self._held, self._unread = held, Holder(self._abort)  # the latter: half a head, or what the caller has not read
        self._read_by, self._unread_before = 0.0, 0
        self._reading: asyncio.TimerHandle | None = None  # looks whether the caller reads

    # --- the connection -----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        super().connection_made(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing any more."""
        self._stop_watching()
        self._held.remove(self._unread)
        if self._reading is not None:
            self._reading.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read what has arrived, and note how much of a request is still to come."""
        if self.transport.is_closing():
            return
        if self._over:
            self.flow.pause_reading()  # whoever waits for the caller to go away has let it go on
            return
        self._unset_keepalive_if_required()
        before, self._arrived, self._ended = self._message, len(data), False
        self._framing += len(data)  # what turns out to be body is taken off
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._end_after_answer()  # there is nothing to change to: it is answered as if it had not asked
            return
        except httptools.HttpParserError:
            if self._ahead:
                self._end_after_answer()
            else:
                self._refuse(self._refusal or Problem("bad_request", "Invalid HTTP request received."))
            return
        if self._stage == "head":
            self._head = self._head + len(data) if self._message == before else self._head_size()
            if self._head > MOST_HEAD:
                self._refuse(_too_long())
                return
            self._held.grow(self._unread, len(data))
        if self._stage == "body" and self._framing > MOST_FRAMING + self._body // FRAMING_SHARE:
            self._refuse(Problem("head_too_large", "chunk sizes, chunk extensions and trailers beyond the limit"))
        elif self._stage == "nothing" and self._is_answering():
            self._stop_watching()
        else:
            self._watch()

    def shutdown(self) -> None:
        """End: a request that has not arrived yet is not waited for, and an answer is for a while only."""
        self.loop.call_later(LEAVING_SECONDS, self._abort)
        if self._stage == "nothing" or self._has_begun_to_answer():
            super().shutdown()
        else:
            self._refuse(Problem("stopping", "no new requests", retry_after=1.0))

    def _abort(self) -> None:
        """Close the connection, whatever of an answer has not been read."""
        self.transport.abort()

    # --- a caller that reads slowly, or not at all ----------------------------------------------------------

    def pause_writing(self) -> None:
        """Note that an answer is not read as fast as it is written."""
        super().pause_writing()
        self._wait_for_reader()
        self._held.grow(self._unread, self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """Note that most of it was read."""
        self._held.remove(self._unread)
        super().resume_writing()

    def on_response_complete(self) -> None:
        """Wait for the next request, or for the reader of the last answer."""
        super().on_response_complete()
        self.cycle.body.clear()  # what the application did not want
        if self.transport.is_closing():
            self._wait_for_reader()

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection without requests."""
        super().timeout_keep_alive_handler()
        self._wait_for_reader()

    def _wait_for_reader(self) -> None:
        self._unread_before = unread_bytes(self.transport)
        if self._reading is None and self.transport.get_write_buffer_size():
            self._read_by = self.loop.time() + BODY_SECONDS
            self._reading = self.loop.call_later(QUIET_SECONDS, self._look_at_reader)

    def _look_at_reader(self) -> None:
        """Close the connection if nothing was read for a while, or it takes too long."""
        left, self._reading = unread_bytes(self.transport), None
        if not self.transport.get_write_buffer_size():
            return
        if left >= self._unread_before or self.loop.time() >= self._read_by:
            self._abort()
        else:
            self._unread_before = left
            self._reading = self.loop.call_later(QUIET_SECONDS, self._look_at_reader)

    # --- what the parser reports --------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Begin a request; an exception ends the work of the parser."""
        if self._is_answering() or self.flow.write_paused:
            self._ahead = True
            raise ValueError("a request before the last answer was read")
        self._stage, self._message, self._head = "head", self._message + 1, 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; an exception ends the work of the parser."""
        if len(self.headers) >= MOST_HEADERS:
            self._refusal = _too_long()
            raise ValueError(self._refusal.detail)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Begin a body; an exception ends the work of the parser."""
        self._held.remove(self._unread)
        if self._head + self._arrived > MOST_HEAD and self._head_size() > MOST_HEAD:
            self._refusal = _too_long()
            raise ValueError(self._refusal.detail)
        self._body = 0
        self._framing = 0 if self._ended else max(0, self._head + self._arrived - self._head_size())
        super().on_headers_complete()  # refuses an address that is none
        self._stage = "body"
        self.headers = deque(maxlen=0)  # type: ignore[assignment]  # of trailers, which nobody keeps

    def on_body(self, body: bytes) -> None:
        """Take a part of a body."""
        self._body += len(body)
        self._framing -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End a request."""
        self._stage, self._ended = "nothing", True
        super().on_message_complete()

    def _head_size(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    # --- time ---------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Let the stage that the request is in have its time, from now on if it is new."""
        self._heard = self.loop.time()
        if self._timed == (self._message, self._stage):
            return
        self._stop_watching()
        self._began, self._timed = self._heard, (self._message, self._stage)
        self._timer = self.loop.call_later(self._seconds_left(), self._look)

    def _stop_watching(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._timed = None

    def _seconds_left(self) -> float:
        if self._stage != "body":
            return self._began + HEAD_SECONDS - self.loop.time()
        return min(self._began + BODY_SECONDS, self._heard + QUIET_SECONDS) - self.loop.time()

    def _look(self) -> None:
        """Close the connection if its time is over; none passes while the server itself does not read."""
        if self.flow.read_paused:
            self._began = self._heard = self.loop.time()
        if (left := self._seconds_left()) > 0:
            self._timer = self.loop.call_later(left, self._look)
        elif self._stage == "nothing":
            self.transport.close()
        else:
            self._refuse(Problem("too_slow", f"the {self._stage} of a request did not arrive in time"))

    # --- an answer without the application ----------------------------------------------------------------

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _has_begun_to_answer(self) -> bool:
        """Return whether bytes of an answer, to this request or an earlier one, are on their way."""
        return bool(self.cycle.response_started) if self._stage == "body" else self._is_answering()

    def _end_after_answer(self) -> None:
        """Read nothing any more; close the connection when the last request is answered."""
        self._over = True
        self._stop_watching()
        self.flow.pause_reading()
        if self._is_answering():
            self.cycle.keep_alive = False
            self.cycle.scope["headers"] = [*self.cycle.scope["headers"], CLOSE_HEADER]  # so that the answer says so
        else:
            self.transport.close()
            self._wait_for_reader()

    def _refuse(self, problem: Problem) -> None:
        """Answer with a problem where nothing was answered yet; close the connection."""
        self._stop_watching()
        if self.transport.is_closing():
            return
        if not self._has_begun_to_answer():
            answer = problem_response(problem)
            lines = [b"HTTP/1.1 %d %s" % (problem.status, HTTPStatus(problem.status).phrase.encode())]
            lines += [b"%s: %s" % pair for pair in answer.raw_headers]
            self.transport.write(b"\r\n".join([*lines, b"connection: close", b"", bytes(answer.body)]))
        self.transport.close()
        self._wait_for_reader()
        if self._is_answering():
            self.cycle.disconnected = True  # the application learns that the caller has gone
            self.cycle.message_event.set()


def _too_long() -> Problem:
    most = f"more than {MOST_HEAD} bytes or {MOST_HEADERS} headers"
    return Problem("head_too_large", f"a request line and headers of {most}")
