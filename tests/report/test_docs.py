"""The examples of docs/reports.md run."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs" / "reports.md"


def test_the_example_runs(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.S)
    names = {}
    exec(compile(code, str(DOCS), "exec"), names)
    # totals 45, 46.5 and 49.5, 51.75: gains 4.5 and 5.25, mean 4.875, half width 12.706 * 0.53033 / sqrt(2)
    assert "Latte − CLIP  +4.88 [+0.11, +9.64]" in capsys.readouterr().out
    assert names["page"].startswith("<!doctype html>")
