"""A sweep on a Dask cluster of two real worker processes, one of which is killed midway."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("distributed")
SWEEP = ("sweep", "--benchmark", "cifar10c-mini", "--methods", "latte", "--seeds", "0-2", "--over", "alpha=0.5,1")
SWEEP = (*SWEEP, "--set", "engine=readable")  # slow enough to be hit


def latte(*arguments, cwd):
    return subprocess.Popen(
        [sys.executable, "-m", "latte", *arguments], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.fixture
def cluster(tmp_path):
    """Yield (address, workers): a scheduler and two workers, each a process of its own without a nanny."""
    note = tmp_path / "scheduler.json"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": tmp_path}
    variables = {**os.environ, "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "5"}
    dask = [
        sys.executable,
        "-m",
        "distributed.cli.dask_scheduler",
        "--host",
        "127.0.0.1",
        "--port",
        "0",
        "--no-dashboard",
    ]
    started = [subprocess.Popen([*dask, "--scheduler-file", str(note)], env=variables, **quiet)]
    try:
        wait_until(note.is_file)
        worker = [sys.executable, "-m", "distributed.cli.dask_worker", "--scheduler-file", str(note)]
        worker += ["--no-nanny", "--nthreads", "1", "--no-dashboard", "--host", "127.0.0.1"]
        started += [subprocess.Popen(worker, env=variables, **quiet) for _ in range(2)]
        yield json.loads(note.read_text())["address"], started[1:]
    finally:
        for process in reversed(started):
            process.kill()
            process.wait()


def wait_until(true, seconds=60):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


def results(folder: Path) -> dict[str, bytes]:
    return {path.parent.name: path.read_bytes() for path in folder.rglob("results.jsonl")}


def test_a_killed_worker_changes_nothing(cluster, tmp_path):
    address, workers = cluster
    away = latte(*SWEEP, "--out", "away", "--executor", f"dask:{address}", cwd=tmp_path)
    wait_until(lambda: any(path.read_bytes() for path in (tmp_path / "away").rglob("results.jsonl")) or away.poll())
    os.kill(workers[0].pid, signal.SIGKILL)
    output, errors = away.communicate(timeout=240)
    assert away.returncode == 0, errors
    home = latte(*SWEEP, "--out", "home", cwd=tmp_path)
    assert home.communicate(timeout=240)[0] == output.replace("away", "home") and home.returncode == 0
    assert results(tmp_path / "away") == results(tmp_path / "home")
    assert len(results(tmp_path / "home")) == 2


def test_a_cluster_that_is_not_there(tmp_path):
    process = latte(*SWEEP, "--executor", "dask:tcp://127.0.0.1:9", cwd=tmp_path)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 2 and "does not answer" in errors and "Traceback" not in errors


def test_an_executor_that_is_none(tmp_path):
    process = latte(*SWEEP, "--executor", "ray:somewhere", cwd=tmp_path)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 2 and "dask:ADDRESS" in errors
