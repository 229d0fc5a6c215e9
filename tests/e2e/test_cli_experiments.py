"""The commands as a user types them: results on stdout, one line and exit code 2 for bad input, nothing written."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

from latte.cli import main
from small_benchmark import small_file, unit
from waiting import latte

COLUMNS = ["benchmark", "method", "setting", "seeds", "accuracy", "sd", "per_client", "kB/client", "ece"]
COLUMNS += ["worst_client", "worst_domain", "first_quarter", "last_quarter"]
ON_SMALL = ["--benchmark", "small", "--methods"]


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    small_file(folder)
    return folder


def test_run_from_a_file_then_again_then_with_json(data, tmp_path):
    text = 'benchmark = "small"\nseeds = "0-1"\nclients_per_domain = 2\n[[methods]]\nname = "clip"\n'
    (tmp_path / "c.toml").write_text(text)
    arguments = ("run", "c.toml", "--methods", "clip,tda,dmn-global", "--data", "data", "--set", "method.tda.k=2")
    dry = latte(*arguments, "--dry-run", cwd=tmp_path)
    assert dry.returncode == 0 and "items" in dry.stdout and not (tmp_path / "runs").exists(), dry.stderr
    first = latte(*arguments, cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    assert first.stdout.splitlines()[0].split() == COLUMNS
    assert [line.split()[:4] for line in first.stdout.splitlines()[1:]] == [
        ["small", "clip", "default", "2"],
        ["small", "tda", "custom", "2"],
        ["small", "dmn-global", "default", "2"],
    ]
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name in first.stderr and folder.name in dry.stdout
    again = latte(*arguments, "--json", cwd=tmp_path, LATTE_DATA="nowhere")
    rows = json.loads(again.stdout)
    assert [row["method"] for row in rows] == ["clip", "tda", "dmn-global"]
    command = json.loads((folder / "manifest.json").read_text())["sessions"][0]["command"]
    assert command[1:3] == ["run", "c.toml"]


def test_sweep_then_tune_then_use(data, tmp_path):
    common = ("--benchmark", "small", "--data", "data", "--set", "clients_per_domain=2", "--json")
    swept = latte("sweep", *common, "--methods", "tda", "--seeds", "0", "--over", "alpha=0.5,5", cwd=tmp_path)
    assert [row["method.alpha"] for row in json.loads(swept.stdout)] == [0.5, 5], swept.stderr
    tuned = latte("tune", *common, "--methods", "dmn", "--seeds", "100", "--over", "weight=0.1,10", cwd=tmp_path)
    assert json.loads(tuned.stdout)[0]["chosen"].startswith("weight="), tuned.stderr
    assert json.loads((tmp_path / "tuned.json").read_text())["saw"]["seeds"] == [100]
    used = latte("run", *common, "--methods", "clip,dmn", "--seeds", "0", "--tuned", "tuned.json", cwd=tmp_path)
    assert [row["setting"] for row in json.loads(used.stdout)] == ["default", "tuned"], used.stderr
    seen = latte("run", *common, "--methods", "clip,dmn", "--seeds", "100", "--tuned", "tuned.json", cwd=tmp_path)
    assert [row["setting"] for row in json.loads(seen.stdout)] == ["default", "oracle"], seen.stderr


def test_tuning_has_its_own_seeds_unless_told(data, tmp_path):
    shown = latte("tune", *ON_SMALL, "dmn", "--data", "data", "--dry-run", "--json", cwd=tmp_path)
    (row,) = json.loads(shown.stdout)
    assert row["seeds"] == "100-104" and row["points"] == 13
    assert sorted(p.name for p in tmp_path.iterdir()) == ["data"]


def bad_files(folder):
    """Write files that cannot be used, and return what each must be told."""
    whole = (folder / "small.safetensors").read_bytes()
    (folder / "cut.safetensors").write_bytes(whole[:-100])
    (folder / "rubbish.npz").write_bytes(b"PK rubbish")
    rng = np.random.default_rng(0)
    arrays = {"label": np.zeros(4, int), "domain": np.zeros(4, int), "domains": ["x"], "classes": ["a", "b"]}
    np.savez(folder / "dimension.npz", emb=unit(rng, 4, 8), text=unit(rng, 2, 9), **arrays)
    np.savez(folder / "classlist.npz", emb=unit(rng, 4, 8), text=unit(rng, 3, 8), **arrays)
    np.savez(folder / "lengths.npz", emb=2 * unit(rng, 4, 8), text=unit(rng, 2, 8), **arrays)
    other = folder / "other"
    other.mkdir()
    small_file(other, seed=5)


BAD = {
    "unknown benchmark": (["--benchmark", "smal", "--methods", "clip"], ["'smal'", "small"]),
    "unknown method": ([*ON_SMALL, "clip,lattte"], ["'lattte'", "latte"]),
    "unknown parameter": ([*ON_SMALL, "tda", "--set", "method.alhpa=1"], ["'alhpa'", "alpha"]),
    "config key": (["typo.toml"], ["'benchmrak'", "benchmark", "typo.toml"]),
    "truncated file": (["--benchmark", "cut", "--methods", "clip"], ["cut.safetensors", "truncated"]),
    "not a file": (["--benchmark", "rubbish", "--methods", "clip"], ["rubbish.npz", "truncated"]),
    "wrong dimension": (
        ["--benchmark", "dimension", "--methods", "clip"],
        ["dimension.npz", "text", "9", "D = 8 as in"],
    ),
    "wrong class list": (
        ["--benchmark", "classlist", "--methods", "clip"],
        ["classlist.npz", "text", "3", "C = 2 as in classes"],
    ),
    "rows of length 2": (["--benchmark", "lengths", "--methods", "clip"], ["lengths.npz", "length 2"]),
    "mixed encoders": (
        ["--benchmark", "data/small.safetensors,data/other/small.safetensors", "--methods", "clip"],
        ["small", "one encoder per comparison"],
    ),
    "second benchmark bad": (["--benchmark", "small,cut", "--methods", "clip"], ["cut.safetensors"]),
    "too many clients": ([*ON_SMALL, "clip", "--set", "clients_per_domain=99"], ["99 for 24"]),
    "no such plugin": ([*ON_SMALL, "clip", "--plugin", "broken.py"], ["broken.py", "NameError"]),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_and_exit_code_2_and_writes_nothing(data, tmp_path, case, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    bad_files(data)
    (tmp_path / "typo.toml").write_text('benchmrak = "small"\nmethods = [{ name = "clip" }]\n')
    (tmp_path / "broken.py").write_text("undefined\n")
    before = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*"))
    arguments, words = BAD[case]
    with pytest.raises(SystemExit) as ended:
        main(["run", *arguments, "--data", "data", "--seeds", "0"])
    output, errors = capsys.readouterr()
    assert ended.value.code == 2 and output == "" and len(errors.strip().splitlines()) == 1, errors
    assert errors.startswith("latte: ") and all(word in errors for word in words), errors
    assert sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*")) == before


def test_data_commands(data, tmp_path):
    bad_files(data)
    listed = latte("data", "list", "--json", "--data", "data", cwd=tmp_path)
    names = {row["name"]: row for row in json.loads(listed.stdout)}
    assert names["small"]["images"] == 48 and "cannot be read" in names["cut"]["encoder"]
    shown = json.loads(latte("data", "show", "small", "--json", "--data", "data", cwd=tmp_path).stdout)
    assert shown["domains"] == {"x": 24, "y": 24} and shown["encoder"] == "tiny" and shown["clients"] == "10 per domain"
    plain = latte("data", "show", "small", "--data", "data", cwd=tmp_path).stdout
    assert "x 24, y 24" in plain
    checked = latte("data", "check", "--data", "data", cwd=tmp_path)
    assert checked.returncode == 2 and "small: ok" in checked.stdout and "5 of 8" in checked.stderr
    assert latte("data", "check", "small", "--data", "data", cwd=tmp_path).returncode == 0


def test_convert(tmp_path):
    rng = np.random.default_rng(0)
    arrays = {"label": [0, 1, 0, 1], "domain": [0] * 4, "domains": ["x"], "classes": ["a", "b"], "index": [5, 6, 7, 8]}
    np.savez(tmp_path / "one.npz", views=unit(rng, 4, 3, 8).astype(np.float16), text=unit(rng, 2, 8), **arrays)
    done = latte("data", "convert", "one.npz", "two.safetensors", cwd=tmp_path)
    assert done.returncode == 0 and (tmp_path / "two.safetensors").is_file(), done.stderr
    shown = json.loads(latte("data", "show", "two.safetensors", "--json", cwd=tmp_path).stdout)
    assert (shown["images"], shown["views"], shown["dimensions"]) == (4, 3, 8)
    first = json.loads(latte("data", "show", "one.npz", "--json", cwd=tmp_path).stdout)
    assert first["fingerprint"] == shown["fingerprint"], "a converted file is the same classifier"
    assert latte("data", "convert", "one.npz", "two.npz", cwd=tmp_path).returncode == 2


@pytest.mark.parametrize(("choice", "told"), [((), "fast"), (("--engine", "readable"), "readable")])
def test_the_results_say_which_engine_ran(data, tmp_path, choice, told, compiled_loops):
    done = latte("run", *ON_SMALL, "latte", "--seeds", "0", "--data", "data", *choice, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (results,) = (tmp_path / "runs").rglob("results.jsonl")
    assert json.loads(results.read_text())["engine"] == told


def test_a_grid_of_readouts_is_swept_in_one_go(data, tmp_path):
    over = ("--over", "alpha=0.5,1,2", "--over", "beta=2,8")
    done = latte("sweep", *ON_SMALL, "latte", "--seeds", "0", "--data", "data", *over, cwd=tmp_path)
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 7, done.stderr
    assert len(list((tmp_path / "runs").rglob("done"))) == 6
