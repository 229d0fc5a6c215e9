"""Messages about missing packages give a line that works, wherever this package was installed from."""

import importlib.metadata
import re
import sys
import tomllib

import pytest

from latte import errors as extras
from waiting import ROOT, run

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
NAMED = re.compile(r"""(?:\bneed\("[\w.]+", |install_advice\()["']([a-z]+)""")
SOURCES = [path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py")]
USED = sorted({match[1] for source in SOURCES for match in NAMED.finditer(source)})


def test_the_extras_that_the_code_names_are_known():
    assert {"onnx", "torch", "report", "fast"} <= set(USED) <= set(PROJECT["optional-dependencies"])


@pytest.mark.parametrize("extra", USED)
def test_the_line_names_packages_and_not_this_one(extra):
    line = extras.pip_line(extra)
    assert line.startswith('pip install "') and "latte" not in line
    for requirement in PROJECT["optional-dependencies"][extra]:
        if not requirement.startswith("latte-tta"):
            name, _, version = requirement.partition(">=")
            assert re.search(rf'"{re.escape(name)}[^" ]*>={version}"', line), requirement


def test_each_package_is_named_once():
    names = [re.split("[<>=!~]", requirement)[0] for requirement in extras.requirements_of("export")]
    assert "torch" in names and len(names) == len(set(names))
    assert "torch>=2.6" in extras.requirements_of("export"), "the higher of two floors"


def test_the_page_on_installing_has_a_row_for_every_extra():
    page = (ROOT / "docs" / "installing.md").read_text(encoding="utf-8")
    listed = {name for row in re.findall(r"^\| (`.*?`) \|", page, re.M) for name in re.findall(r"`([a-z]+)`", row)}
    assert listed == set(PROJECT["optional-dependencies"])


def test_torch_comes_with_a_word_about_its_size():
    assert "CPU build" in extras.install_advice("torch") and "CPU build" not in extras.install_advice("onnx")


def test_clients_over_http_name_the_line_that_brings_what_they_need():
    call = "latte.HttpExchange('http://x')"
    code = f"import sys, latte; sys.modules['httpx2'] = None\ntry: {call}\nexcept ModuleNotFoundError as e: print(e)"
    assert "(the extra http)" in run(sys.executable, "-c", code, check=True).stdout


def test_a_checkout_that_was_never_installed(monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", missing)
    assert extras.pip_line("onnx") == 'pip install -e ".[onnx]"'


def test_no_page_and_no_message_needs_a_release():
    """`pip install latte-tta` finds nothing before the first release; drop this test with that release."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    examples = [path for path in (ROOT / "examples").rglob("*") if path.suffix in (".py", ".md", ".sh", ".conf")]
    for path in [*pages, *(ROOT / "src").rglob("*.py"), *examples]:
        assert not re.search(r'pip install "?latte-tta|latte-tta\[', path.read_text(encoding="utf-8")), path
