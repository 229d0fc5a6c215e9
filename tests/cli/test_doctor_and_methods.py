"""What is installed, what can be run, and what the help and the shell offer."""

import json
import sys

import pytest

import tiny_onnx
from latte.cli import doctor as installation
from latte.core.memory import NEAR_COPY
from latte.encoders.pictures import MOST_PIXELS
from latte.methods import METHODS, describe, resolve
from waiting import ROOT, latte, latte_process, run


def test_doctor_lists_every_extra_and_how_to_get_it(tmp_path):
    import tomllib

    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    state = json.loads(latte("doctor", "--json", check=True, LATTE_MODELS=str(tiny_onnx.FOLDER.parent)).stdout)
    assert {extra["name"] for extra in state["extras"]} == set(extras) - {"all", "docs", "test", "dev"}
    for extra in state["extras"]:
        assert extra["packages"] and extra["install"].startswith("pip install ")
    onnx = next(encoder for encoder in state["encoders"] if encoder["kind"] == "onnx")
    assert tiny_onnx.FOLDER.name in onnx["models"]
    assert state["devices"]["onnx"][0] == "CPUExecutionProvider"
    assert state["loops"] in ("compiled", "not compiled yet", "missing")


def test_doctor_for_people(tmp_path):
    (tmp_path / "mine.npz").touch()
    text = latte("doctor", check=True, LATTE_DATA=str(tmp_path), COLUMNS="200").stdout
    assert f"data folder: {tmp_path}, 1 embedding files" in text
    for words in ("extra", "onnxruntime", "encoder", "engine: ", "LATTE_ENCODER: not set"):
        assert words in text


def test_doctor_says_how_to_get_what_is_missing(monkeypatch):
    def absent(package):
        raise installation.PackageNotFoundError

    monkeypatch.setattr(installation, "version", absent)
    state = installation.inspect_installation()
    assert not any(map(installation.is_complete, state["extras"]))
    monkeypatch.setattr(installation, "requirements_of", lambda extra: [])
    assert not installation.is_complete(installation.inspect_installation()["extras"][0]), (
        "a checkout that was never installed"
    )


def test_another_onnxruntime_is_onnxruntime(monkeypatch):
    """onnxruntime-gpu brings the same module, and onnxruntime beside it would take its place."""

    def installed(package):
        if package == "onnxruntime":
            raise installation.PackageNotFoundError
        return "1.31"

    monkeypatch.setattr(installation, "version", installed)
    onnx = next(extra for extra in installation.inspect_installation()["extras"] if extra["name"] == "onnx")
    assert installation.is_complete(onnx) and onnx["packages"]["onnxruntime"] == "1.31 (onnxruntime-gpu)"


def test_doctor_names_packages_as_pip_knows_them(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    missing = {encoder["kind"]: encoder["missing"] for encoder in installation.inspect_installation()["encoders"]}
    assert missing["onnx"] == ["onnxruntime", "tokenizers", "pillow"]
    assert missing["openclip"] == ["torch", "pillow", "open_clip_torch"]


def test_methods_lists_every_method_with_parameters_presets_and_grid():
    cards = {card["name"]: card for card in json.loads(latte_process("methods", "--json", check=True).stdout)}
    assert set(cards) == {name for name in METHODS if describe(name).kind.__module__.startswith("latte.")}
    for name, card in cards.items():
        assert {p["name"]: p["default"] for p in card["parameters"]} == vars_of(resolve(name))
        assert set(card["presets"]) == set(describe(name).presets) and card["about"]
    assert cards["latte"]["presets"]["cifar10c"] == {"k_l": 12, "beta": 60.0}
    assert cards["dmn"]["grid"]["weight"][:2] == [0.001, 0.003]
    assert {"name": "alpha", "type": "float", "default": 1.0} in cards["latte"]["parameters"]


def vars_of(params):
    from dataclasses import asdict

    return asdict(params)


def test_methods_for_people_fit_the_terminal():
    done = latte("methods", check=True, COLUMNS="72")
    assert all(len(line) <= 72 for line in done.stdout.splitlines())
    assert "ristretto" in done.stdout and "latte methods NAME" in done.stderr
    detail = latte("methods", "latte", check=True, COLUMNS="72").stdout
    assert all(len(line) <= 72 for line in detail.splitlines()) and "docs/how-latte-works.md" in detail


def test_one_method_in_detail():
    text = latte("methods", "latte", check=True).stdout
    for words in ("near_copy", "float", "exp_weighted", "k_l=15 k_e=12", "latte tune tries: alpha 0.1"):
        assert words in text
    answer = latte("methods", "late")
    assert answer.returncode == 2 and "latte" in answer.stderr and "Traceback" not in answer.stderr


def test_methods_of_a_plugin():
    text = latte("methods", "mine", "--plugin", ROOT / "examples" / "own_method.py", check=True).stdout
    assert "strength" in text and "preset" in text and "strong" in text
    assert "PriorParams(" not in text, "what a dataclass says of itself is the table once more"


def test_a_plugin_s_class_says_what_it_is(tmp_path):
    plugin = tmp_path / "several.py"  # types are no strings here: no "from __future__ import annotations"
    plugin.write_text('''"""All my methods."""
from dataclasses import dataclass
from latte import Clip, register

@dataclass(frozen=True)
class Params:
    share: float = 0.5

class Own(Clip):
    """Zero-shot under another name."""
    Params = Params

register("own", f"{__name__}:Own")
''')
    text = latte("methods", "own", "--plugin", plugin, check=True).stdout
    assert text.startswith("Zero-shot under another name.") and "<class" not in text


def test_help_names_the_environment_variables_that_the_code_reads():
    import re

    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    text = latte("--help", check=True).stdout
    for name in set(re.findall(r"\bLATTE_[A-Z]+\b", sources)) - {"LATTE_COMPLETE"}:
        assert name in text and name in installation.VARIABLES
    assert "LATTE_ENCODER" in latte("classify", "--help", check=True).stdout


def test_numbers_in_the_options_are_those_of_the_library():
    text = latte("classify", "--help", check=True).stdout
    assert f"[default: {NEAR_COPY}" in " ".join(text.split()) and f"[default: {MOST_PIXELS}" in " ".join(text.split())


@pytest.mark.parametrize(("typed", "offered"), [("latte cla", "classify"), ("latte classify --me", "--memory")])
def test_the_shell_completes_commands_and_options(typed, offered):
    words = {"COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1), "_LATTE_COMPLETE": "bash_complete"}
    done = run(sys.executable, "-m", "latte", **words)
    assert f"plain,{offered}" in done.stdout.splitlines()
