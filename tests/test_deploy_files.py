"""The files of deploy/: units that systemd accepts, and command lines that the program accepts."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from ctypes.util import find_library
from pathlib import Path
from textwrap import dedent

import click
import pytest

from devices import ENCODER, end, make_task_file, recorded, said, write_pictures
from latte.cli.commands import cli
from waiting import run, running, wait_until

DEPLOY = Path(__file__).parent.parent / "deploy"
UNITS = sorted(DEPLOY.glob("*.service"))


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_systemd_accepts_the_unit(unit, tmp_path):
    needs_systemd_analyze()
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace("/opt/latte/bin/latte", sys.executable))
    done = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True)
    mine = [line for line in (done.stdout + done.stderr).splitlines() if unit.name in line]
    assert not mine, mine


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_a_unit_gives_the_program_little(unit):
    """`systemd-analyze security`: 0 is nothing, 10 is everything; a unit without a word about it has 9.6."""
    needs_systemd_analyze()
    words = ("systemd-analyze", "security", "--offline=true", "--no-pager", unit)
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert float(re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)[1]) < 4.0, done.stdout


def test_the_programs_work_with_what_their_units_allow(tmp_path):
    """A server and a device with an ONNX encoder, each with the system calls of its unit and no others."""
    needs_systemd_analyze()
    for package in ("onnxruntime", "tokenizers", "PIL"):
        pytest.importorskip(package)
    if find_library("seccomp") is None:
        pytest.skip("needs libseccomp")
    task, pictures = make_task_file(tmp_path), write_pictures(tmp_path / "pictures", 9)
    with running(*with_calls_of("latte-serve", "serve", task, "--data", tmp_path / "data", "--port", 0)) as server:
        begun = wait_until(lambda: re.search(r"latte serves (\S+)", server.so_far().stdout), "the server", server)
        state, address = tmp_path / "state", begun[1].replace("127.0.0.1", "localhost")  # a name is looked up
        words = ("--server", address, "--state", state, "--encoder", ENCODER, "--watch", pictures[0].parent)
        with running(*with_calls_of("latte-edge", "edge", *words)) as device:
            wait_until(lambda: recorded(state) == 9 and said(state).synced, "nine answers and a sync", device, server)
            end(device)
        end(server)


def with_calls_of(unit, *words):
    """Return the command that runs the program with the system calls that a unit allows."""
    script = DEPLOY.parent / "tests" / "unit_sandbox.py"
    return (sys.executable, script, DEPLOY / f"{unit}.service", sys.executable, "-m", "latte", *words)


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_a_unit_keeps_out_what_it_says(unit):
    """The filter of the test above refuses: it is not one that lets everything pass."""
    needs_systemd_analyze()
    if find_library("seccomp") is None:
        pytest.skip("needs libseccomp")
    script = """
        import ctypes, mmap, socket, threading
        socket.socket(socket.AF_INET6), mmap.mmap(-1, 4096, prot=3), threading.Thread(target=print).start()
        tries = (lambda: socket.socket(socket.AF_NETLINK), lambda: mmap.mmap(-1, 4096, prot=7))
        for attempt in tries:
            try:
                attempt()
            except PermissionError:
                continue
            raise SystemExit("allowed")
        library = ctypes.CDLL(None)
        assert library.unshare(0x10000000) == library.mount(b"none", b"/mnt", b"tmpfs", 0, None) == -1
    """
    run(
        sys.executable,
        DEPLOY.parent / "tests" / "unit_sandbox.py",
        unit,
        sys.executable,
        "-c",
        dedent(script),
        check=True,
    )


def needs_systemd_analyze():
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze")


def command_lines():
    """Yield every call of the program in deploy/, as words behind ``latte``."""
    for unit in UNITS:
        text = unit.read_text().replace("\\\n", " ")
        yield shlex.split(re.search(r"^ExecStart=\S+ (.*)$", text, re.M)[1])
    compose = (DEPLOY / "compose.yaml").read_text()
    yield from (shlex.split(line) for line in re.findall(r"command: (edge .*)$", compose, re.M))
    folded = re.search(r"command: >-\n((?: {4}.*\n)+)", compose)[1]
    yield shlex.split(folded.replace("\n", " "))


@pytest.mark.parametrize("words", list(command_lines()), ids=lambda words: words[0])
def test_the_program_knows_every_option(words):
    command = cli.get_command(click.Context(cli), words[0])
    assert command is not None, words
    known = {name for parameter in command.params for name in parameter.opts + parameter.secondary_opts}
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in [*command.list_commands(context), "run"]:
            if sub := command.get_command(context, name):
                known |= {option for parameter in sub.params for option in parameter.opts}
    used = {word.partition("=")[0] for word in words if word.startswith("--")}
    assert used <= known, used - known


def test_compose_has_what_the_page_says():
    text = (DEPLOY / "compose.yaml").read_text()
    assert re.findall(r"^  (\S+):$", text[text.index("services:") : text.index("\nvolumes:")], re.M) == [
        "database", "token", "server-1", "server-2", "device-1", "device-2", "device-3",
    ]  # fmt: skip


def test_the_devices_of_compose_may_read_their_tokens(tmp_path):
    """A token file is for its owner's eyes, and the devices do not run as root."""
    compose = (DEPLOY / "compose.yaml").read_text()
    script = re.search(r"      - >-\n((?: {8}.*\n)+)", compose)[1].replace("\n", " ").replace("$$", "$")
    calls = tmp_path / "calls"
    for name in ("latte", "chown"):
        (tmp_path / name).write_text(
            f"""#!/bin/sh
echo {name} "$@" >> {calls}
for last; do :; done
[ {name} = chown ] || touch "$last"
"""
        )
        (tmp_path / name).chmod(0o755)
    run("sh", "-c", script.replace("/secrets", str(tmp_path)), check=True, PATH=f"{tmp_path}:{os.environ['PATH']}")
    made, given = [], []
    for words in map(shlex.split, calls.read_text().splitlines()):
        (made if words[0] == "latte" else given).append(words)
    assert [words[3] for words in made] == ["--admin", "device-1", "device-2", "device-3"]
    user = re.search(r"^USER (\S+)$", (DEPLOY / "Containerfile").read_text(), re.M)[1]
    assert given == [["chown", user, *(str(tmp_path / f"device-{number}.token") for number in (1, 2, 3))]]
