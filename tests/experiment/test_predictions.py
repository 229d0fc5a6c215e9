"""The prediction of every sample: what the results count, the same from every path, and nothing damaged is trusted."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latte.cli import main
from latte.data.federation import federate
from latte.experiment import runner as running
from latte.experiment.collection import collect
from latte.experiment.config import MethodConfig, RunConfig
from latte.experiment.folder import (
    SAMPLE_COLUMNS,
    PredictionFiles,
    RunFolder,
    pack,
    predictions_of,
    read_predictions,
    unpack,
)
from latte.experiment.item import run_item, work
from latte.experiment.plan import make_plan, open_benchmark
from latte.experiment.runner import Done, IncompleteError, Options, execute, run
from latte.experiment.sweep import execute_sweeps, make_sweep, parse_axis
from latte.files.documents import checksum
from latte.report.contents import build_report
from latte.report.formats.markup import render
from latte.simulation.results import Result
from small_benchmark import small_file

METHODS = (MethodConfig("clip"), MethodConfig("tda"), MethodConfig("latte", "../la/tte", params={"k_l": 2}))
WITH = Options(executor="serial", predictions=True)
WITHOUT = Options(executor="serial")


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    path = small_file(tmp_path_factory.mktemp("data"))
    config = RunConfig(str(path), METHODS, seeds=(0, 1), clients_per_domain=2, engine="readable", order="correlated")
    return make_plan(config)


@pytest.fixture(scope="module")
def made(plan, tmp_path_factory):
    """The folder of a run with predictions, made by two processes."""
    out = tmp_path_factory.mktemp("made")
    run(plan, out, Options(jobs=2, predictions=True))
    return out / plan.name


def content(folder):
    """Return what must be the same however a run came about: file -> bytes."""
    names = ("results.jsonl", "done", "config.json", "predictions/*.safetensors", "predictions/index.json")
    return {path.name: path.read_bytes() for name in names for path in folder.glob(name)}


def kinds(plan, out, options=WITH):
    return [event.kind for event in execute(plan, out, options)]


def test_the_results_can_be_counted_again(plan, made):
    for line in (made / "results.jsonl").read_text().splitlines():
        result = Result.from_json(line)
        found = read_predictions(made, result.method, result.seed)
        assert found.accuracy == result.micro
        assert found.clients == tuple(client.name for client in result.clients)
        assert found.domains == tuple(client.domain for client in result.clients)
        assert found.calibration_error == result.calibration_error, "the calibration error can be audited"
        counts = np.bincount(found.client, found.correct, len(found.clients))
        assert counts.tolist() == [client.correct for client in result.clients]


def test_every_row_is_a_sample_of_the_embedding_file(plan, made):
    embeddings = open_benchmark(str(plan.entry.path)).embeddings
    federation = federate(embeddings, 2, 1, "correlated")
    config = replace(plan.config, methods=plan.config.methods[2:], seeds=(1,))
    labels = run_item(federation, config, 1).labels
    found = read_predictions(made, "../la/tte", 1)
    assert sorted(found.sample) == list(range(48)) and found.classnames == ("a", "b", "c")
    for row in range(48):
        client = federation.clients[found.client[row]]
        assert found.sample[row] == client.samples[found.position[row]]
        assert found.label[row] == embeddings.labels[found.sample[row]]
        assert found.prediction[row] == labels[found.client[row]][found.position[row]]
    assert all(getattr(found, name).dtype == np.int32 for name in SAMPLE_COLUMNS)


def test_the_engine_stores_the_same_answers(plan, made, tmp_path, compiled_loops):
    fast = make_plan(replace(plan.config, engine="auto", benchmark=str(plan.entry.path)))
    results = run(fast, tmp_path, WITH)
    assert {result.engine for result in results} == {"fast"}
    assert len(results) == 6
    for result in results:
        readable, quick = (read_predictions(f, result.method, result.seed) for f in (made, tmp_path / fast.name))
        assert all((getattr(readable, name) == getattr(quick, name)).all() for name in (*SAMPLE_COLUMNS, "image"))
        np.testing.assert_allclose(quick.confidence, readable.confidence, rtol=1e-6)
        assert quick.calibration_error == result.calibration_error


def test_a_finished_run_gets_its_predictions_later(plan, made, tmp_path):
    assert kinds(plan, tmp_path, WITHOUT) == ["done"] * 6
    folder = tmp_path / plan.name
    assert not (folder / "predictions").exists()
    results = (folder / "results.jsonl").read_bytes()
    assert kinds(plan, tmp_path) == ["done"] * 6
    assert content(folder) == content(made) and (folder / "results.jsonl").read_bytes() == results
    assert len((folder / "items.jsonl").read_text().splitlines()) == 6, "a result is listed once"
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    assert kinds(plan, tmp_path) == kinds(plan, tmp_path, WITHOUT) == ["existing"] * 6
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before, "a finished run is only read"


def damage_byte(folder):
    path = PredictionFiles(folder).path("tda", 1)
    raw = bytearray(path.read_bytes())
    raw[-3] ^= 1
    path.write_bytes(raw)
    return 1


def damage_cut(folder):
    path = PredictionFiles(folder).path("clip", 0)
    path.write_bytes(path.read_bytes()[:-10])
    PredictionFiles(folder).path("clip", 1).unlink()
    return 2


def damage_index(folder):
    (folder / "predictions" / "index.json").write_text('{"files": [{"method": []}]}')
    return 6


def damage_entry(folder):
    index = folder / "predictions" / "index.json"
    content = json.loads(index.read_text())
    content["files"][2]["result"] = content["files"][3]["result"]
    index.write_text(json.dumps(content))
    return 1


def damage_result(folder):
    lines = (folder / "results.jsonl").read_text().splitlines(keepends=True)
    (folder / "results.jsonl").write_text("".join(lines[:2] + lines[3:]))
    return 1


def damage_version(folder):
    text = (folder / "manifest.json").read_text()
    (folder / "manifest.json").write_text(text.replace('"latte-tta": "', '"latte-tta": "0'))
    return 6


DAMAGE = [damage_byte, damage_cut, damage_index, damage_entry, damage_result, damage_version]


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda f: f.__name__[7:])
def test_only_what_is_damaged_is_done_again(plan, made, tmp_path, damage):
    folder = shutil.copytree(made, tmp_path / plan.name)
    redone = damage(folder)
    assert kinds(plan, tmp_path).count("done") == redone
    assert content(folder) == content(made)


@pytest.mark.parametrize("damage", [damage_result, damage_version], ids=lambda f: f.__name__[7:])
def test_results_that_are_computed_again_lose_their_predictions(plan, made, tmp_path, damage):
    folder = shutil.copytree(made, tmp_path / plan.name)
    redone = damage(folder)
    kinds(plan, tmp_path, WITHOUT)
    assert len(PredictionFiles(folder).entries()) == 6 - redone
    assert content(folder)["results.jsonl"] == content(made)["results.jsonl"]


class PowerCut(BaseException):
    """What ends a run between two writes."""


@pytest.mark.slow
@pytest.mark.parametrize("earlier", [False, True], ids=["from nothing", "after a run without"])
def test_stopped_at_every_write_it_ends_with_the_same_bytes(plan, tmp_path, monkeypatch, earlier):
    small = make_plan(replace(plan.config, methods=plan.config.methods[:2], benchmark=str(plan.entry.path)))
    run(small, tmp_path / "whole", WITH)
    whole, sync, stops = content(tmp_path / "whole" / small.name), os.fsync, 0
    for moment in range(1000):
        left, out = moment, tmp_path / str(moment)
        if earlier:
            run(small, out, WITHOUT)

        def cut(descriptor):
            nonlocal left
            left -= 1
            if left < 0:
                raise PowerCut
            sync(descriptor)

        monkeypatch.setattr(os, "fsync", cut)
        try:
            run(small, out, WITH)
        except PowerCut:
            stops += 1
        finally:
            monkeypatch.setattr(os, "fsync", sync)
        if left >= 0:
            break
        run(small, out, WITH)
        assert content(out / small.name) == whole
    assert stops >= 12


def test_other_results_are_not_mixed_with_the_old_ones(plan, made, tmp_path, monkeypatch):
    folder = shutil.copytree(made, tmp_path / plan.name)
    damage_byte(folder)

    def other(jobs, options):
        told = json.loads(work(running.as_message(jobs, (), True)))
        yield 0, Done(told["lines"][0].replace('"correct": ', '"correct": 1'), 0.0, told["predictions"][0])

    monkeypatch.setattr(running, "do_items", other)
    with pytest.raises(IncompleteError, match="1 of 6 items failed"):
        kinds(plan, tmp_path)
    assert RunFolder(folder).complete(), "the results are what they were"
    assert (folder / "results.jsonl").read_bytes() == (made / "results.jsonl").read_bytes()
    with pytest.raises(ValueError, match="damaged file, or one of other results"):
        read_predictions(folder, "tda", 1)


def test_what_cannot_be_read_is_refused(plan, made, tmp_path):
    with pytest.raises(ValueError, match=r"method 'dmn', seed 0 .* \(methods: '../la/tte', 'clip', 'tda'\)"):
        read_predictions(made, "dmn", 0)
    with pytest.raises(ValueError, match="latte run --predictions"):
        read_predictions(tmp_path, "clip", 0)
    for damage in (damage_byte, damage_cut, damage_result):
        folder = shutil.copytree(made, tmp_path / damage.__name__)
        damage(folder)
        names = {"damage_byte": ("tda", 1), "damage_cut": ("clip", 1), "damage_result": ("tda", 0)}
        with pytest.raises(ValueError, match="to redo it"):
            read_predictions(folder, *names[damage.__name__])
    forged = shutil.copytree(made, tmp_path / "forged")
    files = PredictionFiles(forged)
    files.path("clip", 0).write_bytes(b"rubbish")
    entry = files.entries()["clip", 0]
    files._write({("clip", 0): replace(entry, sha256=checksum(files.path("clip", 0)))})
    with pytest.raises(ValueError, match="a damaged or truncated file"):
        read_predictions(forged, "clip", 0)


@given(st.text(st.characters(categories=None)), st.text(st.characters(categories=None)))
def test_any_label_has_a_file_of_its_own_inside_the_folder(first, second):
    files = PredictionFiles(Path("run"))
    path = files.path(first, 3)
    assert path.parent == Path("run/predictions") and path.name.isascii() and len(path.name) < 80
    assert (path == files.path(second, 3)) == (first == second)


def test_odd_labels(plan, tmp_path):
    label = "\x1b|\u202e/.."
    odd = replace(plan.config, methods=(MethodConfig("clip", label),), benchmark=str(plan.entry.path), seeds=(0,))
    odd_plan = make_plan(odd)
    (result,) = run(odd_plan, tmp_path, WITH)
    assert read_predictions(tmp_path / odd_plan.name, label, 0).accuracy == result.micro


def test_packing_loses_nothing(plan):
    federation = federate(open_benchmark(str(plan.entry.path)).embeddings, 3, 0)
    outcome = run_item(federation, replace(plan.config, methods=plan.config.methods[:1]), 0)
    first = predictions_of(federation, outcome)
    again = unpack(pack(first))
    columns = (*SAMPLE_COLUMNS, "image", "confidence")
    assert all((getattr(first, name) == getattr(again, name)).all() for name in columns)
    assert (first.clients, first.domains, first.classnames) == (again.clients, again.domains, again.classnames)


def test_the_source_image_is_stored_where_the_file_knows_it(plan):
    embeddings = open_benchmark(str(plan.entry.path)).embeddings
    numbered = replace(embeddings, index=np.arange(len(embeddings.labels)) // 2)
    federation = federate(numbered, 2, 0)
    found = predictions_of(federation, run_item(federation, replace(plan.config, methods=plan.config.methods[:1]), 0))
    assert (found.image == found.sample // 2).all()


def test_a_report_has_intervals_over_images_where_the_answers_are_stored(made, tmp_path):
    (table,) = build_report(collect([made])).tables
    totals = {(pair.first, pair.second): pair for pair in table.differences if pair.metric == "micro"}
    assert len(totals) == 6
    for (first, second), pair in totals.items():
        other = totals[second, first]
        assert (other.image_low, other.image_high) == (-pair.image_high, -pair.image_low), "the same draws"
        assert pair.image_low <= pair.low and pair.high <= pair.image_high
        assert pair.interval is None or pair.interval == (pair.image_low, pair.image_high), "the wider one counts"
    assert all(pair.image_low is None for pair in table.differences if pair.metric != "micro")
    assert "Clients per domain: 2." in table.notes and any("bootstrap" in note for note in table.notes)
    shown = {kind: render((table,), kind) for kind in ("text", "markdown", "csv", "json")}
    assert all("over splits and images" in shown[kind] for kind in ("text", "markdown"))
    assert "image_low,image_high" in shown["csv"]
    assert '"image_low": ' in shown["json"]
    folder = shutil.copytree(made, tmp_path / "damaged")
    damage_byte(folder)
    (table,) = build_report(collect([folder])).tables
    stored = {pair.image_low is not None for pair in table.differences if "TDA (local)" in (pair.first, pair.second)}
    assert stored == {False}, "damaged answers are not used"
    assert any(pair.image_low is not None for pair in table.differences)
    shutil.rmtree(folder / "predictions")
    (table,) = build_report(collect([folder])).tables
    assert all(pair.image_low is None for pair in table.differences)
    assert "95 % interval over splits" in render((table,), "text") and "images" not in " ".join(table.notes)


def test_a_sweep_keeps_them_too(plan, tmp_path):
    config = RunConfig(str(plan.entry.path), METHODS[1:2], clients_per_domain=2)
    sweep = make_sweep(config, [parse_axis("alpha=0.5,5")], open_benchmark(str(plan.entry.path)))
    for options, kind in ((WITHOUT, "done"), (WITH, "done"), (WITH, "existing")):
        events = list(execute_sweeps([sweep], tmp_path, options))
        assert [event.kind for _, event in events] == [kind] * 2
    for point, event in events:
        assert read_predictions(tmp_path / sweep.name / point.plan.name, "tda", 0).accuracy == event.result.micro


def test_the_command(plan, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    common = ["run", "--benchmark", str(plan.entry.path), "--methods", "clip,x=clip", "--jobs", "1", "--json"]

    def command(*more):
        with pytest.raises(SystemExit) as ended:
            main([*common, *more])
        assert not ended.value.code
        return json.loads(capsys.readouterr().out)

    rows = command()
    (folder,) = (tmp_path / "runs").iterdir()
    assert command("--dry-run")[0]["there already"] == 2
    assert command("--dry-run", "--predictions")[0]["there already"] == 0
    assert command("--predictions") == rows
    assert command("--dry-run", "--predictions")[0]["there already"] == 2
    assert read_predictions(folder, "x", 0).accuracy == rows[1]["accuracy"]
