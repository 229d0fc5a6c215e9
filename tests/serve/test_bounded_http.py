"""What is sent before anybody knows who sends it: limited in bytes and in time, and answered where it can be."""

import json
import re
import signal
import socket
import sys
import time
from contextlib import ExitStack, closing
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import numpy as np
import pytest

from latte import ZeroShot
from latte.checks.material import a_zero_shot, an_upload
from latte.edge.clients.http import HttpExchange
from latte.edge.joining import make_task
from latte.server.http import limits as bounded_http
from latte.server.http.limits import MOST_OPEN
from latte.server.store.tokens import TokenFile, new_token
from latte.wire.messages import SyncRequest, pack
from latte.wire.task import read_task
from serving import IMPATIENT, server_process, serving, task_file
from waiting import DEADLINE, wait_until

MEGABYTE = 1 << 20
POST = b"POST /v1/sync HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/msgpack\r\n"
BODY = POST + b"Content-Length: 1000\r\n\r\nabc"


@pytest.fixture(scope="module")
def task():
    return make_task(a_zero_shot(), "latte", {"k_e": 3})


@pytest.fixture
def impatient(monkeypatch):
    """A second for a head, and between two parts of a body."""
    monkeypatch.setattr(bounded_http, "HEAD_SECONDS", 1.0)
    monkeypatch.setattr(bounded_http, "QUIET_SECONDS", 1.0)


def connect(address):
    parts = urlsplit(address)
    return closing(socket.create_connection((parts.hostname, parts.port), timeout=DEADLINE))


def read_all(connection):
    """Return all that the server sends until it closes the connection."""
    content = b""
    try:
        while part := connection.recv(MEGABYTE):
            content += part
    except ConnectionError:  # closed with bytes of ours unread
        pass
    return content


def read_answer(connection):
    """Return one answer; the connection stays open."""
    content = b""
    while b"\r\n\r\n" not in content:
        content += connection.recv(MEGABYTE)
    length = int(re.search(rb"content-length: (\d+)", content)[1]) + content.index(b"\r\n\r\n") + 4
    while len(content) < length:
        content += connection.recv(MEGABYTE)
    return content


def problem_of(content):
    head, _, body = content.partition(b"\r\n\r\n")
    assert b"application/problem+json" in head and b"connection: close" in head
    document = json.loads(body)
    assert int(head.split()[1]) == document["status"]
    return document["code"]


def send(connection, first, part, times):
    """Send ``part`` so many times; return what was sent before the server closed the connection."""
    sent = len(first)
    try:
        connection.sendall(first)
        for _ in range(times):
            connection.sendall(part)
            sent += len(part)
    except ConnectionError:
        pass
    return sent


def memory(pid):
    """Return the megabytes of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


LONG = {
    "one header": (b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-A: ", b"a" * MEGABYTE),
    "an address": (b"GET /livez?", b"a" * MEGABYTE),
    "many headers": (b"GET /livez HTTP/1.1\r\nHost: localhost\r\n", b"X-A: b\r\n" * (MEGABYTE // 8)),
}


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the memory of a process from /proc")
def test_headers_without_end_take_no_memory(tmp_path):
    with server_process(task_file(tmp_path, a_zero_shot()), tmp_path / "data") as (address, process):
        before = memory(process.pid)
        for first, part in LONG.values():
            with connect(address) as connection:
                assert send(connection, first, part, 48) < 48 * MEGABYTE
        assert memory(process.pid) < before + 24
        assert httpx2.get(f"{address}/livez").status_code == 200


def test_a_head_that_is_too_long_gets_a_problem(task, tmp_path):
    head = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-A: "
    with serving(task, tmp_path) as server:
        for more in (b"a" * 70_000 + b"\r\n\r\n", b"a" * MEGABYTE):
            with connect(server.address) as connection:
                send(connection, head + more, b"", 0)
                assert problem_of(read_all(connection)) == "head_too_large"
        with connect(server.address) as connection:
            connection.sendall(head + b"a" * 60_000 + b"\r\n\r\n")
            assert read_all(connection).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("before", [b"", b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"])
@pytest.mark.parametrize(
    "content",
    [b"\x16\x03\x01 nonsense\r\n\r\n", b"CONNECT localhost:80 HTTP/1.1\r\n\r\n", b"GET http:// HTTP/1.1\r\n\r\n"],
)
def test_what_is_no_http_gets_a_problem(task, tmp_path, before, content, caplog):
    with serving(task, tmp_path) as server, connect(server.address) as connection:
        connection.sendall(before)
        if before:
            read_answer(connection)
        connection.sendall(content)
        assert problem_of(read_all(connection)) == "bad_request"
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the memory of a process from /proc")
def test_half_a_head_of_many_short_headers_takes_no_memory(tmp_path):
    with (
        server_process(task_file(tmp_path, a_zero_shot()), tmp_path / "data") as (address, process),
        ExitStack() as all_,
    ):
        before = memory(process.pid)
        for _ in range(100):
            connection = all_.enter_context(connect(address))
            send(connection, b"GET /livez HTTP/1.1\r\nHost: localhost\r\n", b"ab:cd\r\n" * 7000, 1)
        assert httpx2.get(f"{address}/livez").status_code == 200
        assert memory(process.pid) < before + 24


def test_of_many_halves_of_heads_the_oldest_is_given_up(task, tmp_path):
    with serving(task, tmp_path) as server, ExitStack() as stack:
        held, head = server.service.held, b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 20_000
        held._most = 100_000
        opened = [stack.enter_context(connect(server.address)) for _ in range(9)]
        for number, connection in enumerate(opened):
            connection.sendall(head)
            wait_until(lambda number=number: held._total >= 20_000 * min(4, number + 1), "the head")
        for connection in opened[:5]:
            assert read_all(connection) == b""
        for connection in opened[5:]:
            connection.sendall(b"\r\nConnection: close\r\n\r\n")
            assert read_all(connection).endswith(b"ok")
        assert held._total == 0 and not held._holders


def test_half_a_request_is_not_waited_for(task, tmp_path, impatient):
    with serving(task, tmp_path) as server:
        for content, stage in ((b"POST /v1/sync HTTP/1.1\r\nHos", "head"), (BODY, "body")):
            with connect(server.address) as connection:
                connection.sendall(content)
                answer = read_all(connection)
                assert problem_of(answer) == "too_slow" and stage.encode() in answer
        for nothing in (b"", b"\r\n"):
            with connect(server.address) as connection:
                connection.sendall(nothing)
                assert read_all(connection) == b""


def test_a_connection_that_waits_between_requests_stays_open(task, tmp_path, impatient):
    """The time for a head begins with the head: an open connection may be quiet for longer."""
    with serving(task, tmp_path) as server, connect(server.address) as other, httpx2.Client() as client:
        with client.stream("GET", f"{server.address}/livez") as first:
            used = first.extensions["network_stream"].get_extra_info("client_addr")
            assert first.read() == b"ok"
        assert read_all(other) == b"", "closed after the time for a head"
        with client.stream("GET", f"{server.address}/livez") as second:
            assert second.extensions["network_stream"].get_extra_info("client_addr") == used


def test_a_body_has_more_time_than_a_head(task, tmp_path, impatient, monkeypatch):
    monkeypatch.setattr(bounded_http, "QUIET_SECONDS", DEADLINE)
    with serving(task, tmp_path) as server, connect(server.address) as connection, connect(server.address) as other:
        connection.sendall(BODY)
        assert read_all(other) == b"", "closed after the time for a head"
        connection.sendall(b"x" * 997)
        assert connection.recv(MEGABYTE).startswith(b"HTTP/1.1 400"), "read to its end, and no message"


CHUNKED = POST + b"Transfer-Encoding: chunked\r\n"
NOT_BODY = {
    "one trailer": (b"0\r\nX: ", b"a" * MEGABYTE),
    "many trailers": (b"0\r\n", b"X: b\r\n" * (MEGABYTE // 6)),
    "a chunk extension": (b"1;", b"a" * MEGABYTE),
    "a chunk size": (b"", b"0" * MEGABYTE),
    "chunks of one byte": (b"", b"1\r\na\r\n" * (MEGABYTE // 6)),
    "chunk extensions": (b"", b"1;aaaaaaaaaaaaaaaaaaaaa\r\na\r\n" * (MEGABYTE // 30)),
}


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the memory of a process from /proc")
@pytest.mark.parametrize("token", [b"", b"Authorization: Bearer x\r\n"])
def test_what_is_sent_beside_a_body_takes_no_memory(tmp_path, token):
    required = ("--auth",) if token else ()
    with server_process(task_file(tmp_path, a_zero_shot()), tmp_path / "data", *required) as (address, process):
        before = memory(process.pid)
        for what, (first, part) in NOT_BODY.items():
            with connect(address) as connection:
                assert send(connection, CHUNKED + token + b"\r\n" + first, part, 48) < 48 * MEGABYTE, what
        assert memory(process.pid) < before + 24
        assert httpx2.get(f"{address}/livez").status_code == 200


@pytest.mark.parametrize("what", NOT_BODY)
def test_what_is_sent_beside_a_body_gets_a_problem(task, tmp_path, what):
    first, part = NOT_BODY[what]
    with serving(task, tmp_path) as server, connect(server.address) as connection:
        connection.sendall(CHUNKED + b"\r\n" + first)
        send(connection, part[:30_000], b"", 0)
        assert problem_of(read_all(connection)) == "head_too_large"


def test_a_body_in_chunks_with_trailers_is_a_body(task, tmp_path):
    """Small chunks, an extension and a trailer are HTTP; a trailer is no header."""
    token, stored = new_token("a")
    with closing(TokenFile(tmp_path)) as file:
        file.add(stored)
    body = pack(SyncRequest(task.fingerprint, "a"))
    chunks = b"".join(b"%x;a=b\r\n%s\r\n" % (len(body[i : i + 50]), body[i : i + 50]) for i in range(0, len(body), 50))
    trailer = b"0\r\nAuthorization: Bearer x\r\nX: " + b"a" * 5000 + b"\r\n\r\n"
    with serving(task, tmp_path) as server, connect(server.address) as connection:
        for _ in range(2):  # the connection stays open
            connection.sendall(CHUNKED + b"Authorization: Bearer %s\r\n\r\n" % token.encode() + chunks)
            connection.sendall(trailer)
            assert read_answer(connection).startswith(b"HTTP/1.1 200")


def test_a_request_before_the_answer_to_the_last_one_is_not_read(task, tmp_path):
    """The first is answered, and the connection is closed: nothing is remembered of the others."""
    head = (
        b"POST /v1/join HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 30000\r\n\r\n"
    )
    get = b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with serving(task, tmp_path) as server:
        served = server.service.metrics
        for first in (head + b" " * 30_000, get % b"/v1/openapi.json", get % b"/v1/task", get % b"/v1/fleet"):
            with connect(server.address) as connection:
                send(connection, first + (get % b"/livez") * 50_000, b"", 0)
                answers = read_all(connection)
                assert answers.count(b"HTTP/1.1 ") == 1 and b"connection: close" in answers
        assert served.requests.labels("livez", "ok")._value.get() == 0
        with connect(server.address) as connection:  # but one after the other
            for _ in range(3):
                connection.sendall(get % b"/livez")
                answer = b""
                while not answer.endswith(b"ok"):
                    answer += connection.recv(MEGABYTE)


def small_connection(address):
    """Return a connection that holds next to nothing of what it does not read."""
    connection, parts = socket.socket(), urlsplit(address)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(DEADLINE)
    connection.connect((parts.hostname, parts.port))
    return closing(connection)


def test_an_answer_that_is_not_read_is_given_up_and_one_that_is_read_slowly_is_not(tmp_path, monkeypatch):
    """The system takes more only when a third of what it keeps was read: a minute of a slow link."""
    monkeypatch.setattr(bounded_http, "QUIET_SECONDS", 1.0)
    rows = np.random.default_rng(0).normal(size=(4000, 512)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    task = make_task(ZeroShot(rows, [str(i) for i in range(4000)]), "latte", {"k_e": 3})  # its file has 8 MB
    request = b"GET /v1/task HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with serving(task, tmp_path) as server:
        held = server.service.held
        with small_connection(server.address) as connection:
            connection.sendall(request)
            wait_until(lambda: held._total > 7_000_000, "an answer that is not read, nearly all of it")
            wait_until(lambda: held._total == 0, "its end")
            assert len(read_all(connection)) < 8_000_000
        monkeypatch.setattr(bounded_http, "QUIET_SECONDS", 0.4)
        with small_connection(server.address) as connection:
            connection.sendall(request)
            wait_until(lambda: held._total > 7_000_000, "an answer that waits")
            for _ in range(40):
                assert connection.recv(4096)
                time.sleep(0.05)
            assert held._total > 7_000_000 or sys.platform != "linux", "others do not say what they keep"
        wait_until(lambda: held._total == 0, "the end of the caller")
        monkeypatch.setattr(bounded_http, "QUIET_SECONDS", DEADLINE)
        with small_connection(server.address) as connection:
            connection.sendall(request)
            wait_until(lambda: held._total > MEGABYTE, "an answer that is read late")
            assert len(read_all(connection)) > 8_000_000


def open_body(address, token, size=20_000):
    """Return a connection with a body that lacks its last byte."""
    connection = connect(address).__enter__()
    head = b"Authorization: Bearer %s\r\nContent-Length: %d\r\n\r\n" % (token.encode(), size)
    connection.sendall(POST + head + b"x" * (size - 1))
    return connection


def test_one_client_has_few_open_bodies(task, tmp_path):
    tokens = {}
    with closing(TokenFile(tmp_path)) as file:
        for client in ("a", "b"):
            tokens[client], stored = new_token(client)
            file.add(stored)
    with serving(task, tmp_path) as server, ExitStack() as stack:
        held = server.service.held
        opened = [stack.enter_context(closing(open_body(server.address, tokens["a"]))) for _ in range(MOST_OPEN)]
        wait_until(lambda: held._open == {"a": MOST_OPEN}, "the bodies")
        with closing(open_body(server.address, tokens["a"])) as late:
            assert b"HTTP/1.1 429" in late.recv(MEGABYTE)
        with closing(open_body(server.address, tokens["b"])) as other:
            other.sendall(b"x")
            assert b"HTTP/1.1 400" in other.recv(MEGABYTE), "no message, but read to its end"
        opened[0].sendall(b"x")
        assert b"HTTP/1.1 400" in opened[0].recv(MEGABYTE)
        opened[0].close()
        with closing(open_body(server.address, tokens["a"])) as again:
            again.sendall(b"x")
            assert b"HTTP/1.1 400" in again.recv(MEGABYTE)
    assert not held._open and not held._holders and not held._total


def test_of_many_open_bodies_the_oldest_is_given_up(task, tmp_path):
    """Without tokens nobody has a name: all together may hold so many bytes."""
    with serving(task, tmp_path) as server, ExitStack() as stack:
        held = server.service.held
        held._most = 100_000
        opened = [stack.enter_context(closing(open_body(server.address, "x"))) for _ in range(9)]
        for connection in opened[:4]:
            assert b"HTTP/1.1 503" in connection.recv(MEGABYTE)
        assert held._total <= held._most
        with HttpExchange(server.address, task, connection=IMPATIENT) as exchange:
            exchange.push("a", an_upload(1))


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("localhost", True), ("LOCALHOST:8420", True), ("127.0.0.1:1", True), ("[::1]:80", True), ("127.1.2.3", True),
        ("evil.example", False), ("evil.example:8420", False), ("127.0.0.1.evil.example", False), ("[evil]", False),
        ("localhost.evil.example", False), ("10.0.0.1", False), ("", False), ("localhost@evil.example", False),
    ],
)  # fmt: skip
def test_an_open_server_answers_to_names_of_this_machine_only(task, tmp_path, host, allowed):
    """A page whose name was made to lead to 127.0.0.1 cannot do what everybody on this machine may."""
    with serving(task, tmp_path) as server:
        server.service.hub.versions["a"] = 1
        for method, path in (("DELETE", "/v1/clients?client=b"), ("GET", "/v1/fleet"), ("GET", "/metrics")):
            answer = httpx2.request(method, f"{server.address}{path}", headers={"Host": host})
            assert (answer.status_code == 403) is not allowed, (method, path)
        assert httpx2.get(f"{server.address}/livez", headers={"Host": host}).status_code == 200


def test_with_tokens_any_name_is_the_servers(task, tmp_path):
    """A proxy passes on the name that clients use."""
    token, stored = new_token(None)
    with closing(TokenFile(tmp_path)) as file:
        file.add(stored)
    head = {"Authorization": f"Bearer {token}", "Host": "latte.example"}
    with serving(task, tmp_path) as server:
        assert httpx2.get(f"{server.address}/v1/clients", headers=head).status_code == 200


@pytest.mark.parametrize("content", [BODY, b"POST /v1/sync HTTP/1.1\r\nHos"], ids=["body", "head"])
def test_a_server_that_stops_does_not_wait_for_half_a_request(tmp_path, content):
    path = task_file(tmp_path, a_zero_shot())
    with server_process(path, tmp_path / "data") as (address, process), connect(address) as connection:
        connection.sendall(content)
        with HttpExchange(address, read_task(path)) as exchange:  # answered after what came before it was read
            exchange.push("a", an_upload(1))
        process.process.send_signal(signal.SIGTERM)
        assert problem_of(read_all(connection)) == "stopping"
        assert process.finish().returncode == 0
        assert "timeout graceful shutdown exceeded" not in process.so_far().stderr
