"""``latte demo --fleet``: real processes and real HTTP give the simulator's labels, and leave nothing behind."""

import json
import os
import re
import shutil
import signal
import sys
from pathlib import Path

import httpx2
import numpy as np
import pytest

from latte.cli.demo import tally_row
from latte.demo.clients import demo_federation
from latte.simulation.simulator import Schedule, run_readable
from waiting import DEADLINE, ROOT, latte, run, running, wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="looks at processes in /proc"),
]


@pytest.fixture(scope="module")
def simulated():
    """The federation of the demo, and the labels that the simulator gives."""
    federation = demo_federation(0)
    outcome = run_readable(federation, "latte", schedule=Schedule(sync="doubling"))
    return federation, np.concatenate(outcome.labels)


def accuracy(federation, labels):
    return 100 * np.mean(labels == np.concatenate([federation.labels(client) for client in federation.clients]))


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_the_labels_are_those_of_the_simulator(simulated, tmp_path, precision):
    federation, expected = simulated
    command = ("demo", "--fleet", "--once", "--json", "--seconds", "0", "--devices", "2", "--precision", precision)
    done = latte(*command, cwd=tmp_path, check=True, TMPDIR=str(tmp_path))
    state = json.loads(done.stdout)
    labels = np.concatenate([state["labels"][client.name] for client in federation.clients])
    if precision == "fp32":
        assert np.array_equal(labels, expected)
        counts = [round(state[name] * state["images"] / 100) for name in ("adapted", "zero_shot")]
        assert tally_row(state["images"], *counts) in (ROOT / "docs" / "deploy.md").read_text("utf-8"), (
            "the last row of the page"
        )
    assert abs(accuracy(federation, labels) - accuracy(federation, expected)) <= 0.1
    assert state["adapted"] == pytest.approx(accuracy(federation, labels)) and state["adapted"] > state["zero_shot"] + 3
    assert list(tmp_path.iterdir()) == [], "no folder is left"


def below(pid):
    """Return the processes that a process started."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def gone(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def start(tmp_path, *options):
    command = (sys.executable, "-m", "latte", "demo", "--fleet", "--seconds", "3000", "--devices", "2", *options)
    return running(*command, cwd=tmp_path, TMPDIR=str(tmp_path))


def address_of(process):
    """Return the address, the admin's token and the guest's, as soon as they are printed."""
    pattern = r"dashboard: (\S+)/#token=([^&\s]+)\S*\n.*--token (\S+)"
    return wait_until(lambda: re.search(pattern, process.so_far().stderr), "the address", process).groups()


def fleet_at(address, token):
    answer = httpx2.get(f"{address}/v1/fleet", headers={"Authorization": f"Bearer {token}"}, timeout=DEADLINE)
    return answer.json()["fleet"]["sums"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_everything(tmp_path, number, code):
    with start(tmp_path) as process:
        address, token, _ = address_of(process)
        wait_until(lambda: fleet_at(address, token)["images"] > 0, "the first reports", process)
        children = below(process.pid)
        assert len(children) == 3 and len(list(tmp_path.glob("latte-fleet-*"))) == 1
        os.kill(process.pid, number)
        done = process.finish()
        assert done.returncode == code and "Traceback" not in done.stderr
        assert all(map(gone, children)) and list(tmp_path.iterdir()) == []


def test_ctrl_c_after_the_last_image_is_a_good_end(tmp_path):
    with start(tmp_path, "--seconds", "0") as process:
        wait_until(lambda: "stays until Ctrl-C" in process.so_far().stderr, "the last image", process)
        children = below(process.pid)
        os.kill(process.pid, signal.SIGINT)
        done = process.finish()
        assert done.returncode == 0 and "interrupted" not in done.stderr and "Traceback" not in done.stderr
        assert all(map(gone, children)) and list(tmp_path.iterdir()) == []


def test_nothing_survives_a_demo_that_is_killed(tmp_path):
    with start(tmp_path) as process:
        address, token, _ = address_of(process)
        wait_until(lambda: fleet_at(address, token)["images"] > 0, "the first reports", process)
        children = below(process.pid)
        process.kill()
        wait_until(lambda: all(map(gone, children)), "the end of the processes")
        wait_until(lambda: list(tmp_path.iterdir()) == [], "the end of the folder")


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGKILL])
def test_nothing_is_left_of_a_demo_that_ends_while_its_server_starts(tmp_path, number):
    with start(tmp_path) as process:
        wait_until(lambda: below(process.pid), "the process of the server", process)
        children = below(process.pid)
        os.kill(process.pid, number)
        wait_until(lambda: not process.alive() and all(map(gone, children)), "the end of the processes")
        wait_until(lambda: list(tmp_path.iterdir()) == [], "the end of the folder")


def test_the_server_of_a_demo_that_has_already_ended_removes_its_folder(tmp_path):
    folder = tmp_path / "latte-fleet-killed"
    folder.mkdir()  # its input is at its end before it starts, as when the demo is killed meanwhile
    run(sys.executable, "-m", "latte.demo.fleet", folder, "127.0.0.1", 0, cwd=tmp_path)
    assert not folder.exists()


def test_another_device_joins_with_one_command(tmp_path):
    with start(tmp_path) as process:
        address, admin, guest = address_of(process)
        everyone = len(demo_federation(0))  # the guest takes a second: it could be through before they have begun
        wait_until(lambda: fleet_at(address, admin)["images"] >= everyone, "the first uploads", process)
        done = latte("demo", "--join", address, "--token", guest, "--seconds", "0", cwd=tmp_path, check=True)
        rows = [[float(word.replace(",", "")) for word in line.split()] for line in done.stdout.splitlines()[1:]]
        assert "joined" in done.stderr and rows[-1][0] == rows[-1][0] // 1 > 100 and len(rows) >= 10
        answer = httpx2.get(
            f"{address}/v1/fleet?client=guest", headers={"Authorization": f"Bearer {admin}"}, timeout=DEADLINE
        ).json()
        assert answer["client"]["row"]["report"]["images"] > 0
        assert answer["client"]["helpers"], "the others help the guest"
        refused = latte("demo", "--join", address, "--token", admin, cwd=tmp_path)
        assert refused.returncode == 2 and "latte: token: " in refused.stderr


@pytest.fixture
def other_network():
    """A network namespace as another machine: its name, and the address at which it reaches this one."""
    name = f"latte-{os.getpid()}"
    ours, theirs = f"la{os.getpid()}", f"lb{os.getpid()}"
    steps = (
        f"netns add {name}", f"link add {ours} type veth peer name {theirs}", f"link set {theirs} netns {name}",
        f"addr add 198.18.77.1/24 dev {ours}", f"link set {ours} up",
        f"-n {name} addr add 198.18.77.2/24 dev {theirs}", f"-n {name} link set {theirs} up",
    )  # fmt: skip
    try:
        if shutil.which("ip") is None or any(run("ip", *step.split()).returncode for step in steps):
            pytest.skip("needs ip, and the right to make network namespaces")
        yield name, "198.18.77.1"
    finally:
        if shutil.which("ip") is not None:
            run("ip", "link", "del", ours)
            run("ip", "netns", "del", name)


def test_a_second_machine_joins_with_one_command(tmp_path, other_network):
    name, host = other_network
    with start(tmp_path, "--host", host) as process:
        address, admin, guest = address_of(process)
        assert address.startswith(f"http://{host}:")
        elsewhere = ("ip", "netns", "exec", name, sys.executable, "-m", "latte")
        done = run(*elsewhere, "demo", "--join", address, "--token", guest, "--seconds", 0, cwd=tmp_path, check=True)
        assert "joined" in done.stderr and len(done.stdout.splitlines()) >= 11
        assert fleet_at(address, admin)["clients"] >= 1


def test_a_port_that_is_taken_is_refused(tmp_path):
    with start(tmp_path) as process:
        address, _, _ = address_of(process)
        other = latte("demo", "--fleet", "--port", address.rpartition(":")[2], cwd=tmp_path, TMPDIR=str(tmp_path))
        assert other.returncode == 2 and "free on this machine" in other.stderr
        assert len(list(tmp_path.glob("latte-fleet-*"))) == 1


def test_options_that_do_not_go_together(tmp_path):
    for options in (("--join", "http://x"), ("--token", "x"), ("--fleet", "--join", "http://x", "--token", "y")):
        assert latte("demo", *options, cwd=tmp_path).returncode == 2
