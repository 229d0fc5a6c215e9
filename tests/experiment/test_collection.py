"""What a report finds in folders: runs, sweeps, and tunings, which it folds away."""

from __future__ import annotations

import csv
import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from latte.cli.report import report
from latte.experiment.collection import collect
from latte.experiment.config import MethodConfig, RunConfig
from latte.experiment.folder import RunFolder
from latte.experiment.plan import make_plan, open_benchmark
from latte.experiment.runner import Options, run
from latte.experiment.sweep import execute_sweeps, make_sweep, parse_axis
from latte.experiment.tune import make_tunings
from latte.report.contents import build_report
from latte.simulation.labelling import Labelling
from latte.simulation.simulator import Schedule
from small_benchmark import small_file

pytestmark = pytest.mark.usefixtures("one_process")
ONE = Options(jobs=1)


@pytest.fixture(scope="module")
def benchmark(tmp_path_factory):
    return open_benchmark(str(small_file(tmp_path_factory.mktemp("data"))))


@pytest.fixture(scope="module")
def config(benchmark):
    methods = (MethodConfig("clip"), MethodConfig("dmn"))
    return RunConfig(str(benchmark.entry.path), methods, seeds=(0, 1), clients_per_domain=2)


@pytest.fixture(scope="module")
def campaign(benchmark, config, tmp_path_factory):
    """A run, a sweep and a tuning in one folder."""
    out = tmp_path_factory.mktemp("campaign")
    run(make_plan(config), out, ONE)
    sweep = make_sweep(config, [parse_axis("weight=10,0.3,1")], benchmark)
    tunings = make_tunings(replace(config, methods=config.methods[1:], seeds=(100,)), benchmark)
    for _ in execute_sweeps([sweep], out, ONE):
        pass
    for _ in execute_sweeps(tunings, out, ONE, "tuning"):
        pass
    return out


def invoke(*arguments):
    shown = CliRunner().invoke(report, list(map(str, arguments)))
    assert shown.exit_code == 0, shown.output
    return shown


def test_a_campaign_is_a_table_a_curve_and_a_line(campaign):
    collection = collect([campaign])
    assert len(collection.runs) == 1 and len(collection.every_run()) == 1 + 3 + 13
    assert sorted((sweep.tuning, len(sweep.points)) for sweep in collection.sweeps) == [(False, 3), (True, 13)]
    text = invoke(campaign).stdout
    assert text.count("method  ") <= 3 and text.count("Sweep over weight on") == 1
    curve = text[text.index("Sweep over weight") :].splitlines()
    assert [line.split()[0] for line in curve[2:6]] == ["weight", "0.3", "1", "10"], "in the order of numbers"
    assert text.count("Tuning over weight") == 1 and "13 points, seeds 100" in " ".join(text.split())
    assert "0.003" not in text, "no point of the search"


def test_the_folder_of_a_tuning_shows_its_points(campaign):
    (tuning,) = (sweep for sweep in collect([campaign]).sweeps if sweep.tuning)
    text = invoke(tuning.folder).stdout
    assert "0.003" in text and "Folded" not in text
    both = collect([campaign, tuning.folder])
    assert [sweep.named for sweep in both.sweeps if sweep.tuning] == [True]
    point = tuning.points[0].run.folder
    assert [one.folder for one in collect([point]).runs] == [point], "a point that is named is a run"


def test_a_search_that_is_swept_too_is_a_sweep(benchmark, config, tmp_path):
    (tuning,) = make_tunings(replace(config, methods=config.methods[1:]), benchmark, [parse_axis("weight=1,2")])
    for call in (execute_sweeps([tuning], tmp_path, ONE, "tuning"), execute_sweeps([tuning], tmp_path, ONE)):
        list(call)
    assert [sweep.purposes for sweep in collect([tmp_path]).sweeps] == [("sweep", "tuning")]
    list(execute_sweeps([tuning], tmp_path, ONE, "tuning"))
    assert not collect([tmp_path]).sweeps[0].tuning


def test_an_interrupted_sweep_shows_what_it_has(benchmark, config, tmp_path):
    sweep = make_sweep(config, [parse_axis("T=1,2,3")], benchmark)
    events = execute_sweeps([sweep], tmp_path, ONE)
    while next(events)[0].values != {"schedule.period": 2}:
        pass
    events.close()
    shown = invoke(tmp_path)
    assert "not finished, 2 of 3 points so far" in shown.stderr
    assert "2 of 3 points so far" in shown.stdout and "Sweep over T on" in shown.stdout


@pytest.mark.parametrize("content", ["{", "{}", '{"format": "other", "axes": [], "points": []}'])
def test_a_damaged_list_of_points_is_refused_in_a_line(campaign, tmp_path, content):
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(campaign, copy)
    next(copy.glob("*/sweep.json")).write_text(content)
    with pytest.raises(ValueError, match=r"sweep\.json") as caught:
        collect([copy])
    assert "\n" not in str(caught.value)


def test_other_clients_and_syncs_are_other_tables(benchmark, config, tmp_path):
    """Seeds mean other streams there; a method that exchanges nothing is in every table of its streams."""
    latte = replace(config, methods=(MethodConfig("latte"),))
    for one in (config, latte, replace(latte, schedule=Schedule(5)), replace(config, clients_per_domain=1)):
        run(make_plan(one), tmp_path, ONE)
    tables = build_report(collect([tmp_path])).tables
    rows = {table.short_title.partition("; ")[2]: [row.method for row in table.rows] for table in tables}
    assert rows == {
        "clients_per_domain=2, T=1": ["clip", "dmn", "latte"],
        "clients_per_domain=2, T=5": ["clip", "dmn", "latte"],
        "clients_per_domain=1": ["clip", "dmn"],
    }


def test_a_run_with_labels_is_a_table_that_says_so(config, tmp_path):
    clip = replace(config, methods=config.methods[:1])
    for one in (clip, replace(clip, labels=Labelling(random=2))):
        run(make_plan(one), tmp_path, ONE)
    notes = [
        note for table in build_report(collect([tmp_path])).tables for note in table.notes if "labels.random" in note
    ]
    assert notes == ["labels.random=2: accuracy is that on the images that nobody labelled."]


def test_runs_of_one_federation_are_one_table_without_a_suffix(config, tmp_path):
    for methods in (config.methods[:1], config.methods[1:]):
        run(make_plan(replace(config, methods=methods)), tmp_path, ONE)
    (table,) = build_report(collect([tmp_path])).tables
    assert [row.method for row in table.rows] == ["clip", "dmn"] and ";" not in table.title


def test_every_format_has_every_number(campaign, tmp_path):
    results, sweep, tuning = json.loads(invoke(campaign, "--format", "json").stdout)
    assert (results["kind"], sweep["kind"], tuning["kind"]) == ("results", "sweep", "tuning")
    assert [point["values"] for point in sweep["points"]] == [{"weight": 0.3}, {"weight": 1}, {"weight": 10}]
    clip = results["rows"][0]["cells"]
    rows = list(csv.DictReader(invoke(campaign, "--format", "csv").stdout.splitlines()))
    means = {row["metric"]: float(row["mean"]) for row in rows if row["kind"] == "results" and row["method"] == "clip"}
    assert means == {key: cell["mean"] for key, cell in clip.items() if cell is not None}
    assert {"worst_client", "worst_domain", "first_quarter", "last_quarter", "change"} <= set(means)
    assert {row["point"] for row in rows if row["kind"] == "sweep"} == {"weight=0.3", "weight=1", "weight=10"}
    pairs = {(row["metric"], row["label"], row["against"]) for row in rows if row["kind"] == "difference"}
    assert ("worst_client", "DMN-ZS (local)", "CLIP") in pairs and len(pairs) == 6 * 2
    for kind, words in (("markdown", "### Sweep over weight"), ("latex", "\\caption{Sweep over weight")):
        text = invoke(campaign, "--format", kind).stdout
        assert words in text and "Worst client" in text and "0.003" not in text
    page = invoke(campaign, "--format", "html").stdout
    assert page.count("<details") > 2 and "<details open" not in page
    assert "In deployment: small" in page and "Sweep over weight on small" in page


def test_an_unfinished_point_is_none(benchmark, config, tmp_path):
    sweep = make_sweep(config, [parse_axis("weight=1,2")], benchmark)
    events = execute_sweeps([sweep], tmp_path, ONE)
    next(events)
    events.close()
    collection = collect([tmp_path])
    assert [len(one.points) for one in collection.sweeps] == [1]
    empty = RunFolder(tmp_path / sweep.name / sweep.points[1].plan.name)
    assert empty.results.is_file() and not empty.results.read_bytes()


def test_labels_are_shown_and_methods_are_compared(config, tmp_path):
    """A label may be the name of another method; two runs may have one label for two methods."""
    labels = (MethodConfig("dmn", "clip"), MethodConfig("clip", "zs"))
    for methods in (labels, config.methods[:1]):
        run(make_plan(replace(config, methods=methods)), tmp_path, ONE)
    (table,) = build_report(collect([tmp_path])).tables
    rows = {row.label: row for row in table.rows}
    assert {label: row.name for label, row in rows.items()} == {"zs": "clip", "clip": "dmn", "clip (clip)": "clip"} or {
        label: row.name for label, row in rows.items()
    } == {"zs": "clip", "CLIP": "clip", "clip (dmn)": "dmn"}
    assert "gain" in [column.key for column in table.columns]


def test_a_sweep_is_drawn_by_method(benchmark, config, tmp_path):
    renamed = replace(config, methods=(MethodConfig("latte", "clip"),))
    for _ in execute_sweeps([make_sweep(renamed, [parse_axis("T=1,2")], benchmark)], tmp_path, ONE):
        pass
    (sweep,) = build_report(collect([tmp_path])).sweeps
    assert [(line.label, line.name) for line in sweep.lines] == [("clip", "latte")]
