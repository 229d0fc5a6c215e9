"""How a client treats servers that are slow, too busy, too talkative or not there, and what it says of them."""

import resource
import shutil
import ssl
import sys
import threading
import time
from contextlib import closing, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer

import pytest

from devices import small_task
from latte.edge.clients.calls import Calls, Connection, UnreachableError, check_address
from latte.edge.clients.http import HttpExchange, most_download
from latte.errors import InputError
from latte.version import __version__
from waiting import run


class Busy(BaseHTTPRequestHandler):
    """Asks to wait for so many seconds, each time."""

    def do_GET(self) -> None:
        self.server.requests += 1
        self.send_response(503)
        self.send_header("Retry-After", self.server.pause)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def busy_server(pause):
    with ThreadingHTTPServer(("127.0.0.1", 0), Busy) as server:
        server.pause, server.requests = pause, 0
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("pause", ["30", "99999"])
def test_a_pause_beyond_the_patience_is_not_waited_for(pause, monkeypatch):
    sleep, thread = time.sleep, threading.current_thread()
    monkeypatch.setattr(
        "time.sleep", lambda seconds: pytest.fail("slept") if threading.current_thread() is thread else sleep(seconds)
    )
    with busy_server(pause) as server:
        address = f"http://127.0.0.1:{server.server_port}"
        with closing(Calls(address, None, Connection(attempts=3, patience=8.0))) as calls:
            with pytest.raises(UnreachableError, match="does not answer") as error:
                calls.get("/v1/task")
            assert error.value.pause == float(pause) and server.requests == 1


def test_a_pause_within_what_is_left_is_waited_for():
    with busy_server("1") as server:
        address, began = f"http://127.0.0.1:{server.server_port}", time.monotonic()
        with closing(Calls(address, None, Connection(attempts=2, patience=60.0))) as calls:
            with pytest.raises(UnreachableError, match="does not answer"):
                calls.get("/v1/task")
            assert server.requests == 2 and time.monotonic() - began >= 1.0


# --- servers that never come to an end ------------------------------------------------------------------------


@contextmanager
def answering(*pieces, pause=0.0, forever=b""):
    """Serve connections: send ``pieces`` with pauses between them, then ``forever`` again and again."""
    over = threading.Event()

    class Handler(BaseRequestHandler):
        def handle(self):
            self.request.recv(65_536)
            try:
                for piece in pieces:
                    self.request.sendall(piece)
                    over.wait(pause)
                while forever and not over.wait(pause):
                    self.request.sendall(forever)
            except OSError:
                pass

    server = ThreadingTCPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    with server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            over.set()
            server.shutdown()


HEAD = b"HTTP/1.1 200 OK\r\n"
ENDLESS = {
    "body": (HEAD + b"content-length: 1000000\r\n\r\n", b"x"),
    "chunks": (HEAD + b"transfer-encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
    "head": (HEAD + b"x: ", b"y"),
    "first line": (b"H", b"T"),
    "interim answers": (b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "silence": (b"", b""),
}


@pytest.mark.parametrize("part", ENDLESS)
def test_an_answer_that_drips_has_a_deadline(part):
    start, more = ENDLESS[part]
    quiet = 60.0 if part == "silence" else 0.05
    with answering(start, pause=quiet, forever=more or b"x") as address:
        began = time.monotonic()
        said = failure(address, Connection(attempts=1, timeout=30.0, deadline=1.0))
    assert said == f"{address} does not answer: no complete answer within 1 s" and time.monotonic() - began < 10


def test_a_deadline_of_one_thread_leaves_the_others_alone():
    failed, connection = [], Connection(attempts=1, deadline=2.0)
    with (
        answering(HEAD + b"x: ", pause=0.05, forever=b"y") as slow,
        answering(HEAD + b"content-length: 2\r\n\r\nok") as good,
        closing(Calls(good, None, connection)) as calls,
    ):

        def ask():
            try:
                calls._send("GET", slow, {}, None, 100)
            except TimeoutError as error:
                failed.append(error)

        thread = threading.Thread(target=ask)
        thread.start()
        while thread.is_alive():
            assert calls.get("/") == b"ok"
        assert len(failed) == 1


FLOODED = """
import resource, sys
from latte.edge.clients.calls import Calls, Connection
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    Calls(sys.argv[1], None, Connection(attempts=1)).get("/v1/task", int(sys.argv[2]))
except ValueError as error:
    print(error)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.parametrize("head", [b"content-length: 3000000000\r\n", b""])
def test_an_answer_without_an_end_takes_no_memory(head):
    with answering(HEAD + head + b"\r\n", forever=bytes(1 << 20)) as address:
        done = run(sys.executable, "-c", FLOODED, address, str(20 << 20), check=True)
    said, grown = done.stdout.splitlines()
    assert "an answer of more than 20,971,520 bytes, want no more than the task can need" in said
    assert int(grown) < 150, "MB"


def test_a_compressed_answer_is_not_asked_for_and_not_unpacked():
    answer, once = HEAD + b"content-encoding: gzip\r\ncontent-length: 2\r\n\r\nok", Connection(attempts=1)
    with answering(answer) as address, closing(Calls(address, None, once)) as calls:
        assert calls.get("/") == b"ok"


def test_the_limit_of_a_download_grows_with_the_task():
    small, large = most_download(small_task()), most_download(small_task(classes=4000, dim=256))
    assert 1 << 20 < small < 2 << 20 < 4000 * 256 * 4 < large < 200 << 20


def test_a_sync_reply_beyond_the_limit_is_refused(tmp_path):
    """A server that is right about the task, and answers a sync with gigabytes."""
    task = small_task()

    class Flood(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(task.to_bytes())

        def do_POST(self):
            self.send_response(200)
            self.end_headers()
            for _ in range(3000):
                self.wfile.write(bytes(1 << 20))

        def log_message(self, *_):
            pass

        def handle(self):
            with suppress(OSError):
                super().handle()

    with ThreadingHTTPServer(("127.0.0.1", 0), Flood) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        address, words = f"http://127.0.0.1:{server.server_port}", "/v1/download: got an answer of more than"
        with HttpExchange(address) as exchange, pytest.raises(InputError, match=words):
            exchange.pull("ann")
        assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10 < 200, "MB"
        server.shutdown()


# --- proxies ----------------------------------------------------------------------------------------------------


class Listener(BaseHTTPRequestHandler):
    """Answers what it was asked."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        answer = b" ".join([self.path.encode(), body, self.headers["User-Agent"].encode()])
        self.send_response(200)
        self.send_header("Latte-Protocol", "1")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        """Say nothing."""


@pytest.fixture
def listener(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Listener)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(("server", "shown"), [("", ""), ("http://latte.invalid:8420", "http://latte.invalid:8420")])
def test_a_request_goes_by_way_of_the_proxy_that_the_environment_names(monkeypatch, listener, server, shown):
    monkeypatch.setenv("HTTP_PROXY", listener) if server else None
    with closing(Calls(server or listener, None, Connection(attempts=1))) as calls:
        assert calls.post("/there", "a", b"hello").decode() == f"{shown}/there hello latte/{__version__}"


# --- what is said of a server that cannot be used ---------------------------------------------------------------


def failure(server, connection=None, token=None):
    connection = connection or Connection(attempts=1, timeout=5.0)
    with closing(Calls(server, token, connection)) as calls, pytest.raises((OSError, ValueError)) as error:
        calls.get("/v1/task")
    return str(error.value)


def test_a_server_that_is_not_there():
    said = failure("http://127.0.0.1:1")
    assert said.startswith("http://127.0.0.1:1 does not answer: connection refused; no server runs at this address")
    assert "no machine of the name 'latte.invalid' is found" in failure("http://latte.invalid:8420")


@pytest.mark.parametrize(
    ("status", "extra", "words"),
    [
        (404, b"", "HTTP status 404; no Latte server is there: --server"),
        (200, b"", None),
        (301, b"Location: https://there/v1/task\r\n", "it redirects to https://there/v1/task: --server"),
        (502, b"", "does not answer: HTTP status 502"),
    ],
)
def test_a_server_of_another_kind(status, extra, words):
    page = b"<html>hello</html>"
    answer = b"HTTP/1.1 %d Some\r\n%scontent-length: %d\r\n\r\n%s" % (status, extra, len(page), page)
    with answering(answer) as address:
        if words:
            assert words in failure(address)
        else:
            with pytest.raises(InputError, match=r"--server: got http://\S+, where no Latte server answers"):
                HttpExchange(address, connection=Connection(attempts=1))


@pytest.mark.parametrize(
    ("server", "guess"),
    [
        ("localhost:8420", "did you mean http://localhost:8420?"),
        ("latte.example.org", "did you mean https://latte.example.org?"),
        ("/var/lib/latte", "did you mean folder:/var/lib/latte?"),
        ("./node", "did you mean folder:./node?"),
        ("ftp://x", "want an address such as https://latte.example.org:8420"),
        ("http://", "want an address such as"),
        ("http://x:port", "want an address such as"),
        ("http://[::1", "want an address such as"),
        ("http://a b", "want an address such as"),
        ("http://x:99999", "want an address such as"),
    ],
)
def test_an_address_that_is_none(server, guess):
    with pytest.raises(InputError) as error:
        check_address(server)
    assert guess in str(error.value) and str(error.value).startswith(f"--server: got {server!r}")


def test_a_token_that_no_header_can_have_is_refused_and_not_shown():
    for token in ("latte_ä", "latte a", "latte\na"):
        with pytest.raises(InputError, match="token: got a text with") as error:
            Calls("http://127.0.0.1:1", token, Connection())
        assert token not in str(error.value)


# --- files of TLS ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    if shutil.which("openssl") is None:
        pytest.skip("makes certificates with openssl")
    folder = tmp_path_factory.mktemp("certificates")
    new = ("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-x509", "-days", "2")
    for name in ("one", "other"):
        names = (
            "-subj",
            f"/CN={name}",
            "-addext",
            "subjectAltName=DNS:localhost",
            "-keyout",
            f"{name}.key",
            "-out",
            f"{name}.pem",
        )
        run("openssl", *new, *names, cwd=folder, check=True)
    (folder / "junk.pem").write_text("junk")
    return folder


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ({"authority": "none.pem"}, r"--server-ca: got .*none.pem \(No such file or directory\), want certificates"),
        ({"authority": "junk.pem"}, r"--server-ca: got .*junk.pem \(.*\), want certificates in PEM"),
        (
            {"certificate": "one.pem", "key": "other.key"},
            r"--cert and --key: got .*one.pem and .*other.key \(.*MATCH",
        ),
        ({"certificate": "junk.pem", "key": "one.key"}, r"--cert and --key: got .*junk.pem and .*one.key"),
        ({"certificate": "one.pem"}, r"--cert and --key: got .*one.pem and no key"),
        ({"key": "one.key"}, r"--key: got .*one.key without a certificate"),
    ],
)
def test_files_of_tls_that_cannot_be_used_are_named(files, names, words):
    connection = Connection(**{name: files / file for name, file in names.items()})
    with pytest.raises(ValueError, match=words):
        connection.tls()


def test_files_of_tls_that_can_be_used(files):
    assert Connection().tls() is None
    assert Connection(authority=Path(files / "one.pem")).tls() is not None
    assert Connection(certificate=files / "one.pem", key=files / "one.key").tls() is not None


# --- TLS where there is none, and the reverse -------------------------------------------------------------------


@contextmanager
def tls_server(files, name="one", **more):
    """A server that speaks TLS with the certificate ``name``, in a thread."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files / f"{name}.pem", files / f"{name}.key")
    for key, value in more.items():
        setattr(context, key, value)
    if more:
        context.load_verify_locations(files / "one.pem")

    class Handler(BaseRequestHandler):
        def handle(self):
            try:
                with context.wrap_socket(self.request, server_side=True) as secure:
                    secure.recv(65_536)
                    secure.sendall(HEAD + b"content-length: 2\r\n\r\nok")
            except OSError:
                pass

    with ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_a_server_whose_authority_is_not_known_and_one_of_another_name(files):
    with tls_server(files) as place:
        said = failure(f"https://{place}")
        assert "is not trusted: its certificate is not signed by a known authority" in said and "--server-ca" in said
        said = failure(f"https://{place}", Connection(attempts=1, authority=files / "one.pem"))
        assert "its certificate is of another name" in said and "--server with the name" in said


def test_plain_http_to_a_port_of_tls_and_the_reverse(files):
    with tls_server(files) as place:
        assert f"this port speaks TLS; --server https://{place}" in failure(f"http://{place}")
    with answering(HEAD + b"content-length: 2\r\n\r\nok") as address:
        place = address.removeprefix("http://")
        assert f"this port speaks no TLS; --server http://{place}" in failure(f"https://{place}")


def test_a_server_that_wants_a_certificate_of_the_client(files):
    with tls_server(files, verify_mode=ssl.CERT_REQUIRED) as place:
        context = Connection(attempts=1, authority=files / "one.pem")
        said = failure(f"https://localhost:{place.rpartition(':')[2]}", context)
        assert "--cert and --key" in said
