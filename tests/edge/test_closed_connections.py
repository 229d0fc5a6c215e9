"""A server may close connections that were not used for long: the client goes on with another one."""

import threading
from contextlib import closing, contextmanager
from socketserver import BaseRequestHandler, ThreadingTCPServer

import pytest

from latte.edge.clients.calls import Calls, Connection, UnreachableError

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class OneAnswerServer(ThreadingTCPServer):
    """Answers the first request of each connection and closes it at the second, as if that came too late.

    Before the first answer it waits until there are so many connections.
    """

    daemon_threads = True

    def __init__(self, connections: int) -> None:
        self.barrier, self.requests = threading.Barrier(connections), 0
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(BaseRequestHandler):
    def handle(self) -> None:
        if self.request.recv(65_536):
            self.server.requests += 1
            if self.server.requests <= self.server.barrier.parties:
                self.server.barrier.wait()
            self.request.sendall(ANSWER)
            self.request.recv(65_536)


@contextmanager
def running(server):
    with server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield Calls(f"http://127.0.0.1:{server.server_address[1]}", None, Connection(attempts=1))
        finally:
            server.shutdown()
            thread.join()


def ask_at_once(calls, count):
    threads = [threading.Thread(target=calls.get, args=["/"]) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("connections", [1, 3])
def test_a_request_goes_over_a_new_connection_where_those_at_hand_are_closed(connections):
    with running(OneAnswerServer(connections)) as calls, closing(calls):
        ask_at_once(calls, connections)
        assert calls.get("/") == b"ok"


def test_a_server_that_never_answers_is_given_up():
    class Silent(BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(65_536)

    silent = ThreadingTCPServer(("127.0.0.1", 0), Silent)
    with running(silent) as calls, closing(calls), pytest.raises(UnreachableError, match="does not answer"):
        calls.get("/")
