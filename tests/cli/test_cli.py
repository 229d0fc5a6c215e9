"""The command line as a user meets it: real processes."""

import sys
from importlib.util import module_from_spec, spec_from_file_location

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
    script = ROOT / "scripts" / "make_cli_docs.py"
    code = f"import runpy, sys; sys.stdout.write(runpy.run_path({str(script)!r})['page']())"
    page = run(sys.executable, "-c", code, check=True).stdout  # in a process of its own: click caches help options
    assert (ROOT / "docs" / "cli.md").read_text(encoding="utf-8") == page, "run: python scripts/make_cli_docs.py"


def test_demo_in_a_folder_that_is_not_there(tmp_path):
    answer = latte("demo", "--out", "no/such/folder/page.html", cwd=tmp_path)
    assert answer.returncode == 2 and "no/such/folder" in answer.stderr and "Traceback" not in answer.stderr


def test_results_page_is_up_to_date():
    spec = spec_from_file_location("make_results_page", ROOT / "scripts" / "make_results_page.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.TARGET.read_text(encoding="utf-8") == module.page(), "run: python scripts/make_results_page.py"
