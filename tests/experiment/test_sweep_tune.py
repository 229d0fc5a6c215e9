"""Sweeps and tuning: every point is a run, the choice is the best point, and the label says what it saw."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from latte.experiment.config import MethodConfig, RunConfig
from latte.experiment.plan import open_benchmark, plan_on
from latte.experiment.runner import Options, results
from latte.experiment.sweep import SweepAxis, execute_sweeps, make_sweep, parse_axis
from latte.experiment.tune import (
    Choice,
    TunedFile,
    TuningData,
    make_tunings,
    read_tuned,
    save_tuned,
    select,
    tuning_grid,
    use_tuned,
)
from latte.methods import METHODS
from latte.methods.dmn import WEIGHT_GRID
from small_benchmark import small_file
from waiting import latte

pytestmark = pytest.mark.usefixtures("one_process")
ONE = Options(jobs=2)


@pytest.fixture(scope="module")
def benchmark(tmp_path_factory):
    return open_benchmark(str(small_file(tmp_path_factory.mktemp("data"))))


@pytest.fixture(scope="module")
def config(benchmark):
    return RunConfig("small", (MethodConfig("dmn"),), seeds=(100,), clients_per_domain=2)


def test_every_point_is_the_run_it_says(benchmark, config, tmp_path):
    both = replace(config, methods=(MethodConfig("clip"), MethodConfig("dmn")))
    sweep = make_sweep(both, [parse_axis("weight=0.1,10")], benchmark)
    events = list(execute_sweeps([sweep], tmp_path, ONE))
    assert [event.kind for _, event in events] == ["done"] * 4
    told = json.loads((tmp_path / sweep.name / "sweep.json").read_text())
    assert [point["values"] for point in told["points"]] == [{"method.weight": 0.1}, {"method.weight": 10}]
    for point, entry in zip(sweep.points, told["points"], strict=True):
        clip, dmn = results(point.plan, tmp_path / sweep.name)
        assert dmn.params["weight"] == point.values["method.weight"] and entry["run"] == point.plan.name
        assert clip.setting == "default" and dmn.setting == "custom"
    assert [event.kind for _, event in execute_sweeps([sweep], tmp_path, ONE)] == ["existing"] * 4


def test_every_kind_of_axis(benchmark, config):
    latte = replace(config, methods=(MethodConfig("latte"),))
    of_latte = ("alpha=1,2", "beta=1", "gamma=1", "k_l=1,2", "k_e=1")
    for text in (*of_latte, "clients_per_domain=1,2", "T=1,5", "participation=0.5"):
        sweep = make_sweep(latte, [parse_axis(text)], benchmark)
        assert len(sweep.points) == len(text.split(","))
    grid = make_sweep(latte, [parse_axis("alpha=1,2"), parse_axis("T=1,5,9")], benchmark)
    assert len({point.plan.name for point in grid.points}) == 6
    assert grid.points[0].plan.config.schedule.period == 1 and grid.points[2].plan.config.schedule.period == 9


def test_an_axis_of_one_method(benchmark, config):
    both = replace(config, methods=(MethodConfig("latte"), MethodConfig("tda")))
    for text in ("latte.alpha=0.5,2", "method.latte.alpha=0.5,2"):
        points = make_sweep(both, [parse_axis(text)], benchmark).points
        alphas = [[method.params.get("alpha") for method in point.plan.config.methods] for point in points]
        assert alphas == [[0.5, 2.0], [2.0, 2.0]]  # the second is TDA's own


@pytest.mark.parametrize("text", ["alpha", "alpha=", "alpha=1,,2"])
def test_an_axis_that_cannot_be_read(text):
    with pytest.raises(ValueError, match="--over"):
        parse_axis(text)


def test_a_grid_of_more_points_than_anybody_wants(benchmark, config):
    many = ",".join(map(str, range(1, 1000)))
    axes = [parse_axis(f"alpha={many}"), parse_axis(f"beta={many}")]
    with pytest.raises(ValueError, match=r"--over: got [0-9]+ runs, want at most 100000"):
        make_sweep(config, axes, benchmark)


def test_a_value_that_cannot_be_is_refused_before_anything_runs(benchmark, config):
    with pytest.raises(ValueError, match="weight"):
        make_sweep(config, [SweepAxis("method.weight", (1.0, -1.0))], benchmark)
    with pytest.raises(ValueError, match="wieght"):
        make_sweep(config, [SweepAxis("method.wieght", (1.0,))], benchmark)


def test_the_grids_are_grids_of_parameters_that_exist(benchmark, config):
    assert len(WEIGHT_GRID) == 13 and WEIGHT_GRID[0] == 0.001 and WEIGHT_GRID[-1] == 1000
    named = [name for name in METHODS if tuning_grid(name)]
    assert {"dmn", "latte", "tda"} <= set(named)
    for name in named:
        (tuning,) = make_tunings(replace(config, methods=(MethodConfig(name),)), benchmark)
        assert len({point.plan.name for point in tuning.points}) == len(tuning.points)


def test_tuning_chooses_the_best_point_and_labels_its_use(benchmark, config, tmp_path):
    both = replace(config, methods=(MethodConfig("dmn"), MethodConfig("latte")))
    axes = {"dmn": [parse_axis("weight=0.001,1,1000")], "latte": [parse_axis("alpha=0.1,2")]}
    tunings = [
        make_tunings(replace(both, methods=(method,)), benchmark, axes[method.name])[0] for method in both.methods
    ]
    list(execute_sweeps(tunings, tmp_path, ONE, "tuning"))
    tuned = select(tunings, tmp_path)
    for tuning in tunings:
        scores = [results(p.plan, tmp_path / tuning.name)[0].micro for p in tuning.points]
        entry = tuned.methods[tuning.methods[0].label]
        best = tuning.points[scores.index(max(scores))]  # the first of the best
        assert entry.accuracy == max(scores) and entry.tied == scores.count(max(scores))
        assert entry.params == dict(best.plan.config.methods[0].params)
        assert [point["accuracy"] for point in entry.grid] == scores
    assert tuned.saw.seeds == (100,) and tuned.saw.data.sha256 == benchmark.info.sha256
    save_tuned(tmp_path / "t" / "tuned.json", tuned)
    assert read_tuned(tmp_path / "t" / "tuned.json") == tuned
    check_use(read_tuned(tmp_path / "t" / "tuned.json"), both, benchmark, tmp_path)


def check_use(tuned, config, benchmark, tmp_path):
    report = replace(config, methods=(MethodConfig("clip"), *config.methods), seeds=(0, 1))
    used = plan_on(use_tuned(report, tuned, benchmark), benchmark).config.methods
    assert [m.setting for m in used] == ["default", "tuned", "tuned"]
    assert dict(used[1].params) == tuned.methods["dmn"].params
    same = use_tuned(replace(report, seeds=(1, 100)), tuned, benchmark)
    assert [m.setting for m in same.methods] == ["", "oracle", "oracle"]
    with pytest.raises(ValueError, match="tuned none"):
        use_tuned(replace(report, methods=(MethodConfig("clip"),)), tuned, benchmark)
    sibling = open_benchmark(str(small_file(tmp_path, "sibling", seed=3)))
    elsewhere = use_tuned(replace(report, seeds=(100,)), tuned, sibling)
    assert elsewhere.methods[1].setting == "tuned", "other data of the same encoder"
    stranger = open_benchmark(str(small_file(tmp_path, "stranger", seed=3, encoder="another")))
    with pytest.raises(ValueError, match="'another'"):
        use_tuned(report, tuned, stranger)


def test_fixed_clients_make_every_seed_an_oracle():
    bundled = open_benchmark("cifar10c-mini")
    config = RunConfig("cifar10c-mini", (MethodConfig("dmn"),), seeds=(0,))
    saw = TuningData(data=replace(bundled.info, encoder="x"), seeds=(100,), clients_per_domain=None)
    tuned = TunedFile(saw=saw, methods={"dmn": Choice("dmn", {"weight": 3.0})})
    assert use_tuned(config, tuned, bundled).methods[0].setting == "oracle"
    assert use_tuned(replace(config, clients_per_domain=2), tuned, bundled).methods[0].setting == "tuned"


def test_no_grid_and_no_tuned_file(benchmark, config, tmp_path):
    with pytest.raises(ValueError, match="no grid"):
        make_tunings(replace(config, methods=(MethodConfig("clip"),)), benchmark)
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(ValueError, match="latte tune"):
        read_tuned(tmp_path / "x.json")
    with pytest.raises(ValueError, match="latte tune"):
        read_tuned(tmp_path / "y.json")


def test_a_choice_outside_the_method_is_printed(tmp_path):
    over = ("--methods", "tda", "--seeds", "100", "--over", "T=1,20", "--json")
    done = latte("tune", "--benchmark", "cifar10c-mini", *over, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[0]["chosen"] == "period=1"
    assert json.loads((tmp_path / "tuned.json").read_text())["methods"]["tda"]["point"] == {"schedule.period": 1}
