"""Real kills at many moments: whatever is left behind, the next call ends with the same bytes."""

from __future__ import annotations

import random
import signal
import sys
import time
from pathlib import Path

import pytest

from waiting import SUPPORT, latte, running, wait_until

PLUGIN = SUPPORT / "gated_method.py"  # its four items come last and wait: no run ends before it is stopped
METHODS = ("--methods", "clip,tda,tda-global,dmn,gated", "--seeds", "0-3")
COMMAND = ("run", "--benchmark", "cifar10c-mini", "--plugin", PLUGIN, *METHODS, "--runs", "runs")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs the children of a process in /proc"),
]


def start(folder):
    return running(sys.executable, "-m", "latte", *COMMAND, cwd=folder)


def finish(folder):
    (folder / "gate").touch()
    return latte(*COMMAND, cwd=folder, check=True).stdout, content(folder)


def content(folder):
    (run,) = (folder / "runs").iterdir()
    return {name: (run / name).read_bytes() for name in ("results.jsonl", "config.json", "done")}


def lines(folder):
    return sum(len(path.read_bytes().splitlines()) for path in (folder / "runs").glob("*/items.jsonl"))


def wait_for_lines(process, folder, count):
    wait_until(lambda: lines(folder) >= count, f"{count} results", process)


def children(process):
    """Return the identities of the child processes: their numbers, which may be used again, and when they began."""
    text = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    return [(pid, started) for pid in text.split() if (started := state(pid)[1])]


def state(pid):
    """Return the state of a process (Z: it has ended) and when it began; nothing if it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "Z", ""
    return fields[0], fields[19]


def gone(child):
    pid, started = child
    now, began = state(pid)
    return now == "Z" or began != started


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reference")
    return finish(folder)


def test_killed_at_random_moments_it_resumes_to_the_same_bytes(reference, tmp_path):
    moments = random.Random(7)
    left = []
    for attempt in range(5):
        with start(tmp_path) as process:
            wait_for_lines(process, tmp_path, 3 * attempt)  # some before the first result, some between two
            time.sleep(moments.uniform(0, 0.25))  # not to wait for anything: to hit another moment each time
            assert process.alive()
            left += children(process)
            process.kill()
    wait_until(lambda: all(map(gone, left)), "the workers to end with their parent")
    assert finish(tmp_path) == reference


def test_ctrl_c_loses_at_most_what_was_running(reference, tmp_path):
    with start(tmp_path) as process:
        wait_for_lines(process, tmp_path, 2)
        process.process.send_signal(signal.SIGINT)
        stopped = process.finish()
    assert stopped.returncode not in (0, 2) and "Traceback" not in stopped.stderr, stopped.stderr
    before = lines(tmp_path)
    assert before >= 2 and not list((tmp_path / "runs").glob("*/done"))
    assert finish(tmp_path) == reference
    assert lines(tmp_path) == 20, "nothing that was there is done twice"
