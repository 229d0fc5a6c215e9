"""HTTP/1.1 with limits on what a caller may send, and how slowly, before anybody knows who it is.

A request line and headers have at most 64 KiB and 20 seconds. The body may take as long as something of it arrives
every 20 seconds, and ten minutes in all; how many bytes it may have, the route decides. What is sent with a body and is
not body (chunk sizes, chunk extensions, trailers) has at most 16 KiB, plus an eighth of the body. Whatever exceeds a
limit is answered with a problem document where nothing else was answered yet, and the connection is closed.

A caller that sends a request before it has read the answer to the last one gets that answer, and the connection is
closed. An answer has the time of a body to be read.
"""

from __future__ import annotations

import asyncio
from collections import deque
from enum import Enum
from http import HTTPStatus
from typing import Any

import httptools
from uvicorn.protocols.http.flow_control import CLOSE_HEADER
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ..coordination.problems import Problem
from .bodies import HeldBytes, Holder, problem_response

MOST_HEAD = 65_536  # bytes of a request line and headers: the client's have 400
HEAD_SECONDS = 20.0
MOST_FRAMING = 16_384  # bytes beside a body; more where the body is large
FRAMING_SHARE = 8  # one byte more for so many of the body: chunks of 50 bytes are the smallest that can go on for ever
QUIET_SECONDS = 20.0  # without a byte of a body that has begun, or of an answer
BODY_SECONDS = 600.0  # 3 MB, the upload of a thousand classes, at 5 kB per second
LEAVING_SECONDS = 20.0  # after which a server that is being stopped does not wait for a connection any more


class Stage(Enum):
    """What the caller is sending: nothing, the head of a request, its body."""

    NOTHING = "nothing"
    HEAD = "head"
    BODY = "body"


class BoundedHttp(HttpToolsProtocol):
    """The protocol of one connection; what its caller does not read is counted in ``held``."""

    def __init__(self, *arguments: Any, held: HeldBytes, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._stage, self._message = Stage.NOTHING, 0  # the latter counts the requests of the connection
        self._head = self._arrived = 0  # bytes of a head that is not complete, and of what arrived last
        self._body = self._framing = 0  # bytes of the body so far, and of what came with it
        self._ended = False  # whether a request ended in what arrived last
        self._timer: asyncio.TimerHandle | None = None
        self._timed: tuple[int, Stage] | None = None  # the request and stage that the timer is for
        self._began = self._heard = 0.0  # times of the loop
        self._refusal: Problem | None = None  # why the parser was stopped
        self._ahead = False  # whether a request came before the last answer was read
        self._over = False  # nothing is read any more: the last answer ends the connection
        self._held, self._unread = held, Holder(self._abort)  # the latter: what the caller has not read
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
        self._stop_reading()
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
        if self._stage is Stage.HEAD:
            self._head = self._head + len(data) if self._message == before else self._head_size()
            if self._head > MOST_HEAD:
                self._refuse(_too_long())
                return
        if self._stage is Stage.BODY and self._framing > MOST_FRAMING + self._body // FRAMING_SHARE:
            self._refuse(Problem("head_too_large", "chunk sizes, chunk extensions and trailers beyond the limit"))
        elif self._stage is Stage.NOTHING and self._is_answering():
            self._stop_watching()
        else:
            self._watch()

    def shutdown(self) -> None:
        """End: a request that has not arrived yet is not waited for, and an answer is for a while only."""
        self.loop.call_later(LEAVING_SECONDS, self._abort)
        if self._stage is Stage.NOTHING or self._has_begun_to_answer():
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
        self._unread_before = self.transport.get_write_buffer_size()
        if self._reading is None and self._unread_before:
            self._read_by = self.loop.time() + BODY_SECONDS
            self._reading = self.loop.call_later(QUIET_SECONDS, self._look_at_reader)

    def _look_at_reader(self) -> None:
        """Close the connection if nothing was read for a while, or it takes too long."""
        left, self._reading = self.transport.get_write_buffer_size(), None
        if not left:
            return
        if left >= self._unread_before or self.loop.time() >= self._read_by:
            self._abort()
        else:
            self._unread_before = left
            self._reading = self.loop.call_later(QUIET_SECONDS, self._look_at_reader)

    def _stop_reading(self) -> None:
        self._held.remove(self._unread)
        if self._reading is not None:
            self._reading.cancel()

    # --- what the parser reports --------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Begin a request; an exception ends the work of the parser."""
        if self._is_answering() or self.flow.write_paused:
            self._ahead = True
            raise ValueError("a request before the last answer was read")
        self._stage, self._message, self._head = Stage.HEAD, self._message + 1, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Begin a body; an exception ends the work of the parser."""
        if self._head + self._arrived > MOST_HEAD and self._head_size() > MOST_HEAD:
            self._refusal = _too_long()
            raise ValueError(self._refusal.detail)
        self._stage, self._body = Stage.BODY, 0
        self._framing = 0 if self._ended else max(0, self._head + self._arrived - self._head_size())
        super().on_headers_complete()
        self.headers = deque(maxlen=0)  # type: ignore[assignment]  # of trailers, which nobody keeps

    def on_body(self, body: bytes) -> None:
        """Take a part of a body."""
        self._body += len(body)
        self._framing -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End a request."""
        self._stage, self._ended = Stage.NOTHING, True
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
        if self._stage is not Stage.BODY:
            return self._began + HEAD_SECONDS - self.loop.time()
        return min(self._began + BODY_SECONDS, self._heard + QUIET_SECONDS) - self.loop.time()

    def _look(self) -> None:
        """Close the connection if its time is over; none passes while the server itself does not read."""
        if self.flow.read_paused:
            self._began = self._heard = self.loop.time()
        if (left := self._seconds_left()) > 0:
            self._timer = self.loop.call_later(left, self._look)
        elif self._stage is Stage.NOTHING:
            self.transport.close()
        else:
            self._refuse(Problem("too_slow", f"the {self._stage.value} of a request did not arrive in time"))

    # --- an answer without the application ----------------------------------------------------------------

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _has_begun_to_answer(self) -> bool:
        """Return whether bytes of an answer, to this request or an earlier one, are on their way."""
        return bool(self.cycle.response_started) if self._stage is Stage.BODY else self._is_answering()

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
            self.transport.write(_response_bytes(problem))
        self.transport.close()
        self._wait_for_reader()
        if self._is_answering():
            self.cycle.disconnected = True  # the application learns that the caller has gone
            self.cycle.message_event.set()


def _too_long() -> Problem:
    return Problem("head_too_large", f"a request line and headers of more than {MOST_HEAD} bytes")


def _response_bytes(problem: Problem) -> bytes:
    response = problem_response(problem)
    lines = [b"HTTP/1.1 %d %s" % (problem.status, HTTPStatus(problem.status).phrase.encode())]
    lines += [b"%s: %s" % pair for pair in response.raw_headers]
    return b"\r\n".join([*lines, b"connection: close", b"", bytes(response.body)])
