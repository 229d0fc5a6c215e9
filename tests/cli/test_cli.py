"""The command line as a user meets it: real processes."""

import json
import re
import sys
from importlib.util import module_from_spec, spec_from_file_location

import pytest

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


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    return folder, latte("demo", cwd=folder, check=True)


def test_demo_prints_what_the_readme_shows(demo):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = re.search(r"<!-- demo -->\n```text\n(.*?)```", readme, re.DOTALL).group(1)
    assert demo[1].stdout == shown


def test_demo_writes_a_self_contained_page(demo):
    page = (demo[0] / "report.html").read_text(encoding="utf-8")
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", page)
    for words in ("Accuracy per domain", "Accuracy over time", "Who helps whom", "gaussian_noise"):
        assert words in page


def test_demo_as_json(tmp_path):
    rows = json.loads(latte("demo", "--json", cwd=tmp_path, check=True).stdout)
    assert len(rows) == 20 and rows[-1]["domain"] == "all"
    assert rows[-1]["gain"] == pytest.approx(rows[-1]["latte"] - rows[-1]["clip"])
    assert rows[-1]["ristretto_gain"] == pytest.approx(rows[-1]["ristretto"] - rows[-1]["clip"])


def test_demo_in_a_folder_that_is_not_there(tmp_path):
    answer = latte("demo", "--out", "no/such/folder/page.html", cwd=tmp_path)
    assert answer.returncode == 2 and "no/such/folder" in answer.stderr and "Traceback" not in answer.stderr


def test_results_page_is_up_to_date():
    spec = spec_from_file_location("make_results_page", ROOT / "scripts" / "make_results_page.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.TARGET.read_text(encoding="utf-8") == module.page(), "run: python scripts/make_results_page.py"
