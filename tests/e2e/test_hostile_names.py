"""A benchmark with names full of control characters goes through the commands: every byte that comes out is clean."""

from __future__ import annotations

import base64
import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np
import pytest

import tiny_onnx
from hostile import CLASSES, DOMAINS, LABELS, check_clean, hostile_file
from latte.cli import main

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs a file system that takes any bytes as a name")
METHODS = f"{LABELS[0]}=clip,{LABELS[1]}=latte"
ENCODER = f"onnx:{tiny_onnx.FOLDER}"


def latte(*arguments, code=0):
    """Run a command and return what it printed to stdout; the raw bytes of both streams must be clean."""
    out, err = io.BytesIO(), io.BytesIO()
    text = [io.TextIOWrapper(raw, "utf-8", "strict", newline="", write_through=True) for raw in (out, err)]
    with redirect_stdout(text[0]), redirect_stderr(text[1]), pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    problem = check_clean(err.getvalue())
    assert (ended.value.code or 0) == code, problem
    return check_clean(out.getvalue()) if not code else problem


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return hostile_file(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def folder(data):
    """The folder of a run of two methods on two seeds."""
    out = data.parent / "runs"
    table = latte(
        "run", "--benchmark", data, "--methods", METHODS, "--engine", "readable", "--seeds", "0-1",
        "--set", "clients_per_domain=2", "--jobs", "1", "--runs", out, "--predictions",
    )  # fmt: skip
    assert len(table.splitlines()) == 3 and "l\\x1b[8mb<b>" in table
    return out


def test_data(data):
    assert "\\u2029[red]" in latte("data", "list", "--data", data.parent)
    shown = latte("data", "show", data)
    assert "@d\\x1b]0;x\\x07\\n|INJECTED\\u2028 24" in shown and "a\\x1b[31m\\x9b2J\\x7f, =cmd|" in shown
    assert len(shown.splitlines()) == 14
    facts = json.loads(latte("data", "show", data, "--json"))
    assert tuple(facts["classes"]) == CLASSES and tuple(facts["domains"]) == DOMAINS
    assert latte("data", "check", data).count("\n") == 1


@pytest.mark.parametrize("kind", ["text", "markdown", "latex", "json", "html"])
def test_report(folder, tmp_path, kind):
    printed = latte("report", folder, "--format", kind)
    latte("report", folder, "--format", kind, "--out", tmp_path / "out")
    assert check_clean((tmp_path / "out").read_bytes()) == printed
    assert "alert(1)</script>" not in printed and "\x1b" not in printed
    if kind == "markdown":
        assert "<b>" not in printed and "![" not in printed and "&lt;b&gt;" in printed and "[y](" not in printed
    if kind == "latex":
        assert "\\input" not in printed and "\\textbackslash{}input\\{x\\}" in printed
    if kind == "json":
        assert {row["method"] for row in json.loads(printed)[0]["rows"]} == set(LABELS)


def test_run_again_dry_and_as_json(data, folder):
    common = ("run", "--benchmark", data, "--methods", METHODS, "--engine", "readable", "--seeds", "0-1", "--jobs", "1")
    common += ("--set", "clients_per_domain=2", "--runs", folder)
    assert "there already" in latte(*common, "--dry-run")
    assert [row["method"] for row in json.loads(latte(*common, "--json"))] == list(LABELS)


def test_diagnose(folder, tmp_path):
    (run,) = folder.iterdir()
    assert "=cmd|' /C calc'!A0\\r\\nINJECTED" in latte("diagnose", run, "--out", tmp_path / "page.html")
    page = check_clean((tmp_path / "page.html").read_bytes())
    assert "&lt;script&gt;alert(1)" in page and "<script>alert" not in page
    found = json.loads(latte("diagnose", run, "--json"))
    assert tuple(one["name"] for one in found["classes"]) == CLASSES
    assert "<script>alert" not in latte("report", run, "--format", "html"), "the diagnosis is a section of it"


@pytest.mark.parametrize(
    "arguments",
    [
        ("\x1b[31m\udcff",), ("run", "--\x1b[31m\u202e"), ("run", "x\x1b", "y\x1b\n"), ("report", "\x1b\udcff"),
        ("run", "--benchmark", "\x1b\udcff.npz", "--methods", "clip"), ("data", "show", "no\x1b\u202e"),
        ("data", "show", "no\x1b\u202e\nINJECTED.npz"), ("data", "fetch", "\x1b"), ("sweep", "--over", "a\x1b=1\udcff"),
        ("run", "--benchmark", "cifar10c-mini", "--methods", "\x1b\n\udcff"), ("paper", "figure", "\x1b"),
        ("run", "--benchmark", "cifar10c-mini", "--methods", "clip", "--set", "\u202e=1"),
        ("run", "--benchmark", "cifar10c-mini", "--methods", "clip", "--plugin", "FOLDER/p\x1b\udcff.py"),
        ("classify", "no\x1b\nINJECTED", "--classes", "a,b", "--encoder", ENCODER),
        ("paper", "cost", "--encoder", "\x1b:\n"),
        ("classify", "FOLDER", "--classes", "a,b", "--encoder", "onnx:\x1b\nINJECTED"),
    ],
    ids=ascii,
)  # fmt: skip
def test_what_is_refused_is_repeated_safely(arguments, tmp_path):
    (tmp_path / "p\x1b\udcff.py").write_text("raise ValueError('\\x1b[31m\\nINJECTED')")
    (tmp_path / "a.png").write_text("x")
    problem = latte(*(argument.replace("FOLDER", str(tmp_path)) for argument in arguments), code=2)
    *usage, last = problem.splitlines()
    assert last.startswith(("latte: ", "Error: ")) and (not usage or usage[0].startswith("Usage: latte"))


@pytest.fixture
def pictures(tmp_path):
    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 256, (40, 40, 3), np.uint8)
    for domain in ("d\x1b[31m", "n\nINJECTED"):
        for name in ("cat", "d\u202eog"):
            place = tmp_path / "pictures" / domain / name
            place.mkdir(parents=True)
            with (place / "a\x07\udcfe.png").open("wb") as file:
                Image.fromarray(pixels).save(file, "png")
    return tmp_path / "pictures"


def test_classify_and_embed(pictures, tmp_path):
    pytest.importorskip("onnxruntime")
    common = ("classify", pictures, "--encoder", ENCODER, "--classes", "c\x1bat\u202e,dog")
    lines = latte(*common).splitlines()
    assert len(lines) == 5 and "n\\nINJECTED/cat/a\\x07\\udcfe.png" in lines[3], "a heading, and a line each"
    rows = [json.loads(line) for line in latte(*common, "--json").splitlines()]
    assert all(Path(os.fsdecode(base64.b64decode(row["file_base64"]))).is_file() for row in rows), "the name itself"
    assert all("\\xfe.png" in row["file"] and row["file"].encode() for row in rows), "no lone surrogate"
    assert {row["label"] for row in rows} <= {"c\x1bat\u202e", "dog"}
    assert "no UTF-8" in latte(*common[:-1], "c\udcff,dog", code=2)
    embed = ("embed", f"folder:{pictures}", "--encoder", ENCODER, "--views", "1", "--out", tmp_path / "e.safetensors")
    (pictures / "d\x1b[31m" / "cat" / "bad\x9b.png").write_text("x")
    assert "bad\\x9b.png" in latte(*embed, code=2)
    latte(*embed, "--skip-bad")
    assert "n\\nINJECTED 2" in latte("data", "show", tmp_path / "e.safetensors")


@pytest.mark.parametrize("locale", ["C", "C.UTF-8", "POSIX"])
def test_in_any_locale(data, locale):
    variables = {**os.environ, "LC_ALL": locale}
    command = [sys.executable, "-m", "latte", "data", "list", "--data", str(data.parent)]
    done = subprocess.run(command, env=variables, capture_output=True, check=True)
    assert "\\u2029" in check_clean(done.stdout) and not done.stderr


def test_a_bar_shows_its_label_as_it_is():
    from latte.cli.output import bar

    err = io.BytesIO()
    stream = io.TextIOWrapper(err, "utf-8", write_through=True)  # which closes err when it is collected
    with redirect_stderr(stream), bar("[/x]\x1b[8m\udcff\u202e", 1) as step:
        step(1)
    assert "[/x]\\x1b[8m\\udcff\\u202e" in check_clean(err.getvalue())
