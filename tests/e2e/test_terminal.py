"""Tables on a real terminal: they fit its width; a pipe gets every row in one line."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import sys
import termios

import pytest

from waiting import DEADLINE, ROOT, latte

RUN = ("run", "--benchmark", "cifar10c-mini", "--methods", "clip,tda,latte:cifar10c", "--seeds", "0-1")


def on_terminal(columns: int, *arguments: object) -> list[str]:
    """Run the command with its results on a terminal of ``columns`` and return the lines that it shows."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    variables = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    command = [sys.executable, "-m", "latte", *map(str, arguments)]
    environment = {**variables, "PYTHONPATH": str(ROOT / "src")}
    process = subprocess.Popen(command, stdout=slave, stderr=subprocess.DEVNULL, env=environment)
    os.close(slave)
    content = b""
    while select.select([master], [], [], DEADLINE)[0]:
        try:
            part = os.read(master, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        content += part
    os.close(master)
    assert process.wait(DEADLINE) == 0
    return content.decode().replace("\r\n", "\n").splitlines()


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs")
    latte(*RUN, "--runs", out)
    return out


@pytest.mark.parametrize("columns", [80, 120])
def test_a_run_and_its_report_fit(runs, columns):
    for arguments in ((*RUN, "--runs", runs), ("report", runs)):
        lines = on_terminal(columns, *arguments)
        assert max(map(len, lines)) <= columns
        heads = [line for line in lines if line.startswith(("benchmark", "method"))]
        assert len(heads) > 1 and sum("tda" in line or "TDA" in line for line in lines) >= len(heads)


def test_a_pipe_gets_whole_rows(runs):
    lines = latte(*RUN, "--runs", runs).stdout.splitlines()
    assert len(lines) == 4 and lines[0].split()[-2:] == ["first_quarter", "last_quarter"]
    rows = json.loads(latte(*RUN, "--runs", runs, "--json").stdout)
    assert [f"{row['worst_client']:.2f}" for row in rows] == [line.split()[9] for line in lines[1:]]
    assert max(map(len, latte("report", runs, "--width", 90).stdout.splitlines())) <= 90
