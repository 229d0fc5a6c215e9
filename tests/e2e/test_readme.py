"""The README's commands are run, with a small model and a few pictures in the place of the reader's own."""

import re
import shlex

import numpy as np
import pytest

import tiny_onnx
from waiting import ROOT, latte


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
    for i in range(3):
        pixels = np.random.default_rng(i).integers(0, 256, (40, 40, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / "photos" / f"{i}.png")
    return tmp_path


def test_the_readme_has_the_commands_that_matter():
    assert {words[1] for words in commands()} >= {"demo", "classify", "run", "report"}


def test_every_command_of_the_readme_works(here):
    pytest.importorskip("onnxruntime")
    for words in commands():
        given = [f"onnx:{tiny_onnx.FOLDER}" if word.startswith("hf:") else word for word in words[1:]]
        answer = latte(*given, cwd=here)
        assert answer.returncode == 0, (words, answer.stderr)
    assert (here / "table.html").is_file() and (here / "report.html").is_file()
