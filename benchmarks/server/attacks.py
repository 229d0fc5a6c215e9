"""Attacks on a server over HTTP: how long /livez takes meanwhile, what memory they take, how the server ends.

python benchmarks/server/attacks.py --out benchmarks/results/attacks.jsonl
python benchmarks/server/attacks.py --only bodies --seconds 5

Each attack is on a server process of its own, on this machine only, and comes from another process, for ``--seconds``:

trailers    8 connections send a trailer without end after an empty body, without a token
pipelined   300 connections send requests for the API's document one after the other, and read nothing
bodies      1,200 bodies of a megabyte with one token, whose last byte never comes
syncs       3,000 downloads at once from a server whose clients have prototypes a float32 step apart, which are the
            slowest to choose from; then SIGTERM
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import re
import resource
import signal
import socket
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

import numpy as np
from serve_load import Fleet, Server, keep, name

from latte import Prototypes
from latte.server.store.tokens import TokenFile, new_token
from latte.wire.blocks import encode
from latte.wire.messages import MEDIA_TYPE, SyncRequest, pack
from latte.wire.task import write_task

HOST = "127.0.0.1"
PATIENCE = 10.0  # seconds for an answer of /livez
AFTERWARDS = 5.0  # seconds after an attack, at whose end the memory is measured again
POST = b"POST /v1/%s HTTP/1.1\r\nHost: localhost\r\nContent-Type: " + MEDIA_TYPE.encode() + b"\r\n"


class Copies(Fleet):
    """Clients whose prototypes are the text embeddings, half of their numbers moved to the next float32."""

    def upload(self, client: int) -> tuple[object, ...]:
        up = np.nextafter(self.text, np.float32(2))
        vectors = np.where(self.rng.random(self.text.shape) < 0.5, up, self.text)
        message = Prototypes(vectors, np.ones(len(vectors), np.bool_), self.task.zero_shot.fingerprint)
        return encode(message, "fp32", self.text.shape[1])


# --- attacks: each returns how often it was answered what -----------------------------------------------------


async def _status(reader: asyncio.StreamReader) -> str:
    """Return the status of the answer that comes, after all of it was read; "none" if there is none."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        await reader.readexactly(int(length[1]) if length else 0)
        return head.split()[1].decode()
    except (OSError, asyncio.IncompleteReadError):
        return "none"


async def _each(count: int, attack: Callable[[int], Awaitable[str]], until: float) -> Counter[str]:
    """Run an attack on so many connections until a time; "open" are those that have no answer by then."""
    tasks = [asyncio.create_task(attack(i)) for i in range(count)]  # type: ignore[arg-type]
    done, rest = await asyncio.wait(tasks, timeout=max(0.0, until - time.monotonic()))
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)
    failures = Counter(type(task.exception()).__name__ for task in done if task.exception())
    return Counter(task.result() for task in done if not task.exception()) + failures + Counter(open=len(rest))


async def trailers(port: int, until: float, token: str, fleet: Fleet) -> Counter[str]:
    answers: Counter[str] = Counter()

    async def attack(i: int) -> str:
        while time.monotonic() < until:
            reader, writer = await asyncio.open_connection(HOST, port)
            try:
                writer.write(POST % b"sync" + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: ")
                while not reader.at_eof() and time.monotonic() < until:
                    writer.write(b"a" * 65_536 if i % 2 else b"a: b\r\n" * 10_000)
                    await writer.drain()
            except OSError:
                pass
            answers[await _status(reader)] += 1
            writer.close()
        return "ended"

    await _each(8, attack, until + 1)
    return answers


async def pipelined(port: int, until: float, token: str, fleet: Fleet) -> Counter[str]:
    request = b"GET /v1/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 160  # 300 times: 2.4 MB

    async def attack(i: int) -> str:
        loop, connection = asyncio.get_running_loop(), socket.socket()
        with closing(connection):
            connection.setblocking(False)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            await loop.sock_connect(connection, (HOST, port))
            while True:
                try:
                    await loop.sock_sendall(connection, request)
                except OSError:
                    return "closed"
                await asyncio.sleep(0.5)

    return await _each(300, attack, until)


async def bodies(port: int, until: float, token: str, fleet: Fleet) -> Counter[str]:
    size = 1 << 20
    head = POST % b"sync" + b"Authorization: Bearer %b\r\nContent-Length: %d\r\n\r\n" % (token.encode(), size)

    async def attack(i: int) -> str:
        reader, writer = await asyncio.open_connection(HOST, port)
        try:
            writer.write(head + b"x" * (size - 1))
            return await _status(reader)
        finally:
            writer.transport.abort()

    return await _each(1200, attack, until)


async def syncs(port: int, until: float, token: str, fleet: Fleet) -> Counter[str]:
    async def attack(i: int) -> str:
        request = SyncRequest(task=fleet.task.fingerprint, client=name(i % 1000), precision="int8")
        body = pack(request)
        reader, writer = await asyncio.open_connection(HOST, port, limit=1 << 24)
        writer.write(POST % b"download" + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        return await _status(reader)

    return await _each(3000, attack, until + 60)


# --- the other side ---------------------------------------------------------------------------------------------


def live_seconds(port: int) -> float:
    """Return how long /livez takes, from a new connection to the end of the answer."""
    start = time.monotonic()
    try:
        with closing(socket.create_connection((HOST, port), timeout=PATIENCE)) as connection:
            connection.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            answer = b""
            while part := connection.recv(65_536):
                answer += part
        if not answer.endswith(b"ok"):
            return PATIENCE
    except OSError:
        return PATIENCE
    return time.monotonic() - start


def _attack(attack: Callable[..., Awaitable[Counter[str]]], pipe, *arguments: object) -> None:  # type: ignore[no-untyped-def]
    pipe.send(asyncio.run(attack(*arguments)))  # type: ignore[arg-type]


def measure(what: str, seconds: float, folder: Path) -> dict[str, object]:
    slow = what == "syncs"
    fleet = Copies("latte", 100, 256, "fp32") if slow else Fleet("latte", 10, 512, "fp16")
    task, where, token = folder / f"{what}.task", folder / what, ""
    write_task(task, fleet.task)
    fleet.fill(where, 1000)
    if what == "bodies":
        token, stored = new_token(name(0))
        with closing(TokenFile(where)) as file:
            file.add(stored)
    server = Server(task, where, ("--rate", "10000") if what == "bodies" else ())
    ending = None
    try:
        live_seconds(server.port)  # what is loaded at the first request
        before, peak = server.memory(), 0.0
        ours, theirs = multiprocessing.Pipe(duplex=False)
        until = time.monotonic() + seconds
        attacker = multiprocessing.Process(
            target=_attack, args=(globals()[what], theirs, server.port, until, token, fleet)
        )
        attacker.start()
        times = []
        while time.monotonic() < until:
            times.append(live_seconds(server.port))
            peak = max(peak, server.memory())
            time.sleep(0.05)
        if slow:
            start = time.monotonic()
            server.process.send_signal(signal.SIGTERM)
            server.process.wait()
            ending = time.monotonic() - start
        answers = ours.recv()
        attacker.join()
        if not slow:
            time.sleep(AFTERWARDS)
        after = 0.0 if slow else server.memory()
    finally:
        server.stop()
    return {
        "attack": what, "worst /livez s": round(max(times), 3), "median /livez s": round(float(np.median(times)), 4),
        "looks": len(times), "MB before": round(before), "MB peak": round(peak), "MB after": round(after),
        "answers": dict(answers), "shutdown s": None if ending is None else round(ending, 2),
        "load of the machine": round(os.getloadavg()[0], 1),
    }  # fmt: skip


def main() -> None:
    names = ("trailers", "pipelined", "bodies", "syncs")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--out", type=Path, help="A file of JSON lines to which the results are added.")
    a = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    columns = ("attack", "worst /livez s", "MB before", "MB peak", "MB after", "shutdown s", "answers")
    print("| " + " | ".join(columns) + " |\n" + "|---" * len(columns) + "|")
    with tempfile.TemporaryDirectory() as folder:
        for what in a.only:
            row = measure(what, a.seconds, Path(folder))
            print("| " + " | ".join(str(row[column]) for column in columns) + " |", flush=True)
            keep(row, a.out)


if __name__ == "__main__":
    main()
