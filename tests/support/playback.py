"""A server that plays recorded answers, in their order, and remembers what it was asked."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from recorded_messages import TASK, Call


class Playback:
    """What was asked of such a server, and its address."""

    def __init__(self, calls: list[Call], headers: Mapping[str, str]) -> None:
        self.address, self.asked = "", []
        self._headers, self._lock = headers, threading.Lock()
        self._calls, self._task = list(calls), next((call for call in calls if call.route == TASK), None)

    def answer(self, route: str, body: bytes) -> Call:
        """Return the next recorded answer; the task may be asked for at any time."""
        with self._lock:
            self.asked.append((route, body))
            if route == TASK and self._task is not None:
                return self._task
            call = next((one for one in self._calls if one.route == route), Call(route, b"", 404, b"{}"))
            if call in self._calls:
                self._calls.remove(call)
            return call

    def serve(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        call = self.answer(f"{handler.command} {handler.path}", body)
        handler.send_response(call.status)
        for name, value in {**self._headers, "Content-Length": str(len(call.answer))}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(call.answer)


@contextmanager
def playing(calls: list[Call], port: int = 0, **headers: str) -> Iterator[Playback]:
    """Play ``calls`` on a loopback address while the block runs."""
    playback = Playback(calls, {name.replace("_", "-"): value for name, value in headers.items()})

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        do_GET = do_POST = lambda self: playback.serve(self)  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        server.daemon_threads = True
        playback.address = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield playback
        finally:
            server.shutdown()
            thread.join()
