"""The notebook of examples/: its cells run in order, and show what the file shows."""

import importlib
import json

import pytest

from waiting import ROOT

pytestmark = pytest.mark.slow


def texts(notebook):
    """Return what each cell shows: its texts, and a word for each figure."""
    for cell in notebook["cells"]:
        data = [{"text/plain": output.get("text", "")} | output.get("data", {}) for output in cell.get("outputs", [])]
        yield ["figure" if "image/png" in one else "".join(one["text/plain"]) for one in data]


def test_its_cells_run_and_show_what_it_shows(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    monkeypatch.chdir(tmp_path)
    program = importlib.import_module("make_notebook")
    written = json.loads(program.NOTEBOOK.read_text(encoding="utf-8"))
    assert list(texts(program.run_cells(written))) == list(texts(written)), "run: python tools/make_notebook.py"
    assert sum(shown == ["figure"] for shown in texts(written)) == 1
    assert (tmp_path / "memory.npz").is_file()
