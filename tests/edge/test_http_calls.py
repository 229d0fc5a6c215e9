"""How a client treats a server that asks for more patience than there is, and files of TLS that cannot be used."""

import shutil
import threading
import time
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from latte.edge import http_calls
from latte.edge.http_calls import Calls, Connection, UnreachableError
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
    again = http_calls._AgainError("busy", 3.0)
    assert http_calls._pause_of(again, 3.5) == 3.0 and http_calls._pause_of(again, 2.5) is False
    assert http_calls._pause_of(http_calls._AgainError("away"), 0.1) is True
    assert http_calls._pause_of(ValueError(), 9.0) is False


# --- files of TLS ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    if shutil.which("openssl") is None:
        pytest.skip("makes certificates with openssl")
    folder = tmp_path_factory.mktemp("certificates")
    new = ("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-x509", "-days", "2")
    for name in ("one", "other"):
        names = ("-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem")
        run("openssl", *new, *names, cwd=folder, check=True)
    (folder / "junk.pem").write_text("junk")
    return folder


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ({"authority": "none.pem"}, r"authority: got .*none.pem \(No such file or directory\), want certificates"),
        ({"authority": "junk.pem"}, r"authority: got .*junk.pem \(.*\), want certificates in PEM"),
        (
            {"certificate": "one.pem", "key": "other.key"},
            r"certificate and key: got .*one.pem and .*other.key \(.*MATCH",
        ),
        ({"certificate": "junk.pem", "key": "one.key"}, r"certificate and key: got .*junk.pem and .*one.key"),
        ({"certificate": "one.pem"}, r"certificate and key: got .*one.pem and no key"),
        ({"key": "one.key"}, r"key: got .*one.key without a certificate"),
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
