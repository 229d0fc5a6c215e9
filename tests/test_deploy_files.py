"""The files of deploy/: units that systemd accepts, and command lines that the program accepts."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from latte.cli.commands import cli

DEPLOY = Path(__file__).parent.parent / "deploy"
UNITS = sorted(DEPLOY.glob("*.service"))


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_systemd_accepts_the_unit(unit, tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze")
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace("/opt/latte/bin/latte", sys.executable))
    done = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True)
    mine = [line for line in (done.stdout + done.stderr).splitlines() if unit.name in line]
    assert not mine, mine


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
