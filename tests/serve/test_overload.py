"""A server that is slow, is being stopped, or fails: every request gets an answer in time, and the log says why."""

import asyncio
import gc
import json
import logging
import resource
import shutil
import signal
import socket
import sys
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from urllib.parse import urlsplit

import httpx2
import numpy as np
import pytest

from latte import ZeroShot
from latte.checks.material import a_zero_shot, an_upload
from latte.edge.joining import make_task
from latte.server.hub import batches
from latte.server.hub.batches import Batches
from latte.server.store.tokens import TokenFile, new_token
from latte.wire.blocks import Block, encode
from latte.wire.messages import MEDIA_TYPE, Problem, SyncRequest, pack
from serving import server_process, serving, task_file
from waiting import DEADLINE, run, wait_until

TYPE = {"Content-Type": MEDIA_TYPE}


@pytest.fixture(scope="module")
def task():
    return make_task(a_zero_shot(), "latte", {"k_e": 3})


def body_of(task, client, seed=1):
    upload = encode(an_upload(seed), "fp32", task.zero_shot.dim)
    return pack(SyncRequest(task.fingerprint, client, version=seed, upload=upload, precision="fp32"))


def post(address, body, token=""):
    head = {**TYPE, **({"Authorization": f"Bearer {token}"} if token else {})}
    return httpx2.post(f"{address}/v1/sync", content=body, headers=head, timeout=DEADLINE)


# --- time -----------------------------------------------------------------------------------------------------


def submitted(queue, count):
    return [asyncio.create_task(queue.submit(number)) for number in range(count)]


def test_who_would_wait_too_long_is_refused_at_once(monkeypatch):
    monkeypatch.setattr(batches, "LONGEST_WAIT", 1.0)

    async def main():
        async def slow(requests):
            await asyncio.sleep(0.6)
            return requests

        queue = Batches(slow, most=2)
        await asyncio.gather(*submitted(queue, 2))  # from now on it knows what a batch takes
        tasks = submitted(queue, 20)
        await asyncio.sleep(0.05)
        refused = [task for task in tasks if task.done()]
        assert refused, "nobody was refused at once"
        for task in refused:
            assert task.exception().code == "busy" and task.exception().retry_after >= 1.0
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert sum(isinstance(answer, int) for answer in answers) >= 4
        await queue.close()

    asyncio.run(main())


def test_who_has_waited_too_long_is_refused_while_a_batch_runs(monkeypatch):
    """Batches were fast when they came: nothing foretold it."""
    monkeypatch.setattr(batches, "LONGEST_WAIT", 0.2)

    async def main():
        go_on = asyncio.Event()

        async def stuck(requests):
            await go_on.wait()
            return requests

        queue = Batches(stuck, most=1)
        tasks = submitted(queue, 5)
        await asyncio.wait(tasks[1:])
        assert all(isinstance(task.exception(), Problem) for task in tasks[1:])
        assert not tasks[0].done() and not len(queue)
        go_on.set()
        assert await tasks[0] == 0
        await queue.close()

    asyncio.run(main())


@pytest.fixture
def slow(task, tmp_path, monkeypatch):
    """A server whose batches take half a second."""
    monkeypatch.setattr(batches, "LONGEST_WAIT", 1.0)
    with serving(task, tmp_path) as server:
        quick = server.service.hub.run
        server.service.hub.run = lambda requests: time.sleep(0.5) or quick(requests)
        server.service.batches._most = 4
        yield server


def test_a_slow_server_answers_everybody_and_stops(slow, task, caplog):
    submit, accepted = slow.service.batches.submit, []
    slow.service.batches.submit = lambda request: submit(accepted.append(request) or request)
    with caplog.at_level(logging.INFO), ThreadPoolExecutor(60) as pool:
        asked = [pool.submit(post, slow.address, body_of(task, f"client {i}")) for i in range(60)]
        wait_until(lambda: len(accepted) == len(asked), "the last request")
        slow.service.ready = False
        slow.server.should_exit = True  # while most of them wait
        answers = [future.result() for future in asked]
    assert 200 in {answer.status_code for answer in answers} <= {200, 503}
    for answer in answers:
        if answer.status_code == 503:
            assert answer.json()["code"] in ("busy", "stopping") and int(answer.headers["retry-after"]) >= 1
    assert sum(answer.status_code == 200 for answer in answers) == len(slow.service.hub)
    assert not any(record.exc_info for record in caplog.records), caplog.text


# --- tokens that are revoked on the way -----------------------------------------------------------------------


@pytest.fixture
def guarded(task, tmp_path):
    """A server with tokens of a client and an admin, and its tokens."""
    with closing(TokenFile(tmp_path)) as file:
        (mine, stored), (admin, other) = new_token("a"), new_token(None)
        file.add(stored)
        file.add(other)
        with serving(task, tmp_path) as server:
            yield server, mine, admin, lambda: file.revoke([stored.id])


def remove(address, admin):
    head = {"Authorization": f"Bearer {admin}"}
    return httpx2.delete(f"{address}/v1/clients?client=a", headers=head).status_code


def test_a_revoked_client_does_not_come_back(guarded, task):
    """Its upload began with a token that was valid, and ends after the token was revoked and the client removed."""
    server, mine, admin, revoke = guarded
    assert post(server.address, body_of(task, "a"), mine).status_code == 200
    body, parts = body_of(task, "a", 2), urlsplit(server.address)
    with closing(socket.create_connection((parts.hostname, parts.port), timeout=DEADLINE)) as connection:
        head = f"POST /v1/sync HTTP/1.1\r\nHost: localhost\r\nContent-Type: {MEDIA_TYPE}\r\n"
        head += f"Authorization: Bearer {mine}\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body[:-1])
        wait_until(lambda: server.service.held._total == len(body) - 1, "the body")
        revoke()
        assert remove(server.address, admin) == 200
        connection.sendall(body[-1:])
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 401")
    assert "a" not in server.service.hub.versions
    assert remove(server.address, admin) == 404


def test_a_removed_client_with_a_valid_token_may_come_back(guarded, task):
    server, mine, admin, _ = guarded
    assert post(server.address, body_of(task, "a"), mine).status_code == 200
    assert remove(server.address, admin) == 200
    assert post(server.address, body_of(task, "a", 2), mine).status_code == 200


@pytest.mark.parametrize("rotated", [False, True])
def test_a_token_that_is_revoked_while_another_server_removes_its_client(guarded, task, rotated, monkeypatch):
    """Several servers: the token is revoked, and the client removed, between the check and the write."""
    server, mine, _, revoke = guarded
    hub, store = server.service.hub, server.service.hub.store
    assert post(server.address, body_of(task, "a"), mine).status_code == 200
    monkeypatch.setattr(type(store), "shared", True)
    write = store.write

    def late(records):
        if rotated:
            server.service.tokens.add(new_token("a")[1])
        revoke()
        store.remove("a")
        return write(records)

    monkeypatch.setattr(store, "write", late)
    assert post(server.address, body_of(task, "a", 2), mine).status_code == 401
    assert ("a" in hub.versions) is rotated and bool(store.read(["a"])) is rotated


# --- errors that are ours -------------------------------------------------------------------------------------


def broken(*_):
    return np.zeros(3) + np.zeros(4)  # a ValueError of numpy


@pytest.mark.parametrize("where", ["prepare", "store", "pull", "read"])
def test_a_bug_at_one_request_is_a_500_and_the_others_are_answered(task, tmp_path, where, monkeypatch, caplog):
    with serving(task, tmp_path) as server:
        hub = server.service.hub
        exchange, sick = hub.exchange, an_upload(7).vectors
        prepare, store, pick, read = exchange.prepare, exchange.store, exchange.pick, hub.reader.read
        if where == "prepare":
            monkeypatch.setattr(exchange, "prepare_many", broken)
            monkeypatch.setattr(
                exchange, "prepare", lambda up, *rest: (broken if (up.vectors == sick).all() else prepare)(up, *rest)
            )
        elif where == "store":
            monkeypatch.setattr(exchange, "store", lambda name, up: (broken if name == "sick" else store)(name, up))
        elif where == "pull":
            monkeypatch.setattr(exchange, "pick", lambda names: (broken if "sick" in names else pick)(names))
        else:
            monkeypatch.setattr(
                hub.reader,
                "read",
                lambda request, *rest: (broken if request.client == "sick" else read)(request, *rest),
            )
        run = hub.run
        hub.run = lambda requests: time.sleep(0.3) or run(requests)  # so that they come together
        with caplog.at_level(logging.INFO, "latte.server"), ThreadPoolExecutor(6) as pool:
            names = ["a", "sick", "b", "c", "d"]
            bodies = [body_of(task, name, 7 if name == "sick" else 1) for name in names]
            answers = dict(zip(names, pool.map(lambda body: post(server.address, body), bodies), strict=True))
    assert answers["sick"].status_code == 500 and answers["sick"].json()["code"] == "internal"
    assert {answers[name].status_code for name in names if name != "sick"} == {200}
    assert any(record.exc_info and "broadcast" in str(record.exc_info[1]) for record in caplog.records)


def test_the_reason_of_a_refusal_is_in_the_log(tmp_path):
    path = task_file(tmp_path, a_zero_shot())
    task = make_task(a_zero_shot(), "latte", {})
    with server_process(path, tmp_path / "data") as (address, process):
        upload = encode(an_upload(1), "fp32", task.zero_shot.dim)[1:]
        body = pack(SyncRequest(task.fingerprint, "a", version=1, upload=upload, precision="fp32"))
        answer = post(address, body)
        assert answer.status_code == 422
        lines = [json.loads(line) for line in process.so_far().stderr.splitlines()]
    assert any(line.get("detail") == answer.json()["detail"] for line in lines)


# --- the log --------------------------------------------------------------------------------------------------

_ODD = """
import asyncio, logging, threading, warnings
from latte.server.http.running import log_to_stderr
log_to_stderr("info")
logging.getLogger("uvicorn.error").error("odd\\nlines", exc_info=ValueError("x"))
logging.getLogger("uvicorn.error").info("not this")
logging.getLogger("latte.server").info("strange", extra={"fields": {"odd": object()}})
warnings.warn("a warning", RuntimeWarning)
thread = threading.Thread(target=lambda: 1 / 0); thread.start(); thread.join()
async def main():
    asyncio.get_running_loop().call_soon(lambda: 1 / 0)
    await asyncio.sleep(0.01)
asyncio.run(main())
class Odd:
    def __del__(self): 1 / 0
Odd()
"""


def test_every_line_of_the_log_is_json():
    lines = [json.loads(line) for line in run(sys.executable, "-c", _ODD, check=True).stderr.splitlines()]
    assert [line["level"] for line in lines] == ["error", "info", "warning", "error", "error", "error"]
    assert sum("ZeroDivisionError" in line.get("error", "") for line in lines) == 3


@pytest.mark.slow
def test_nothing_that_is_sent_makes_another_line(tmp_path):
    odd = [
        b"\x16\x03\x01\r\n\r\n",
        b"GET / HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\n",
    ]
    with server_process(task_file(tmp_path, a_zero_shot()), tmp_path / "data", "--insecure") as (address, process):
        parts = urlsplit(address)
        for content in odd:
            with closing(socket.create_connection((parts.hostname, parts.port), timeout=DEADLINE)) as connection:
                connection.sendall(content)
                assert connection.recv(1 << 16).startswith(b"HTTP/1.1 ")
        process.process.send_signal(signal.SIGTERM)
        assert process.finish().returncode == 0
        for line in process.so_far().stderr.splitlines():
            json.loads(line)


def test_a_store_that_is_gone_is_said_once_and_not_at_every_request(tmp_path):
    """Nobody can fill a disk with the log, least of all without a token."""
    data = tmp_path / "data"
    with server_process(task_file(tmp_path, a_zero_shot()), data) as (address, process), httpx2.Client() as client:
        shutil.rmtree(data)
        for _ in range(30):
            assert client.get(f"{address}/v1/task").status_code == 503
        assert process.so_far().stderr.count("was removed or replaced") == 1


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="changes the limit of another process")
def test_the_log_says_that_file_descriptors_ran_out(tmp_path):
    with (
        server_process(task_file(tmp_path, a_zero_shot()), tmp_path / "data") as (address, process),
        ExitStack() as all_,
    ):
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (40, 40))
        parts = urlsplit(address)
        for _ in range(60):
            all_.enter_context(closing(socket.create_connection((parts.hostname, parts.port), timeout=DEADLINE)))
        wait_until(lambda: "connections are not accepted" in process.so_far().stderr, "the line", process)


@pytest.mark.parametrize("how", ["closed", "given up", "no message", "another task", "bad upload"])
def test_a_body_that_is_refused_takes_no_memory(tmp_path, how):
    """Not even until the garbage collector comes, which is seldom."""
    text, size = np.eye(20, 1000, dtype=np.float32), 200_000
    task = make_task(ZeroShot(text, [str(i) for i in range(20)]), "latte", {"k_e": 3})
    upload = (Block("x", "f4", (1,), "raw", b"x" * size),)
    tasks = {"another task": "x", "bad upload": task.fingerprint}
    body = pack(SyncRequest(tasks[how], "a", version=1, upload=upload)) if how in tasks else b"x" * size
    left = how in ("closed", "given up")  # bytes that do not come
    head = f"POST /v1/sync HTTP/1.1\r\nHost: localhost\r\nContent-Type: {MEDIA_TYPE}\r\n"
    content = f"{head}Content-Length: {len(body) + left}\r\n\r\n".encode() + body
    with serving(task, tmp_path) as server, ExitStack() as opened:
        held, parts, connections = server.service.held, urlsplit(server.address), []
        if how == "given up":
            held._most = size + 1000
        gc.collect()
        gc.disable()
        tracemalloc.start()
        try:
            for number in range(20):
                connection = socket.create_connection((parts.hostname, parts.port), timeout=DEADLINE)
                opened.enter_context(closing(connection)).sendall(content)
                if not left:
                    assert connection.recv(1 << 16).startswith(b"HTTP/1.1 4")
                elif how == "closed":
                    wait_until(lambda: held._total == size, "the body")
                    connection.close()
                    wait_until(lambda: not held._holders, "its end")
                elif number:
                    assert connections[-1].recv(1 << 16).startswith(b"HTTP/1.1 503")
                connections.append(connection)
            taken = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
            gc.enable()
    assert taken < 5 * size
