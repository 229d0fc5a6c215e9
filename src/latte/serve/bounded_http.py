"""HTTP/1.1 with limits on what a caller may send, and how slowly, before anybody knows who it is.

A request line and headers have at most 64 KiB and 20 seconds. The body may take as long as something of it arrives
every 20 seconds, and ten minutes in all; how many bytes it may have, the route decides. Whatever exceeds a limit is
answered with a problem document where nothing else was answered yet, and the connection is closed.
"""

from __future__ import annotations

import asyncio
from enum import Enum
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ..coordination.problems import Problem
from .bodies import problem_response

MOST_HEAD = 65_536  # bytes of a request line and headers: the client's have 400
HEAD_SECONDS = 20.0
QUIET_SECONDS = 20.0  # without a byte of a body that has begun
BODY_SECONDS = 600.0  # 3 MB, the upload of a thousand classes, at 5 kB per second


class Stage(Enum):
    """What the caller is sending: nothing, the head of a request, its body."""

    NOTHING = "nothing"
    HEAD = "head"
    BODY = "body"


class BoundedHttp(HttpToolsProtocol):
    """The protocol of one connection."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._stage, self._message = Stage.NOTHING, 0  # the latter counts the requests of the connection
        self._head = self._arrived = 0  # bytes of a head that is not complete, and of what arrived last
        self._timer: asyncio.TimerHandle | None = None
        self._timed: tuple[int, Stage] | None = None  # the request and stage that the timer is for
        self._began = self._heard = 0.0  # times of the loop
        self._refusal: Problem | None = None  # why the parser was stopped

    # --- the connection -----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        super().connection_made(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing any more."""
        self._stop_watching()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read what has arrived, and note how much of a request is still to come."""
        if self.transport.is_closing():
            return
        before, self._arrived = self._message, len(data)
        super().data_received(data)
        if self._stage is Stage.HEAD:
            self._head = self._head + len(data) if self._message == before else self._head_size()
            if self._head > MOST_HEAD:
                self._refuse(_too_long())
                return
        if self._stage is Stage.NOTHING and self._is_answering():
            self._stop_watching()
        else:
            self._watch()

    def shutdown(self) -> None:
        """End: a request that has not arrived yet is not waited for."""
        if self._stage is Stage.NOTHING or self._has_begun_to_answer():
            super().shutdown()
        else:
            self._refuse(Problem("stopping", "no new requests", retry_after=1.0))

    # --- what the parser reports --------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._stage, self._message, self._head = Stage.HEAD, self._message + 1, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Begin a body; an exception ends the work of the parser."""
        if self._head + self._arrived > MOST_HEAD and self._head_size() > MOST_HEAD:
            self._refusal = _too_long()
            raise ValueError(self._refusal.detail)
        self._stage = Stage.BODY
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """End a request."""
        self._stage = Stage.NOTHING
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer what the parser does not understand."""
        self._refuse(self._refusal or Problem("bad_request", msg))

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
        if self._stage is Stage.BODY and not self.pipeline:
            return bool(self.cycle.response_started)
        return self._is_answering()

    def _refuse(self, problem: Problem) -> None:
        """Answer with a problem where nothing was answered yet; close the connection."""
        self._stop_watching()
        if self.transport.is_closing():
            return
        if not self._has_begun_to_answer():
            self.transport.write(_response_bytes(problem))
        self.transport.close()
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
