"""A deployment on loopback in which much goes wrong: python tests/support/flower_story.py FOLDER.

One SuperLink with TLS, three SuperNodes with keys, three devices. Node 2 joins late; node 1 and its device are killed
and started again; the SuperLink is killed and started again; a node with an unknown key wants to join. Devices get
their pictures from here, so that what each has learnt at every sync is known. What happened goes to FOLDER/story.json.

It touches no network but 127.0.0.1. Flower's apps outlive the processes that started them: adopt.py ends them.
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
from contextlib import closing
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests" / "support"), str(ROOT / "examples" / "flower_app")]

from loopback import Loopback, Processes  # noqa: E402

import devices  # noqa: E402
from latte.edge.clients.folder import ExchangeFolder  # noqa: E402
from latte.edge.device.device import STATUS_EVERY  # noqa: E402
from latte.edge.device.record import open_record, read_status  # noqa: E402

PATIENCE = 240.0  # seconds for any one step: a hang becomes a failure that shows the logs
PARK = 20.0  # seconds: shorter, and most of the time goes into starting apps
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
        self.processes = Processes(self.deployment)
        self.lists: dict[int, int] = {}
        self.fed: dict[int, int] = {}
        self.pictures = {
            node: devices.write_pictures(folder / f"pictures{node}", 20, first=100 * node) for node in range(3)
        }
        self.acknowledged: dict[int, int] = {}
        self.begin = time.monotonic()
        self.seconds: dict[str, float] = {}

    def note(self, what: str) -> None:
        """Note when something had happened: seconds since the begin."""
        self.seconds[what] = round(time.monotonic() - self.begin, 1)

    def log(self, name: str) -> str:
        return self.processes.log(name).read_text(errors="replace")

    def kill(self, name: str) -> None:
        """End a process as a power cut does."""
        self.processes.end(name, number=signal.SIGKILL)

    # --- Flower -----------------------------------------------------------------------------------------------

    def call(self, command: list[str]) -> str:
        """Run a command until the SuperLink answers it."""

        def attempt() -> str:
            done = subprocess.run(command, env=self.deployment.environment(), capture_output=True, text=True)
            return done.stdout if done.returncode == 0 else ""

        return self.wait_for(attempt, " ".join(command), pause=1.0)

    def start_superlink(self) -> None:
        self.processes.start("superlink", self.deployment.superlink())
        wait_for_port(self, self.ports[0])

    def start_node(self, node: int) -> None:
        """Start a SuperNode; one that is refused because it was there a moment ago is started again."""
        self.processes.start(f"supernode{node}", self.deployment.supernode(node, self.ports[1 + node % 5]))

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
            f"folder:{folder}", self.state(node), f"device {node}", "--precision", "exact",
            "--sync-seconds", 0, "--sync-pause", 0, "--threads", 1, "--from", fifo,
        )  # fmt: skip
        self.processes.start(f"device{node}", [str(word) for word in command])

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
        images, names = self.fed[node], (f"device{node}", f"supernode{node}")
        what = f"sync of node {node} after {images} pictures"
        self.wait_for(lambda: self.status(node).sync_images >= images, f"a {what}", *names)
        time.sleep(3 * STATUS_EVERY)  # an idle device looks more often whether something has come, and takes it over
        answer = ExchangeFolder(self.deployment.node_folder(node)).answer()
        assert answer is not None and not answer.code, answer
        self.acknowledged[node] = answer.version
        self.note(what)

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
            ended = [name for name in names if not self.processes.alive(name)]
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
    begin_with_two(story)
    lose_a_node(story)
    gain_a_node(story)
    lose_the_server(story)
    get_the_node_back(story)


def begin_with_two(story: Story) -> None:
    story.start_superlink()
    for node in range(3):
        story.call(story.deployment.register(node))
    for node in (0, 1, STRANGER):
        story.start_node(node)
    story.start_run()
    story.note("run")
    for node in (0, 1):
        story.start_device(node)
    story.feed(1, 4)
    story.wait_for_sync(1)


def lose_a_node(story: Story) -> None:
    """Kill node 1 and its device; Flower refuses a node that was there within the last minute, so this comes early."""
    story.feed(1, 2)  # learnt, recorded, and not synced
    story.kill("supernode1")
    story.kill("device1")
    story.feed(0, 4)
    story.wait_for_sync(0)


def gain_a_node(story: Story) -> None:
    story.start_node(2)  # a late joiner
    story.feed(0, 4)
    story.wait_for_sync(0)
    story.start_device(2)
    story.feed(2, 4)
    story.wait_for_sync(2)
    story.wait_for(lambda: not story.processes.alive(f"supernode{STRANGER}"), "the refusal of the stranger")


def lose_the_server(story: Story) -> None:
    before = story.stored()
    story.kill("superlink")
    story.feed(0, 4)  # a device works on without a server
    story.start_superlink()
    story.start_run()
    story.note("second run")
    story.start_device(1)
    start_again(story, 1)
    story.note("node 1 is accepted again")
    story.wait_for_sync(0)
    after = story.stored()
    assert all(after[name] >= version for name, version in before.items()), (before, after)


def get_the_node_back(story: Story) -> None:
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
        if not story.processes.alive(name):
            time.sleep(1.0)
            story.kill(name)
            story.start_node(node)
        return False

    story.wait_for(accepted, f"node {node} to be accepted again")


def main(folder: Path) -> None:
    story = Story(folder)
    try:
        tell(story)
        story.processes.end(*(f"device{node}" for node in range(3)))
        story.note("all")
        ids = story.node_ids()
        facts = {
            "ids": ids,
            "acknowledged": {ids[node]: version for node, version in story.acknowledged.items()},
            "stored": story.stored(),
            "seconds": story.seconds,
            "stranger": story.log(f"supernode{STRANGER}"),
            "superlink": [line for line in story.log("superlink").splitlines() if "ERROR" in line or "WARN" in line],
        }
        (folder / "story.json").write_text(json.dumps(facts, indent=1))
    finally:
        for name in story.processes:
            story.kill(name)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
