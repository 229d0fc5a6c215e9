"""The README's commands are run, with a small model and a few pictures in the place of the reader's own."""

import re
import shlex
import sys
from contextlib import ExitStack

import numpy as np
import pytest

import tiny_onnx
from serving import server_process
from waiting import ROOT, latte, running, wait_until

ADDRESS = "http://127.0.0.1:8420"
PICTURES = 3


def commands() -> list[list[str]]:
    """Return every `latte` line of the README's console blocks, as words."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```console\n(.*?)```", readme, re.DOTALL)
    lines = [part.strip() for block in blocks for line in block.splitlines() for part in line.split("&&")]
    return [shlex.split(line) for line in lines if line.startswith("latte ")]


@pytest.fixture
def here(tmp_path):
    """A folder with what the commands expect: photos/."""
    from PIL import Image

    (tmp_path / "photos").mkdir()
    for i in range(PICTURES):
        pixels = np.random.default_rng(i).integers(0, 256, (40, 40, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / "photos" / f"{i}.png")
    return tmp_path


def test_the_readme_has_the_commands_that_matter():
    assert {words[1] for words in commands()} >= {"demo", "classify", "run", "report"}


def test_every_command_of_the_readme_works(here):
    pytest.importorskip("onnxruntime")
    with ExitStack() as open_servers:
        address = ""
        for words in commands():
            if words[1] == "demo":  # test_demo.py and the tests of the dashboard run it
                continue
            model = [f"onnx:{tiny_onnx.FOLDER}" if word.startswith(("hf:", "onnx:")) else word for word in words[1:]]
            given = [address if word == ADDRESS else word for word in model]
            if words[1] == "serve":
                address, _ = open_servers.enter_context(server_process(here / given[1], here / given[3], *given[4:]))
            elif "--watch" in words:
                answers_all(given, here)
            else:
                answer = latte(*given, cwd=here)
                assert answer.returncode == 0, (words, answer.stderr)
    assert (here / "table.html").is_file() and address


def answers_all(words, here) -> None:
    """Run a device that watches a folder, until it has answered every picture there."""
    with running(sys.executable, "-m", "latte", *words, cwd=here) as device:
        wait_until(lambda: len(device.so_far().stdout.splitlines()) == PICTURES, "an answer for each picture", device)


def test_the_tables_are_what_the_script_writes(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import make_readme as script

    pages = (script.README, script.RISTRETTO, script.CALIBRATION)
    readme, ristretto, calibration = (path.read_text(encoding="utf-8") for path in pages)
    assert script.filled(readme, "results", script.results_table()) == readme, "run: python tools/make_readme.py"
    assert script.filled(ristretto, "same syncs", script.ristretto_table()) == ristretto
    assert script.filled(calibration, "calibration", script.calibration_table()) == calibration


def test_the_results_have_every_set_and_the_losses(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import make_readme as script

    measured = {path.stem for path in script.RESULTS.glob("*.json") if not path.stem.endswith(".manifest")}
    assert measured == set(script.SETS)
    assert "▼" in script.results_table() and "SUN397" in script.results_table()


def test_gains_and_losses_are_counted_by_the_wider_interval(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import make_readme as script

    pair = {"mean": -1.0, "low": -1.7, "high": -0.3, "image_low": None, "image_high": None}
    assert script.shown(pair).endswith("▼")
    assert "▼" not in script.shown(pair | {"image_low": -2.3, "image_high": 0.4})
    measured = [script.Measured(name).gain(label) for name in script.SETS for label in ("Latte", "Ristretto")]
    assert all(pair["seeds"] == 10 and pair["image_low"] is not None for pair in measured)
    assert all(pair["image_low"] <= pair["low"] and pair["high"] <= pair["image_high"] for pair in measured)
