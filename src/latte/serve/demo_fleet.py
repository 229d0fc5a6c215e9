"""The fleet demo: a server and several devices, each a process of its own, in a folder that goes away with them."""

from __future__ import annotations

import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from ..core.waiting import signals_wait
from ..data.benchmark import Federation
from ..edge.make_task import make_task
from ..errors import InputError
from ..files.documents import parse_json
from ..files.schema import structure
from ..simulation.fleet_client import demo_federation
from ..simulation.fleet_device import DeviceOrders, DeviceTally
from ..wire.task_file import write_task
from .demo_server import TASK_NAME
from .fleet_options import FleetOptions
from .token_file import TokenFile
from .tokens import new_token

GUEST = "guest"  # the client that another machine may join as
SYNC = "doubling"  # of the demo on one machine, too
_PATIENCE = 10.0  # seconds for the server to end by itself
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True, slots=True)
class FleetTally:
    """How all devices did so far; ``labels`` by client, when all images are classified."""

    images: int
    correct: int
    correct_zero_shot: int
    labels: dict[str, list[int]]


@dataclass(frozen=True, slots=True)
class DemoTokens:
    """Tokens in plain text: by client, of the admin, and of the guest."""

    clients: tuple[str, ...]
    admin: str
    guest: str


@dataclass(frozen=True, slots=True, eq=False)
class DemoFleet:
    """A running demo."""

    address: str
    tokens: DemoTokens
    images: int
    devices: Sequence[subprocess.Popen[str]]
    folder: Path

    @property
    def dashboard(self) -> str:
        """The address of the dashboard with the token; the part after the # stays in the browser."""
        return f"{self.address}/#token={self.tokens.admin}&stale=60"

    def tallies(self) -> Iterator[FleetTally]:
        """Yield how the fleet does until all images are classified; waiting devices go on once all devices wait."""
        lines: queue.SimpleQueue[tuple[int, str]] = queue.SimpleQueue()
        for number, device in enumerate(self.devices):
            threading.Thread(target=_forward, args=(number, device.stdout, lines), daemon=True).start()
        latest = [DeviceTally()] * len(self.devices)
        while not all(tally.labels for tally in latest):
            number, line = lines.get()
            if not line and not latest[number].labels:
                raise OSError(f"device {number + 1} of the demo ended: {self._last_words(number)}")
            if line:
                latest[number] = structure(parse_json(line, "tally"), DeviceTally, "tally")
            if all(tally.waiting for tally in latest):
                latest = [self._release(device, tally) for device, tally in zip(self.devices, latest, strict=True)]
            yield _sum(latest)

    def _release(self, device: subprocess.Popen[str], tally: DeviceTally) -> DeviceTally:
        _send(device, "")
        return DeviceTally(tally.images, tally.correct, tally.correct_zero_shot)

    def _last_words(self, number: int) -> str:
        lines = (self.folder / f"device-{number}.log").read_text(errors="replace").splitlines()
        return lines[-1] if lines else "it printed nothing"


@contextmanager
def demo_fleet(options: FleetOptions) -> Iterator[DemoFleet]:
    """Start a server and devices; when the block ends, they are gone, and so is their folder."""
    federation = demo_federation(options.seed)
    with ExitStack() as stack:
        with signals_wait():
            folder = Path(tempfile.mkdtemp(prefix="latte-fleet-"))
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
        tokens = _prepare(folder, federation, options)
        server = _start(stack, folder, "server", "latte.serve.demo_server", folder, options.host, options.port)
        assert server.stdout is not None
        address = server.stdout.readline().strip()
        if not address.startswith("http"):
            raise InputError(address or "the server of the demo ended before it began")
        devices = [
            _start(stack, folder, f"device-{number}", "latte.simulation.fleet_device")
            for number in range(options.devices)
        ]
        for number, device in enumerate(devices):
            _send(device, json.dumps(asdict(_orders(number, address, tokens, federation, options))))
        yield DemoFleet(address, tokens, federation.samples, devices, folder)


def _prepare(folder: Path, federation: Federation, options: FleetOptions) -> DemoTokens:
    """Write the task and the tokens."""
    write_task(folder / TASK_NAME, make_task(federation.embeddings.zero_shot, options.method, sync=SYNC))
    made = [new_token(client.name) for client in federation.clients] + [new_token(None), new_token(GUEST)]
    store = TokenFile(folder / "data")
    try:
        store.add(*(token for _, token in made))
    finally:
        store.close()
    *clients, admin, guest = (text for text, _ in made)
    return DemoTokens(tuple(clients), admin, guest)


def _orders(
    number: int, address: str, tokens: DemoTokens, federation: Federation, options: FleetOptions
) -> DeviceOrders:
    places = tuple(range(number, len(federation), options.devices))
    longest = max(len(client) for client in federation.clients)
    return DeviceOrders(
        address,
        places,
        tuple(tokens.clients[place] for place in places),
        options.precision,
        options.seed,
        options.seconds / longest,
        options.lock_step,
    )


# --- processes ------------------------------------------------------------------------------------------------


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
                _close(pipe)


def _close(pipe: IO[str]) -> None:
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


def _sum(tallies: Sequence[DeviceTally]) -> FleetTally:
    labels = {name: labels for tally in tallies for name, labels in tally.labels.items()}
    complete = all(tally.labels for tally in tallies)
    return FleetTally(
        sum(tally.images for tally in tallies),
        sum(tally.correct for tally in tallies),
        sum(tally.correct_zero_shot for tally in tallies),
        labels if complete else {},
    )
