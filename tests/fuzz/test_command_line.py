"""A sample of the damaged files through the command line: exit code 2 and one line, or the file is read."""

from __future__ import annotations

import numpy as np
import pytest

from fuzz.formats import FORMATS
from latte.cli import main
from waiting import latte

SAMPLE = 40
COMMANDS = {
    "npz": ("data", "show", "FILE"),
    "npz, stored": ("data", "convert", "FILE", "FOLDER/out.safetensors"),
    "embeddings": ("data", "show", "FILE"),
    "results, unfinished": ("report", "PARENT"),
    "results, done": ("report", "PARENT", "--format", "json"),
    "items": ("report", "PARENT", "--format", "markdown"),
    "config.json": ("report", "PARENT", "--format", "html", "--out", "FOLDER/report.html"),
    "manifest.json": ("report", "PARENT", "--format", "html", "--out", "FOLDER/report.html"),
    "diagnosis.json": ("report", "PARENT", "--format", "html", "--out", "FOLDER/report.html"),
    "sweep.json": ("report", "PARENT", "--format", "html", "--out", "FOLDER/report.html"),
    "done": ("diagnose", "PARENT"),
    "model.json": ("classify", "x.png", "--classes", "a,b", "--encoder", "onnx:PARENT"),
    "tuned": ("run", "--benchmark", "cifar10c-mini", "--methods", "latte", "--tuned", "FILE", "--dry-run"),
    "TOML": ("run", "FILE", "--dry-run"),
    "templates": ("classify", "x.png", "--classes", "a,b", "--encoder", "onnx:nowhere", "--templates", "FILE"),
}
CHOSEN = [form for form in FORMATS if form.name in COMMANDS]


def command(form, path, folder):
    words = {"FILE": str(path), "PARENT": str(path.parent), "FOLDER": str(folder)}
    arguments = list(COMMANDS[form.name])
    for word, value in words.items():
        arguments = [argument.replace(word, value) for argument in arguments]
    return arguments


@pytest.mark.parametrize("form", CHOSEN, ids=lambda form: form.name)
def test_a_damaged_file_is_one_line_and_exit_code_2(form, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.png").write_bytes(b"")
    path = form.make(tmp_path)
    sound, codes = path.read_bytes(), []
    for seed in range(SAMPLE):
        rng = np.random.default_rng([7, seed])
        path.write_bytes(form.damages[seed % len(form.damages)](rng, sound))
        with pytest.raises(SystemExit) as ended:
            main(command(form, path, tmp_path))
        codes.append(ended.value.code or 0)
        check(codes[-1], capsys.readouterr().err, seed)
    assert 2 in codes


def check(code, error, seed):
    assert code in (0, 2), f"seed {seed}: exit code {code}: {error}"
    assert "Traceback" not in error, f"seed {seed}: {error}"
    if code == 2:
        assert error.startswith("latte: ") and error.count("\n") == 1, f"seed {seed}: {error!r}"


def test_the_same_in_a_process_of_its_own(tmp_path):
    (form,) = [form for form in FORMATS if form.name == "npz"]
    path = form.make(tmp_path)
    path.write_bytes(path.read_bytes()[:-30])
    answer = latte("data", "show", path)
    assert answer.returncode == 2 and answer.stdout == ""
    check(2, answer.stderr, 0)
    assert str(path) in answer.stderr
