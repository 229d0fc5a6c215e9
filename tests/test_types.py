"""The examples of the README and the docs pass mypy --strict and pyright, as a user's code would."""

import doctest
import importlib.util
import re
import sys
import textwrap

import pytest

from waiting import ROOT, run

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))
BLOCK = re.compile(r"^([ ]*)```(?:python|py)[^\n]*\n(.*?)^\1```", re.M | re.S)


def source_of(page):
    """Return the statements of a page, those of its plain blocks and those of its examples with ``>>>``, in order."""
    text = page.read_text("utf-8")
    plain = [(match.start(), textwrap.dedent(match[2])) for match in BLOCK.finditer(text) if ">>> " not in match[2]]
    return "".join(source for _, source in sorted([*plain, *session_parts(text)]))


def session_parts(text):
    """Return (position, statement) of the examples with ``>>>``; a call that is meant to fail may be wrong."""
    starts = [0, *(match.end() for match in re.finditer("\n", text))]
    examples = doctest.DocTestParser().get_examples(text)
    return [(starts[example.lineno], example.source) for example in examples if example.exc_msg is None]


def module_name(path):
    """Return the name of a script that no other page or example has; a page may import an example by its own name."""
    if path.parent == ROOT / "examples":
        return path.name
    return re.sub(r"\W", "_", str(path.relative_to(ROOT).with_suffix(""))) + ".py"


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    """Write every page with examples as a script."""
    folder = tmp_path_factory.mktemp("scripts")
    sources = {module_name(page): source_of(page) for page in PAGES}
    sources |= {module_name(path): path.read_text("utf-8") for path in EXAMPLES}
    for name, source in sources.items():
        if source:
            (folder / name).write_text(source)
    return folder


def test_every_kind_of_example_is_there(scripts):
    names = {path.name for path in scripts.iterdir()}
    assert {
        "README.py",
        "docs_reports.py",
        "docs_tutorials_your_own_method.py",
        "docs_tutorials_your_own_data.py",
    } <= names
    assert {"own_method.py", "examples_flower_app_latte_flower_client_app.py"} <= names
    assert "build_table" in (scripts / "docs_reports.py").read_text(), "plain blocks, too"


@pytest.mark.parametrize("tool", ["mypy", "pyright"])
def test_examples(scripts, tool):
    if importlib.util.find_spec(tool) is None:
        pytest.skip(f"{tool} is not installed")
    command = {
        "mypy": ("-m", "mypy", "--strict", "--no-incremental"),
        "pyright": ("-m", "pyright", "--pythonpath", sys.executable),
    }[tool]
    done = run(sys.executable, *command, *sorted(scripts.iterdir()), cwd=scripts)
    assert done.returncode == 0, done.stdout


def test_a_wrong_example_is_noticed(tmp_path):
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is not installed")
    (tmp_path / "wrong.py").write_text('from latte import ZeroShot\n\nZeroShot("text", 3)\n')
    done = run(sys.executable, "-m", "mypy", "--strict", "--no-incremental", tmp_path / "wrong.py", cwd=tmp_path)
    assert done.returncode == 1 and "arg-type" in done.stdout
