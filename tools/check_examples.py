"""The examples of README.md, docs/ and examples/ pass mypy --strict and pyright, as a user's code would.

So does tests/types/, which says what the two make of the public API.

python tools/check_examples.py
"""

import doctest
import re
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^([ ]*)```(?:python|py)[^\n]*\n(.*?)^\1```", re.M | re.S)
TOOLS = (
    ("mypy", "--strict", f"--cache-dir={ROOT / '.mypy_cache'}"),
    ("pyright", "--level", "error", "--pythonpath", sys.executable),
)


def source_of(page: Path) -> str:
    """Return the statements of a page in order: those of its plain blocks, and those of its examples with ``>>>``.

    A call that is meant to fail may be wrong.
    """
    text = page.read_text("utf-8")
    parts = [(match.start(), textwrap.dedent(match[2])) for match in BLOCK.finditer(text) if ">>> " not in match[2]]
    starts = [0, *(match.end() for match in re.finditer("\n", text))]
    examples = [example for example in doctest.DocTestParser().get_examples(text) if example.exc_msg is None]
    parts += [(starts[example.lineno], example.source) for example in examples]
    return "".join(source for _, source in sorted(parts))


def script_name(path: Path) -> str:
    """Return a name that no other page or example has; a page may import an example by its own name."""
    if path.parent == ROOT / "examples":
        return path.name
    return re.sub(r"\W", "_", str(path.relative_to(ROOT).with_suffix(""))) + ".py"


def main() -> int:
    pages = {path: source_of(path) for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]}
    whole = [*sorted((ROOT / "examples").rglob("*.py")), *sorted((ROOT / "tests" / "types").glob("*.py"))]
    sources = pages | {path: path.read_text("utf-8") for path in whole}
    with tempfile.TemporaryDirectory() as folder:
        scripts = [Path(folder) / script_name(path) for path, source in sources.items() if source]
        for script, source in zip(scripts, filter(None, sources.values()), strict=True):
            script.write_text(source, encoding="utf-8")
        print(f"{len(scripts)} pages and examples")
        return max(subprocess.run([sys.executable, "-m", *tool, *scripts], cwd=folder).returncode for tool in TOOLS)


if __name__ == "__main__":
    sys.exit(main())
