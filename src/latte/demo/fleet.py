"""The fleet demo: a server and several devices, each a process of its own, in a folder that goes away with them."""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO

from ..edge.joining import make_task
from ..errors import InputError
from ..files.documents import parse_json, structure
from ..runtime import signals_wait
from ..server.http.running import ServerOptions, log_to_stderr, serve
from ..server.http.service import Access
from ..server.store.tokens import TokenFile, new_token
from ..wire.task import read_task, write_task
from .clients import DeviceOrders, DeviceTally, demo_federation

GUEST = "guest"  # the client that another machine may join as
SYNC = "doubling"  # of the demo on one machine, too
_PATIENCE = 10.0  # seconds for the server to end by itself
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
TASK_NAME = "federation.task"


@dataclass(frozen=True, slots=True)
class FleetOptions:
    """How a demo runs: ``devices`` processes that go through the streams in about ``seconds`` (0: at once).

    In ``lock_step`` all devices upload before any downloads, as in the simulator; otherwise each client syncs when it
    is due. ``precision`` is that of vectors on the way.
    """

    method: str = "latte"
    devices: int = 4
    precision: str = "fp32"
    seed: int = 0
    seconds: float = 60.0
    lock_step: bool = True
    host: str = "127.0.0.1"
    port: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class DemoFleet:
    """A running demo, with the tokens of its admin and of a guest."""

    address: str
    admin: str
    guest: str
    images: int
    devices: Sequence[subprocess.Popen[str]]
    folder: Path

    @property
    def dashboard(self) -> str:
        """The address of the dashboard with the token; the part after the # stays in the browser."""
        return f"{self.address}/#token={self.admin}&stale=60"

    def tallies(self) -> Iterator[DeviceTally]:
        """Yield how the fleet does until all images are classified; waiting devices go on once all devices wait."""
        lines: queue.SimpleQueue[tuple[int, str]] = queue.SimpleQueue()
        for number, device in enumerate(self.devices):
            threading.Thread(target=_forward, args=(number, device.stdout, lines), daemon=True).start()
        latest = [DeviceTally()] * len(self.devices)
        while not all(tally.labels for tally in latest):
            number, line = lines.get()
            if not line and not latest[number].labels:
                said = (self.folder / f"device-{number}.log").read_text(errors="replace").splitlines()
                raise OSError(f"device {number + 1} of the demo ended: {said[-1] if said else 'it printed nothing'}")
            if line:
                latest[number] = structure(parse_json(line, "tally"), DeviceTally, "tally")
            if all(tally.waiting for tally in latest):
                latest = [replace(tally, waiting=False) for tally in latest]
                for device in self.devices:
                    _send(device, "")
            done = all(tally.labels for tally in latest)
            yield DeviceTally(
                sum(tally.images for tally in latest),
                sum(tally.correct for tally in latest),
                sum(tally.correct_zero_shot for tally in latest),
                labels={name: labels for tally in latest for name, labels in tally.labels.items()} if done else {},
            )


@contextmanager
def demo_fleet(options: FleetOptions) -> Iterator[DemoFleet]:
    """Start a server and devices; when the block ends, they are gone, and so is their folder."""
    federation = demo_federation(options.seed)
    with ExitStack() as stack:
        with signals_wait():
            folder = Path(tempfile.mkdtemp(prefix="latte-fleet-"))
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
        write_task(folder / TASK_NAME, make_task(federation.embeddings.zero_shot, options.method, sync=SYNC))
        made = [new_token(client.name) for client in federation.clients] + [new_token(None), new_token(GUEST)]
        with closing(TokenFile(folder / "data")) as store:
            store.add(*(token for _, token in made))
        *tokens, admin, guest = (text for text, _ in made)
        server = _start(stack, folder, "server", "latte.demo.fleet", folder, options.host, options.port)
        assert server.stdout is not None
        address = server.stdout.readline().strip()
        if not address.startswith("http"):
            raise InputError(address or "the server of the demo ended before it began")
        devices = [_start(stack, folder, f"device-{number}", "latte.demo.clients") for number in range(options.devices)]
        longest = max(len(client) for client in federation.clients)
        for number, device in enumerate(devices):
            places = tuple(range(number, len(federation), options.devices))
            own = tuple(tokens[place] for place in places)
            pace = options.seconds / longest
            orders = DeviceOrders(address, places, own, options.precision, options.seed, pace, options.lock_step)
            _send(device, json.dumps(asdict(orders)))
        yield DemoFleet(address, admin, guest, federation.samples, devices, folder)


def _start(stack: ExitStack, folder: Path, name: str, module: str, *arguments: object) -> subprocess.Popen[str]:
    """Start a process that the stack ends. Ctrl-C does not reach it; it ends when this program does."""
    environment = {**os.environ, **dict.fromkeys(_THREADS, "1")}
    command = [sys.executable, "-m", module, *map(str, arguments)]
    pipe = subprocess.PIPE
    with signals_wait(), (folder / f"{name}.log").open("w") as log:
        process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=log, text=True, env=environment, start_new_session=True
        )
        stack.callback(_end, process)
    return process


def _end(process: subprocess.Popen[str]) -> None:
    """End a process: terminate it, and kill it if it does not end in time."""
    with signals_wait():
        process.terminate()
        try:
            process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):  # what was not read is lost with its reader
                    pipe.close()


def _send(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()


def _forward(number: int, output: IO[str], lines: queue.SimpleQueue[tuple[int, str]]) -> None:
    """Pass on the lines of a device, and an empty one at the end."""
    for line in output:
        lines.put((number, line))
    lines.put((number, ""))


def main(folder: Path, host: str, port: int) -> None:
    """Serve until SIGTERM, or until the program that started it has ended."""
    try:
        # until the server has its own handler, which waits for open requests
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
        threading.Thread(target=_stop_with_parent, daemon=True).start()  # may end this process at once
        log_to_stderr("warning")
        options = ServerOptions(folder / "data", host=host, port=port, insecure=True, access=Access(required=True))
        serve(read_task(folder / TASK_NAME), options, lambda address: print(address, flush=True))
    except (InputError, OSError) as error:
        print(error, flush=True)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not leave half of the folder behind
        shutil.rmtree(folder, ignore_errors=True)


def _stop_with_parent() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
