"""Which proxy a server is reached by, and that a request gets there and back."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

pytest.importorskip("httpcore2")

from latte.edge.http_calls import Calls, Connection, UnreachableError
from latte.edge.http_pool import HttpPool, Proxy, proxy_of
from latte.version import __version__

VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture
def environment(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    return monkeypatch


@pytest.mark.parametrize(
    ("variables", "proxy"),
    [
        ({}, None),
        ({"HTTP_PROXY": "http://proxy:3128"}, None),  # of other addresses
        ({"HTTPS_PROXY": "http://proxy:3128"}, Proxy("http://proxy:3128/", None)),
        ({"https_proxy": "proxy:3128"}, Proxy("http://proxy:3128/", None)),
        ({"ALL_PROXY": "socks5://proxy:1080"}, Proxy("socks5://proxy:1080/", None)),
        ({"HTTPS_PROXY": "http://me:p%40ss@proxy:3128/"}, Proxy("http://proxy:3128/", ("me", "p@ss"))),
        ({"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "example.org"}, None),
        ({"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "*"}, None),
        ({"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "example.com"}, Proxy("http://proxy:3128/", None)),
    ],
)
def test_the_proxy_of_the_environment(environment, variables, proxy):
    for name, value in variables.items():
        environment.setenv(name, value)
    assert proxy_of("https://latte.example.org:8420") == proxy


class Listener(BaseHTTPRequestHandler):
    """Answers what it was asked."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        answer = b" ".join([self.path.encode(), body, self.headers["User-Agent"].encode(), self.headers["X"].encode()])
        self.send_response(200)
        self.send_header("Latte-Protocol", "1")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        """Say nothing."""


@pytest.fixture
def listener():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Listener)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_request_and_its_answer(environment, listener):
    pool = HttpPool(listener, 60.0)
    answer = pool.post(f"{listener}/there", b"hello", {"X": "y"})
    assert answer.content.decode() == f"/there hello latte/{__version__} y"
    assert answer.status_code == 200 and answer.headers["latte-protocol"] == "1"
    pool.close()


def test_a_request_by_way_of_a_proxy(environment, listener):
    environment.setenv("HTTP_PROXY", listener)
    pool = HttpPool("http://latte.invalid:8420", 60.0)
    answer = pool.post("http://latte.invalid:8420/there", b"hello", {"X": "y"})
    assert answer.content.startswith(b"http://latte.invalid:8420/there hello ")
    pool.close()


def test_a_server_that_is_not_there(environment):
    calls = Calls("http://127.0.0.1:1", None, Connection(attempts=1))
    with pytest.raises(UnreachableError, match=r"http://127.0.0.1:1 does not answer: ConnectError"):
        calls.get("/v1/task")
    calls.close()
