"""The example app: what travels to the nodes is the app and nothing else, and ``loopback.py`` notices who has ended."""

import os
import shutil
import signal
import socket
import sys
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest

from devices import make_task_file
from waiting import ROOT, SUPPORT, run, running, wait_until

pytest.importorskip("flwr", reason="needs the extra flower: pip install '.[flower]'")

pytestmark = pytest.mark.slow


def test_the_bundle_has_the_app_and_nothing_else(tmp_path):
    app = tmp_path / "app"
    shutil.copytree(ROOT / "examples" / "flower_app", app)
    installed = app / "deployment" / "flwr" / "apps" / "latte.latte-flower"
    installed.mkdir(parents=True)
    for path in (installed / "README.md", installed / "latte_flower.py", app / "deployment" / "config.toml"):
        path.write_text("")
    flwr = Path(sys.executable).with_name("flwr")
    run(flwr, "build", "--app", app, cwd=tmp_path, check=True, FLWR_HOME=str(tmp_path))
    (path,) = tmp_path.glob("*.fab")
    modules = {f"latte_flower/{name}.py" for name in ("__init__", "client_app", "server_app")}
    with zipfile.ZipFile(path) as bundle:
        assert set(bundle.namelist()) == {"pyproject.toml", "README.md", ".info/CONTENT", *modules}


def loopback(folder, port, nodes=1):
    """Return the command of the script; whatever Flower leaves behind ends with it."""
    script, task = ROOT / "examples" / "flower_app" / "loopback.py", make_task_file(folder)
    words = (folder / "deployment", "--task", task, "--nodes", nodes, "--port", port)
    return (sys.executable, SUPPORT / "adopt.py", sys.executable, script, *words)


def needs_tools():
    for tool in ("openssl", "ssh-keygen"):
        if shutil.which(tool) is None:
            pytest.skip(f"needs {tool}")


def test_a_superlink_that_cannot_start_ends_the_script(tmp_path):
    needs_tools()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        done = run(*loopback(tmp_path, taken.getsockname()[1]))
    assert done.returncode == 1 and "latte edge" not in done.stdout
    assert done.stderr.splitlines()[-1].startswith("superlink has ended (exit code ")


def test_a_supernode_that_is_killed_ends_the_script(tmp_path):
    needs_tools()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with running(*loopback(tmp_path, port)) as script:
        wait_until(lambda: "latte edge" in script.so_far().stdout, "the start of the deployment", script)
        os.kill(process_of("flower-supernode", tmp_path), signal.SIGKILL)
        done = script.finish()
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("supernode0 has ended (exit code -9): see ")


def process_of(program, folder):
    """Return the process of a program that has a folder among its arguments."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = path.read_text().split("\0")
            if any(word.endswith(program) for word in words[:2]) and any(str(folder) in word for word in words):
                return int(path.parent.name)
    raise AssertionError(f"no process {program}")


@pytest.mark.parametrize("text", [None, "no task"])
def test_a_task_that_cannot_be_read_is_refused_before_anything_starts(text, tmp_path):
    if text:
        (tmp_path / "task").write_text(text)
    script = ROOT / "examples" / "flower_app" / "loopback.py"
    done = run(sys.executable, script, tmp_path / "deployment", "--task", tmp_path / "task")
    assert done.returncode == 2 and "--task: " in done.stderr.splitlines()[-1]
    assert not (tmp_path / "deployment").exists()
