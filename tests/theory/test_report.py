"""The command: it writes every figure with its numbers, a JSON file and a table."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import pytest

from latte.paper.theory.figures import draw_all, table, write_theory
from latte.paper.theory.study import Study, StudyPlan, Trial, run_study
from waiting import run

FIGURES = ("volumes", "convergence", "error", "clients", "strangers", "limit", "vacuous")


@pytest.fixture(scope="module")
def study() -> Study:
    tiny = StudyPlan(rate_repetitions=3, rate_samples=(512, 2048, 8192), repetitions=2, trial=Trial(2, 200), images=30)
    return run_study(seed=1, plan=tiny)


@pytest.fixture(scope="module")
def folder(study: Study, tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("matplotlib")
    folder = tmp_path_factory.mktemp("theory") / "new" / "folder"
    paths = write_theory(study, folder)
    assert sorted(paths) == sorted(folder.iterdir())
    return folder


def test_everything_is_written(folder: Path) -> None:
    drawn = {f"{name}.{kind}" for name in FIGURES for kind in ("png", "svg", "csv")}
    assert {path.name for path in folder.iterdir()} == drawn | {"theory.json", "theory.txt"}
    assert all(path.stat().st_size > 200 for path in folder.iterdir())
    record = json.loads((folder / "theory.json").read_text(encoding="utf-8"))
    assert set(record["figures"]) == set(FIGURES)
    assert [rate["d"] for rate in record["rates"]] == [2, 3, 5]


def test_the_csv_holds_what_is_drawn(study: Study, folder: Path) -> None:
    with (folder / "clients.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert float(rows[0]["error"]) == study.product.by_clients[0].mean[0]
    assert len(rows) == 18


def test_the_same_numbers_give_the_same_svg(study: Study, folder: Path, tmp_path: Path) -> None:
    next(drawing for drawing in draw_all(study) if drawing.name == "convergence").save(tmp_path)
    for name in ("convergence.svg", "convergence.csv"):
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()


def test_the_table_names_what_is_vacuous(study: Study) -> None:
    text = table(study)
    assert "vacuous" in text
    assert "  512       402.4" in text


def test_importing_the_command_loads_nothing_heavy() -> None:
    heavy = "[m for m in ('matplotlib', 'scipy', 'sklearn') if m in sys.modules]"
    code = f"import sys, latte.cli.report; print({heavy})"
    done = run(sys.executable, "-c", code, check=True)
    assert done.stdout.strip() == "[]"


def test_the_theory_needs_no_scipy() -> None:
    code = "import sys; sys.modules['scipy'] = None; import latte.paper.theory.study; print(3)"
    done = run(sys.executable, "-c", code, check=True)
    assert done.stdout.strip() == "3"
