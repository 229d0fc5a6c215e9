"""A method of the user's own, in one file, run by the suite in both ways."""

from __future__ import annotations

import json
import re
import sys

import numpy as np
import pytest

import devices
from latte import Schedule, create, sync
from latte.data.bundled import bundled
from latte.edge.clients.http import HttpExchange
from latte.methods.plugins import load_plugin
from latte.simulation import run_readable
from serving import server_process
from waiting import ROOT, latte, latte_process, run

EXAMPLE = ROOT / "examples" / "own_method.py"


def python(*arguments, cwd):
    return run(sys.executable, *arguments, cwd=cwd)


def test_the_python_way_and_the_plugin_give_the_same_numbers(tmp_path):
    done = python(EXAMPLE, "runs", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    printed = {tuple(line.split("seed")[0].split()): line for line in done.stdout.splitlines()}
    assert set(printed) == {("clip",), ("mine",), ("mine,", "strong")}
    methods = "clip,mine,strong=mine:strong"
    plugin = python(
        "-m", "latte", "run", "--plugin", EXAMPLE, "--benchmark", "cifar10c-mini", "--methods", methods,
        "--seeds", "0-1", "--runs", "runs", "--json", cwd=tmp_path,
    )  # fmt: skip
    assert plugin.returncode == 0, plugin.stderr
    rows = {row["method"]: row for row in json.loads(plugin.stdout)}
    ours = [float(line.split()[-2]) for line in done.stdout.splitlines() if line.startswith("mine ")]
    assert abs(rows["mine"]["accuracy"] - sum(ours) / 2) < 0.01
    assert (rows["mine"]["setting"], rows["strong"]["setting"]) == ("default", "preset")
    assert rows["mine"]["accuracy"] != rows["clip"]["accuracy"]


@pytest.mark.slow
def test_a_changed_method_is_another_run_and_a_failing_one_is_told(tmp_path):
    copy = tmp_path / "mine.py"
    what = ("--benchmark", "cifar10c-mini", "--methods", "clip,mine", "--runs", "runs")
    command = ("-m", "latte", "run", "--plugin", copy, *what)
    copy.write_text(EXAMPLE.read_text())
    assert python(*command, "--dry-run", cwd=tmp_path).returncode == 0
    before = python(*command, "--dry-run", "--json", cwd=tmp_path).stdout
    copy.write_text(EXAMPLE.read_text().replace("logits = self.zero_shot", "logits = self.zero_shoot"))
    assert python(*command, "--dry-run", "--json", cwd=tmp_path).stdout != before
    failed = python(*command, cwd=tmp_path)
    assert failed.returncode == 1 and "clip" in failed.stdout and "mine" not in failed.stdout
    assert "mine, seed 0: AttributeError" in failed.stderr and "1 of 2 items failed" in failed.stderr
    assert "(mine.py, line " in failed.stderr and "in predict_rows: logits = self.zero_shoot" in failed.stderr
    assert "Traceback" not in failed.stderr
    (folder,) = (tmp_path / "runs").iterdir()
    assert len((folder / "results.jsonl").read_text().splitlines()) == 1 and not (folder / "done").exists()


def test_a_method_with_an_exchange_of_its_own_runs_and_sweeps(tmp_path):
    plugin = (
        "--plugin",
        ROOT / "examples" / "own_exchange.py",
        "--benchmark",
        "cifar10c-mini",
        "--runs",
        "runs",
        "--json",
    )
    done = python("-m", "latte", "run", *plugin, "--methods", "clip,census", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = {row["method"]: row for row in json.loads(done.stdout)}
    assert rows["census"]["accuracy"] != rows["clip"]["accuracy"]
    always, never = (labels_of("census", Schedule(period)) for period in (1, 1000))
    assert (always != never).any(), "the exchange matters"


def test_a_method_with_an_exchange_of_its_own_is_served_and_used_by_a_device(tmp_path):
    """Task, server and device from the command line; a device in Python talks to the same server."""
    pytest.importorskip("onnxruntime")
    plugin, task = ("--plugin", ROOT / "examples" / "own_exchange.py"), tmp_path / "census.task"
    source = ("--encoder", devices.ENCODER, "--classes", devices.CLASSES, "--method", "census", "--period", 4)
    refused = latte_process("task", "create", task, *source)  # which knows no census
    assert refused.returncode == 2 and "a known one" in refused.stderr
    latte("task", "create", task, *source, *plugin, check=True)
    pictures = devices.write_pictures(tmp_path / "in", 8)
    with server_process(task, tmp_path / "data", *plugin) as (server, _):
        devices.run_device(server, tmp_path / "state", "camera", *plugin, *pictures)
        load_plugin(plugin[1])
        with HttpExchange(server) as exchange:
            method = create("census", exchange.shared_task.zero_shot)
            sync([("other", method)], exchange)
    assert len(devices.results(tmp_path / "state")) == 8
    assert method.mass[1].sum() == pytest.approx(1.0), "what the camera saw"


SIZED = """
from latte.methods.plugins import load_plugin
from latte.methods.traffic import Content

census = load_plugin({example!r}).Census
census.messages = staticmethod(lambda params, classes: (Content(0, numbers=classes), Content(0, numbers=classes)))
"""


@pytest.mark.slow
def test_the_cost_of_a_method_of_ones_own(tmp_path):
    (tmp_path / "sized.py").write_text(SIZED.format(example=str(ROOT / "examples" / "own_exchange.py")))
    chosen = ("--plugin", tmp_path / "sized.py", "--methods", "lattelike=tda-global,census")
    done = latte("paper", "cost", *chosen, check=True)
    rows = {line.split()[0]: line.split() for line in done.stdout.split("\n\n")[1].splitlines()[2:]}
    assert rows["census"][3:6] == ["?", "?", "?"] and rows["lattelike"][3] != "?"
    assert "census" in done.stdout.split("bytes per sync")[1], "its messages are known"
    assert "less than 0.4 %" not in done.stdout, "the paper states that of Latte"


def labels_of(name, schedule):
    load_plugin(ROOT / "examples" / "own_exchange.py")
    return np.concatenate(run_readable(bundled(), name, schedule=schedule).labels)


def test_the_page_runs(tmp_path):
    """The blocks of docs/own-method.md, one after the other in one file, which workers import, too."""
    page = (ROOT / "docs" / "own-method.md").read_text("utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.S)
    checks = """
if __name__ == "__main__":
    from latte import check_exchange, check_method

    print(len(check_method(Centred)), len(check_method(Pooled)), len(check_exchange(Pooled.exchange_for, Pooled)))
"""
    (tmp_path / "centred.py").write_text("\n\n".join([*blocks, checks]))
    done = run(sys.executable, tmp_path / "centred.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    *results, counts = done.stdout.splitlines()
    assert [line.split()[:2] for line in results] == [["clip", "0"], ["clip", "1"], ["centred", "0"], ["centred", "1"]]
    assert all(f"{count} rules hold" in page for count in counts.split())


NUMPY_FAILS = """
import numpy as np
from latte import BaseMethod, register

class Mine(BaseMethod):
    def predict_rows(self, views):
        return self.prediction(np.linalg.inv(np.zeros((2, 2))) @ np.ones(2), 0.5)

class Odd(BaseMethod):
    def reset(self):
        self.a = self.b

class Strange(Exception):
    def __init__(self, one, two):
        super().__init__(one)

class Stranger(BaseMethod):
    def predict_rows(self, views):
        raise Strange("own words", 2)

for name in ("Mine", "Odd", "Stranger"):
    register(name.lower(), f"{__name__}:{name}")
"""


@pytest.mark.parametrize(
    ("methods", "code", "words"),
    [
        ("clip,mine", 1, "LinAlgError: Singular matrix (plugin.py, line 7, in predict_rows: return self.prediction("),
        ("clip,stranger", 1, "Strange: own words (plugin.py, line 19, in predict_rows: raise Strange("),
        ("clip,odd", 2, "method odd: AttributeError: 'Odd' object has no attribute 'b' (plugin.py, line 11, in reset"),
    ],
)
def test_the_line_of_a_failure_is_that_of_the_authors_own_code(tmp_path, methods, code, words):
    (tmp_path / "plugin.py").write_text(NUMPY_FAILS)
    what = ("--benchmark", "cifar10c-mini", "--methods", methods, "--runs", "runs", "--json")
    failed = python("-m", "latte", "run", "--plugin", "plugin.py", *what, cwd=tmp_path)
    assert failed.returncode == code and words in failed.stderr and "Traceback" not in failed.stderr, failed.stderr
    assert code == 2 or [row["method"] for row in json.loads(failed.stdout)] == ["clip"]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import latte\nlatte.regster('x')\n", "(plugin.py, line 2, in <module>: latte.regster('x'))"),
        ("def f(:\n", "SyntaxError"),
    ],
)
def test_a_plugin_that_cannot_be_imported_says_where(tmp_path, source, words):
    (tmp_path / "plugin.py").write_text(source)
    what = ("--benchmark", "cifar10c-mini", "--methods", "clip", "--runs", "runs")
    failed = python("-m", "latte", "run", "--plugin", "plugin.py", *what, cwd=tmp_path)
    assert failed.returncode == 2 and words in failed.stderr and "Traceback" not in failed.stderr


TUPLE = """
from dataclasses import dataclass
from latte import Clip, register

@dataclass(frozen=True)
class P:
    sizes: tuple = (1, 2)

class Tupled(Clip):
    Params = P

register("tupled", f"{__name__}:Tupled")
"""


def test_parameters_that_no_file_gives_back_are_refused_before_anything_runs(tmp_path):
    (tmp_path / "plugin.py").write_text(TUPLE)
    what = ("--benchmark", "cifar10c-mini", "--methods", "clip,tupled", "--runs", "runs")
    failed = python("-m", "latte", "run", "--plugin", "plugin.py", *what, cwd=tmp_path)
    assert failed.returncode == 2 and not failed.stdout
    assert "tupled parameter sizes: got (1, 2), want a number, a word, true, false or None" in failed.stderr
