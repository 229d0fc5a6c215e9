"""A sweep on a Dask cluster of two real worker processes, one of which is killed midway."""

import json
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from waiting import DEADLINE, SUPPORT, latte, running, wait_until

pytest.importorskip("distributed")

pytestmark = pytest.mark.slow
CONNECT = "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT"
PLUGIN = SUPPORT / "gated_method.py"  # an item that waits: the worker that is killed is in the middle of it
SWEEP = ("sweep", "--benchmark", "cifar10c-mini", "--plugin", PLUGIN, "--methods", "latte,gated", "--seeds", "0-2")
SWEEP = (*SWEEP, "--over", "alpha=0.5,1", "--set", "engine=readable")


def dask(command, note, *arguments, cwd):
    """Start a part of the cluster, which is found through the file ``note``."""
    module = f"distributed.cli.dask_{command}"
    common = ("--host", "127.0.0.1", "--no-dashboard", "--scheduler-file", note)
    return running(sys.executable, "-m", module, *common, *arguments, cwd=cwd)


def address_in(note):
    try:
        return json.loads(note.read_text())["address"]
    except (OSError, ValueError):  # not there, or not all of it
        return None


@pytest.fixture
def cluster(tmp_path):
    """Yield (address, workers): a scheduler and two workers, each a process of its own without a nanny."""
    note = tmp_path / "scheduler.json"
    with ExitStack() as stack:
        scheduler = stack.enter_context(dask("scheduler", note, "--port", "0", cwd=tmp_path))
        address = wait_until(lambda: address_in(note), "the scheduler's address", scheduler)
        options = ("--no-nanny", "--nthreads", "1")
        yield address, [stack.enter_context(dask("worker", note, *options, cwd=tmp_path)) for _ in range(2)]


def results(folder: Path) -> dict[str, bytes]:
    return {path.parent.name: path.read_bytes() for path in folder.rglob("results.jsonl")}


def test_a_killed_worker_changes_nothing(cluster, tmp_path):
    address, workers = cluster
    command = (sys.executable, "-m", "latte", *SWEEP, "--runs", "away", "--executor", f"dask:{address}")
    with running(*command, cwd=tmp_path, **{CONNECT: f"{DEADLINE}s"}) as process:
        wait_until(lambda: any(results(tmp_path / "away").values()), "a result", process, *workers)
        hit = tmp_path / f"entered-{workers[0].pid}"
        wait_until(hit.exists, "the first worker to be in the middle of an item", process, *workers)
        workers[0].kill()
        (tmp_path / "gate").touch()
        away = process.finish()
    assert away.returncode == 0, away.stderr
    home = latte(*SWEEP, "--runs", "home", cwd=tmp_path, check=True)
    assert home.stdout == away.stdout.replace("away", "home")
    assert results(tmp_path / "away") == results(tmp_path / "home")
    assert len(results(tmp_path / "home")) == 2


def test_a_cluster_that_is_not_there(tmp_path):
    answer = latte(*SWEEP, "--executor", "dask:tcp://127.0.0.1:9", cwd=tmp_path, **{CONNECT: "1s"})
    assert answer.returncode == 2 and "does not answer" in answer.stderr and "Traceback" not in answer.stderr


def test_an_executor_that_is_none(tmp_path):
    answer = latte(*SWEEP, "--executor", "ray:somewhere", cwd=tmp_path)
    assert answer.returncode == 2 and "dask:ADDRESS" in answer.stderr
