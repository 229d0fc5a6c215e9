"""Real kills at many moments: whatever is left behind, the next call ends with the same bytes."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
METHODS = ("--methods", "clip,tda,tda-global,dmn", "--seeds", "0-3")
COMMAND = ("run", "--benchmark", "cifar10c-mini", *METHODS, "--out", "runs")
pytestmark = pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs the children of a process in /proc")


def start(folder):
    variables = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "latte", *COMMAND]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=folder, env=variables, stdout=pipe, stderr=pipe, text=True)


def finish(folder):
    process = start(folder)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return output, content(folder)


def content(folder):
    (run,) = (folder / "runs").iterdir()
    return {name: (run / name).read_bytes() for name in ("results.jsonl", "config.json", "done")}


def lines(folder):
    return sum(len(path.read_bytes().splitlines()) for path in (folder / "runs").glob("*/items.jsonl"))


def wait_for_lines(process, folder, wanted):
    while process.poll() is None and lines(folder) < wanted:
        time.sleep(0.01)


def children(process):
    text = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    return [int(pid) for pid in text.split()]


def gone(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reference")
    return finish(folder)


def test_killed_at_random_moments_it_resumes_to_the_same_bytes(reference, tmp_path):
    moments = random.Random(7)
    killed, left = 0, []
    for attempt in range(5):
        process = start(tmp_path)
        wait_for_lines(process, tmp_path, 3 * attempt)  # some before the first result, some between two
        time.sleep(moments.uniform(0, 0.25))
        if process.poll() is None:
            left += children(process)
            process.kill()
            killed += 1
        process.communicate()
    assert killed >= 3, "too quick to be killed: the test would show nothing"
    deadline = time.monotonic() + 20
    while not all(map(gone, left)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert all(map(gone, left)), "a worker outlived its parent"
    assert finish(tmp_path) == reference


def test_ctrl_c_loses_at_most_what_was_running(reference, tmp_path):
    process = start(tmp_path)
    wait_for_lines(process, tmp_path, 2)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode not in (0, 2) and "Traceback" not in errors, errors
    kept = lines(tmp_path)
    assert kept >= 2 and not list((tmp_path / "runs").glob("*/done"))
    output, after = finish(tmp_path)
    assert (output, after) == reference
    assert lines(tmp_path) == 16, "nothing that was kept is done twice"
