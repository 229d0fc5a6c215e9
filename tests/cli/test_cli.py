"""The command line as a user meets it: real processes."""

import importlib
import re
import sys
from dataclasses import replace

import numpy as np
import pytest

from latte.cli import main
from latte.errors import refuse
from latte.methods.plugins import describe_failure
from latte.wire.task import describe_difference
from waiting import ROOT, latte, run


def test_help_names_every_command_and_loads_nothing_heavy():
    from latte.cli import COMMANDS

    text = latte("--help", check=True).stdout
    assert all(name in text for name in COMMANDS)
    code = "import sys\nfrom latte.cli import cli\ncli(['--help'], standalone_mode=False)\nprint('~', *sys.modules)"
    output = run(sys.executable, "-c", code, check=True).stdout
    assert not {"numpy", "rich", "jinja2", "torch"} & set(output.rpartition("~")[2].split())


def test_every_command_has_help():
    from latte.cli import COMMANDS

    for name in COMMANDS:
        assert "Usage: latte" in latte(name, "--help", check=True).stdout


def test_an_unknown_command_offers_near_ones():
    answer = latte("demmo")
    assert answer.returncode == 2 and "demo" in answer.stderr and not answer.stdout


def test_cli_page_is_up_to_date():
    script = ROOT / "tools" / "make_cli_docs.py"
    code = f"import runpy, sys; sys.stdout.write(runpy.run_path({str(script)!r})['page']())"
    page = run(sys.executable, "-c", code, check=True).stdout  # in a process of its own: click caches help options
    assert (ROOT / "docs" / "cli.md").read_text(encoding="utf-8") == page, "run: python tools/make_cli_docs.py"


def test_demo_in_a_folder_that_is_not_there(tmp_path):
    answer = latte("demo", "--out", "no/such/folder/page.html", cwd=tmp_path)
    assert answer.returncode == 2 and "no/such/folder" in answer.stderr and "Traceback" not in answer.stderr


# --- errors: a user's are one line, ours look like ours -------------------------------------------------------------


def numpy_bug(*_):
    np.zeros(2) + np.zeros(3)


@pytest.mark.parametrize("bug", [numpy_bug, lambda *_: {}["key"], lambda *_: importlib.import_module("no_such_module")])
def test_a_bug_of_ours_is_a_traceback_and_exit_code_70(bug, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("latte.data.catalogue.list_benchmarks", bug)
    with pytest.raises(SystemExit) as exit_:
        main(["data", "list", "--data", str(tmp_path)])
    printed = capsys.readouterr()
    assert exit_.value.code == 70 and not printed.out
    assert printed.err.startswith("Traceback") and "test_cli.py" in printed.err and "this is a bug" in printed.err


def test_a_refusal_is_one_line_and_exit_code_2(capsys, tmp_path):
    with pytest.raises(SystemExit) as exit_:
        main(["data", "show", "no-such-file", "--data", str(tmp_path)])
    assert exit_.value.code == 2 and capsys.readouterr().err.count("\n") == 1


def test_a_bug_in_a_worker_says_so_and_where():
    ours = {"__name__": "latte.somewhere", "np": np}
    exec(compile("def work():\n    np.zeros(2) + np.zeros(3)", "somewhere.py", "exec"), ours)
    with pytest.raises(ValueError, match="broadcast") as caught:
        ours["work"]()
    bug = caught.value.with_traceback(caught.value.__traceback__.tb_next)  # without the frame of this test
    assert re.match("a bug in latte, .*broadcast .*somewhere.py, line 2, in work", describe_failure(bug))
    assert "bug" not in describe_failure(refuse("beta", -1, "a positive number"))


# --- a task says whom it trusts -------------------------------------------------------------------------------


def create_task(path, *options):
    from click.testing import CliRunner

    from latte.cli.task import task
    from latte.wire.task import read_task

    answer = CliRunner().invoke(task, ["create", str(path), "--benchmark", "cifar10c-mini", *options])
    return answer, read_task(path) if answer.exit_code == 0 else None


@pytest.mark.parametrize(
    ("options", "trust"),
    [
        (("--method", "ristretto"), "open"),
        (("--method", "ristretto+eta=2"), "open"),
        (("--method", "ristretto", "--trust", "fleet"), "fleet"),
        (("--method", "ristretto+trust=fleet"), "fleet"),
        (("--method", "ristretto+trust=open", "--trust", "open"), "open"),
        (("--method", "latte"), None),
    ],
)
def test_a_served_task_is_open_unless_it_says_fleet(tmp_path, options, trust):
    from latte.methods import create
    from latte.server.hub.hub import served_exchange

    answer, made = create_task(tmp_path / "task", *options)
    assert made is not None and made.params.get("trust") == trust, answer.output
    client, exchange = create(made.method, made.zero_shot, made.params), served_exchange(made)
    if trust is not None:
        assert f"trust={trust}" in answer.output
        assert client.params.trust == exchange.params.trust == trust


@pytest.mark.parametrize(
    "options",
    [("--trust", "open"), ("--method", "ristretto+trust=fleet", "--trust", "open"), ("--method", "ristretto+trust=x")],
)
def test_a_trust_that_makes_no_sense_is_refused(tmp_path, options):
    answer, made = create_task(tmp_path / "task", *options)
    assert made is None and answer.exit_code != 0 and "trust" in str(answer.exception) + answer.output


def test_a_task_from_before_there_was_trust_is_a_fleet(tmp_path):
    from latte.server.hub.hub import served_exchange
    from latte.wire.task import parse_task

    _, made = create_task(tmp_path / "task", "--method", "ristretto")
    params = {name: value for name, value in made.params.items() if name not in ("trust", "approximation")}
    old = parse_task(replace(made, params=params).to_bytes())
    assert served_exchange(old).params.trust == "fleet" and "parameters" in describe_difference(
        old.fingerprint, made.fingerprint
    )
