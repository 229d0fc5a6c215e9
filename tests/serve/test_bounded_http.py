"""What is sent before anybody knows who sends it: limited in bytes and in time, and answered where it can be."""

import json
import signal
import socket
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

from latte.checks.material import a_zero_shot, an_upload
from latte.edge.http_exchange import HttpExchange
from latte.edge.make_task import make_task
from latte.serve import bounded_http
from latte.wire.task_file import read_task
from serving import server_process, serving, task_file
from waiting import DEADLINE

MEGABYTE = 1 << 20
BODY = b"POST /v1/sync HTTP/1.1\r\nHost: x\r\nContent-Type: application/msgpack\r\nContent-Length: 1000\r\n\r\nabc"


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
    "one header": (b"GET /livez HTTP/1.1\r\nHost: x\r\nX-A: ", b"a" * MEGABYTE),
    "an address": (b"GET /livez?", b"a" * MEGABYTE),
    "many headers": (b"GET /livez HTTP/1.1\r\nHost: x\r\n", b"X-A: b\r\n" * (MEGABYTE // 8)),
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
    head = b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-A: "
    with serving(task, tmp_path) as server:
        for more in (b"a" * 70_000 + b"\r\n\r\n", b"a" * MEGABYTE):
            with connect(server.address) as connection:
                send(connection, head + more, b"", 0)
                assert problem_of(read_all(connection)) == "head_too_large"
        with connect(server.address) as connection:
            connection.sendall(head + b"a" * 60_000 + b"\r\n\r\n")
            assert read_all(connection).startswith(b"HTTP/1.1 200")


def test_what_is_no_http_gets_a_problem(task, tmp_path):
    with serving(task, tmp_path) as server, connect(server.address) as connection:
        connection.sendall(b"\x16\x03\x01 nonsense\r\n\r\n")
        assert problem_of(read_all(connection)) == "bad_request"


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


def test_requests_one_after_the_other_without_waiting(task, tmp_path):
    head = b"POST /v1/join HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 30000\r\n\r\n"
    last = b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    with serving(task, tmp_path) as server, connect(server.address) as connection:
        connection.sendall((head + b" " * 30_000) * 8 + last)
        answers = read_all(connection)
        assert answers.count(b"HTTP/1.1 413") == 8 and answers.endswith(b"ok")


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
