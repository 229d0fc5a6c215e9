"""The commands of docs/store.md do what the page says."""

import re
import shlex

from latte.checks.material import a_zero_shot, an_upload
from latte.edge.clients.http import HttpExchange
from latte.wire.task import read_task
from serving import server_process, serving, task_file
from waiting import ROOT, latte

ADDRESS = "postgresql://latte@db.example.org/latte"


def commands() -> list[list[str]]:
    page = (ROOT / "docs" / "store.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```console\n(.*?)```", page, re.DOTALL)
    return [shlex.split(line) for block in blocks for line in block.splitlines()]


def test_every_command_of_the_page_works(tmp_path, postgres):
    path = task_file(tmp_path, a_zero_shot())
    with serving(read_task(path), tmp_path / "data") as server, HttpExchange(server.address) as exchange:
        exchange.push("a", an_upload(1))
    url, seen = postgres.new_schema(), set()
    for program, group, *words in commands():
        assert program == "latte"
        words = [url if word == ADDRESS else word for word in words]
        seen.add((group, words[0] if group == "store" else "", url in words))
        if group == "serve":
            with server_process(path, tmp_path / words[2], *words[3:], cwd=tmp_path):
                pass
            continue
        answer = latte(group, *words, cwd=tmp_path)
        assert answer.returncode == 0, (words, answer.stderr)
        assert "1 client" in answer.stdout
    assert {("serve", "", True), ("store", "backup", True), ("store", "restore", False)} <= seen
