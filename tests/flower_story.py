"""A deployment on loopback in which much goes wrong: python tests/flower_story.py FOLDER.

One SuperLink with TLS, three SuperNodes with keys, three devices. Node 2 joins late; node 1 and its device are killed
and started again; the SuperLink is killed and started again; a node with an unknown key wants to join. Devices get
their pictures from here, so that what each has learnt at every sync is known. What happened goes to FOLDER/story.json.

It touches no network but 127.0.0.1, and ends every process that it started.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "examples" / "flower_app")]

from loopback import Loopback  # noqa: E402

import devices  # noqa: E402
from latte.edge.device_file import open_record, read_status  # noqa: E402
from latte.edge.exchange_folder import ExchangeFolder  # noqa: E402

PATIENCE = 240.0  # seconds for any one step: a hang becomes a failure that shows the logs
PARK = 5.0
STRANGER = 9  # a node whose key nobody registered


class StuckError(Exception):
    """A step that did not happen."""


class Story:
    """The processes of the deployment, by name, and what was acknowledged."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.task = folder, devices.make_task_file(folder)
        self.ports = free_ports(6)
        self.deployment = Loopback(folder / "deployment", self.ports[0])
        self.deployment.prepare()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.lists: dict[int, int] = {}
        self.fed: dict[int, int] = {}
        self.pictures = {
            node: devices.write_pictures(folder / f"pictures{node}", 20, first=100 * node) for node in range(3)
        }
        self.acknowledged: dict[int, int] = {}
        self.seconds: dict[str, float] = {}

    # --- processes --------------------------------------------------------------------------------------------

    def start(self, name: str, command: list[str]) -> None:
        """Start a process in a session of its own."""
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                command, env=self.deployment.environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip

    def end(self, name: str, number: int = signal.SIGKILL) -> None:
        """Send a signal to a process and its children, and wait until it has ended."""
        process = self.processes.pop(name)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        process.wait(PATIENCE)
        if number != signal.SIGKILL:  # what its children left
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def end_all(self) -> None:
        for name in list(self.processes):
            self.end(name)
        end = time.monotonic() + 30.0
        while (left := self.descendants()) and time.monotonic() < end:  # a process that was killed takes a moment
            for pid in left:  # an app outlives the SuperLink or the SuperNode that started it
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)

    def descendants(self) -> list[int]:
        """Return every process of this deployment: those that have its folder in their environment."""
        mark = f"FLWR_HOME={self.deployment.folder / 'flwr'}\0".encode()
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):
                if mark in path.read_bytes() + b"\0":
                    found.append(int(path.parent.name))
        return found

    def alive(self, name: str) -> bool:
        return self.processes[name].poll() is None

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    # --- Flower -----------------------------------------------------------------------------------------------

    def call(self, command: list[str]) -> str:
        """Run a command until the SuperLink answers it."""

        def attempt() -> str:
            done = subprocess.run(command, env=self.deployment.environment(), capture_output=True, text=True)
            return done.stdout if done.returncode == 0 else ""

        return self.wait_for(attempt, " ".join(command), pause=1.0)

    def start_superlink(self) -> None:
        self.start("superlink", self.deployment.superlink())
        wait_for_port(self, self.ports[0])

    def start_node(self, node: int) -> None:
        """Start a SuperNode; one that is refused because it was there a moment ago is started again."""
        self.start(f"supernode{node}", self.deployment.supernode(node, self.ports[1 + node % 5]))

    def start_run(self) -> None:
        self.call(self.deployment.run(task=str(self.task), park_seconds=PARK))

    # --- devices ----------------------------------------------------------------------------------------------

    def start_device(self, node: int) -> None:
        """Start ``latte edge`` once its node has brought the task; its pictures come from a list that grows."""
        folder = self.deployment.node_folder(node)
        self.wait_for(lambda: (folder / "task.safetensors").is_file(), f"the task of node {node}", f"supernode{node}")
        fifo = self.folder / f"list{node}"
        if node not in self.lists:
            os.mkfifo(fifo)
            self.lists[node] = os.open(fifo, os.O_RDWR)
        command = devices.edge_command(
            f"folder:{folder}", self.state(node), f"device {node}", "--precision", "exact", "--sync-seconds", 0,
            "--threads", 1, "--from", fifo,
        )  # fmt: skip
        self.start(f"device{node}", [str(word) for word in command])

    def state(self, node: int) -> Path:
        return self.folder / f"device{node}-state"

    def feed(self, node: int, count: int) -> None:
        """Give a device its next pictures, and wait until all are answered."""
        start = self.fed.get(node, 0)
        lines = "".join(f"{path}\n" for path in self.pictures[node][start : start + count])
        os.write(self.lists[node], lines.encode())
        self.fed[node] = start + count
        self.wait_for(
            lambda: devices.recorded(self.state(node)) >= start + count, f"answers of device {node}", f"device{node}"
        )

    def wait_for_sync(self, node: int) -> None:
        """Wait until the server has acknowledged what a device has learnt, and the device has taken over the answer."""
        begin, images = time.monotonic(), self.fed[node]

        def taken_over() -> bool:
            status = self.status(node)
            return status.sync_images >= images and status.updated > status.synced + 2.5  # two reports later

        self.wait_for(
            taken_over, f"a sync of device {node} after {images} pictures", f"device{node}", f"supernode{node}"
        )
        answer = ExchangeFolder(self.deployment.node_folder(node)).answer()
        assert answer is not None and not answer.code, answer
        self.acknowledged[node] = answer.version
        self.seconds[f"sync of node {node} after {images} pictures"] = round(time.monotonic() - begin, 1)

    def status(self, node: int):
        with closing(open_record(self.state(node))) as database:
            return read_status(database)

    # --- what is stored ---------------------------------------------------------------------------------------

    def stored(self) -> dict[str, int]:
        """Return the versions that the server has, by the names of its nodes."""
        path = self.deployment.folder / "exchange" / "clients.db"
        with closing(sqlite3.connect(path)) as database:
            rows = database.execute("SELECT name, version FROM clients ORDER BY id").fetchall()
        return {bytes(name).decode(): version for name, version in rows}

    def node_ids(self) -> dict[int, str]:
        """Return the name that Flower gave to each node, from the logs of the SuperNodes."""
        marks = {node: self.log(f"supernode{node}").rpartition("SuperNode ID: ")[2].split() for node in range(3)}
        return {node: words[0] for node, words in marks.items()}

    def wait_for(self, condition, what: str, *names: str, pause: float = 0.1):
        """Return the first true answer of a condition; the processes it depends on must not end."""
        end = time.monotonic() + PATIENCE
        while not (answer := condition()):
            ended = [name for name in names if not self.alive(name)]
            if ended or time.monotonic() > end:
                logs = "\n".join(f"--- {name}\n{self.log(name)[-3000:]}" for name in self.processes)
                raise StuckError(f"waited in vain for {what}; ended: {ended}\n{logs}")
            time.sleep(pause)
        return answer


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def wait_for_port(story: Story, port: int) -> None:
    def listens() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    story.wait_for(listens, f"port {port}", "superlink")


def tell(story: Story) -> None:
    story.start_superlink()
    for node in range(3):
        story.call(story.deployment.register(node))
    for node in (0, 1, STRANGER):
        story.start_node(node)
    story.start_run()
    for node in (0, 1):
        story.start_device(node)
    for node in (0, 1, 0):
        story.feed(node, 4)
        story.wait_for_sync(node)

    story.wait_for(lambda: not story.alive(f"supernode{STRANGER}"), "the refusal of the stranger")
    story.feed(1, 2)  # learnt, recorded, and not synced
    story.end("supernode1")
    story.end("device1")
    story.start_node(2)  # a late joiner
    story.start_device(2)
    story.feed(2, 4)
    story.wait_for_sync(2)

    before = story.stored()
    story.end("superlink")
    story.feed(0, 4)  # a device works on without a server
    story.start_superlink()
    story.start_run()
    story.wait_for_sync(0)
    after = story.stored()
    assert all(after[name] >= version for name, version in before.items()), (before, after)

    start_again(story, 1)
    story.start_device(1)
    story.feed(1, 2)
    story.wait_for_sync(1)
    story.feed(0, 4)
    story.wait_for_sync(0)
    story.feed(0, 2)


def start_again(story: Story, node: int) -> None:
    """Start a SuperNode that was killed, as a service manager does: as often as it is refused."""
    name, mark = f"supernode{node}", "SuperNode ID: "
    before = story.log(name).count(mark)
    story.start_node(node)

    def accepted() -> bool:
        if story.log(name).count(mark) > before:
            return True
        if not story.alive(name):
            time.sleep(1.0)
            story.end(name)
            story.start_node(node)
        return False

    story.wait_for(accepted, f"node {node} to be accepted again")


def main(folder: Path) -> None:
    begin = time.monotonic()
    story = Story(folder)
    try:
        tell(story)
        for node in range(3):
            story.end(f"device{node}", signal.SIGTERM)
        ids = story.node_ids()
        facts = {
            "ids": ids,
            "acknowledged": {ids[node]: version for node, version in story.acknowledged.items()},
            "stored": story.stored(),
            "seconds": {**story.seconds, "all": round(time.monotonic() - begin, 1)},
            "stranger": story.log(f"supernode{STRANGER}"),
            "superlink": [line for line in story.log("superlink").splitlines() if "ERROR" in line or "WARN" in line],
        }
    finally:
        story.end_all()
    facts["left"] = story.descendants()
    (folder / "story.json").write_text(json.dumps(facts, indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
