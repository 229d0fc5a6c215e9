"""The examples of the README and the docs pass mypy --strict and pyright, as a user's code would."""

import doctest
import importlib.util
import sys

import pytest

from waiting import ROOT, run

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def source_of(page):
    """Return the statements of a page's examples; a call that is meant to fail may be wrong on purpose."""
    examples = doctest.DocTestParser().get_examples(page.read_text("utf-8"))
    return "".join(example.source for example in examples if example.exc_msg is None)


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    """Write every page with examples as a script."""
    folder = tmp_path_factory.mktemp("scripts")
    sources = {f"page_{page.stem.replace('-', '_')}.py": source_of(page) for page in PAGES}
    sources |= {path.name: path.read_text("utf-8") for path in EXAMPLES}
    for name, source in sources.items():
        if source:
            (folder / name).write_text(source)
    assert len(list(folder.iterdir())) >= 5
    return folder


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
