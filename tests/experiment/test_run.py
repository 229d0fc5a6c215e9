"""Runs: identical bits, only what is missing, and nothing damaged is trusted."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from latte.data.federation import federate
from latte.errors import InputError
from latte.experiment.collection import check_classifiers, check_plans, encoders, find_runs, read_run
from latte.experiment.config import MethodConfig, RunConfig
from latte.experiment.folder import RunFolder
from latte.experiment.item import run_item
from latte.experiment.plan import make_plan, open_benchmark
from latte.experiment.runner import (
    Done,
    IncompleteError,
    Options,
    Session,
    execute,
    in_order,
    results,
    run,
    run_trials,
)
from latte.simulation.results import ClientScore, Result
from latte.simulation.simulator import run_readable
from small_benchmark import small_file
from waiting import one_process

METHODS = (MethodConfig("clip"), MethodConfig("tda"), MethodConfig("latte", params={"k_l": 2}))
ONE = Options(jobs=1)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A plan, the folder it ran in, and its results."""
    out = tmp_path_factory.mktemp("made")
    path = small_file(out)
    plan = make_plan(RunConfig(str(path), METHODS, seeds=(0, 1), clients_per_domain=2))
    run(plan, out / "runs", Options(jobs=2))
    return plan, out / "runs" / plan.name


@pytest.fixture(autouse=True)
def here():
    """Do what follows ``made``, which two processes did, in this one."""
    with one_process():
        yield


def copy(folder, target):
    for path in folder.iterdir():
        target.mkdir(parents=True, exist_ok=True)
        (target / path.name).write_bytes(path.read_bytes())
    return target


def kinds(plan, out):
    return [event.kind for event in execute(plan, out, ONE)]


def test_what_a_finished_folder_holds(made):
    plan, folder = made
    lines = (folder / "results.jsonl").read_text().splitlines()
    found = [Result.from_json(line) for line in lines]
    assert [(r.method, r.seed) for r in found] == [(m, s) for m in ("clip", "tda", "latte") for s in (0, 1)]
    assert all(r.benchmark == "small" and r.samples == 48 and len(r.clients) == 4 for r in found)
    assert found[4].params["k_l"] == 2 and found[4].setting == "custom" and found[0].setting == "default"
    text = open_benchmark(plan.config.benchmark, folder.parent.parent).embeddings.zero_shot.text
    per_sync = 2 * (1 + found[4].params["k_e"]) * text.size
    assert found[0].sent is found[2].sent is None and found[4].sent == 11 * per_sync, (
        "12 images, no sync after the last"
    )
    manifest = json.loads((folder / "manifest.json").read_text())
    (session,) = manifest["sessions"]
    assert manifest["data"]["sha256"] == plan.data.sha256 and manifest["seeds"] == [0, 1]
    assert session["started"] <= session["ended"] and session["versions"]["numpy"] == np.__version__
    assert session["machine"]["cores"] and session["threads_per_job"] == 1
    config = json.loads((folder / "config.json").read_text())
    assert config["config"]["methods"][2]["params"]["beta"] == 12.0, "the configuration is resolved"


def test_results_are_those_of_the_simulator(made):
    plan, folder = made
    embeddings = open_benchmark(str(plan.entry.path)).embeddings
    federation = federate(embeddings, 2, 1)
    want = run_readable(federation, "tda").result(federation, "tda", {}, "default", 1)
    assert results(plan, folder.parent)[3].clients == want.clients


def test_two_runs_give_the_same_bytes_whatever_the_number_of_processes(made, tmp_path):
    plan, folder = made
    assert kinds(plan, tmp_path) == ["done"] * 6
    assert (tmp_path / plan.name / "results.jsonl").read_bytes() == (folder / "results.jsonl").read_bytes()
    assert (tmp_path / plan.name / "done").read_bytes() == (folder / "done").read_bytes()


def test_a_finished_run_is_only_read(made):
    plan, folder = made
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert kinds(plan, folder.parent) == ["existing"] * 6
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before


def damage_half_line(folder):
    content = (folder / "results.jsonl").read_bytes()
    (folder / "results.jsonl").write_bytes(content[: -len(content) // 8])
    return 1


def damage_number(folder):
    lines = (folder / "results.jsonl").read_text().splitlines(keepends=True)
    fields = json.loads(lines[2])
    fields["clients"][0]["correct"] += 1
    lines[2] = json.dumps(fields, sort_keys=True) + "\n"
    (folder / "results.jsonl").write_text("".join(lines))
    return 1


def damage_rubbish(folder):
    with (folder / "results.jsonl").open("ab") as file:
        file.write(b"\xff\x00 not json\n[]\n{}\nnull\n")
    return 0


def damage_items(folder):
    lines = (folder / "items.jsonl").read_text().splitlines(keepends=True)
    (folder / "items.jsonl").write_text("".join(lines[:-1]) + lines[-1][:20])
    (folder / "done").unlink()
    return 1


def damage_manifest_and_config(folder):
    (folder / "manifest.json").write_text("{")
    (folder / "config.json").write_text("")
    (folder / "done").unlink()
    return 0


def damage_version(folder):
    text = (folder / "manifest.json").read_text()
    version = json.loads(text)["sessions"][0]["versions"]["latte-tta"]
    (folder / "manifest.json").write_text(text.replace(f'"latte-tta": "{version}"', '"latte-tta": "0.0.0"'))
    return 6


DAMAGE = [damage_half_line, damage_number, damage_rubbish, damage_items, damage_manifest_and_config, damage_version]


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda f: f.__name__[7:])
def test_a_damaged_folder_is_repaired_to_the_same_bytes(made, tmp_path, damage):
    plan, folder = made
    broken = copy(folder, tmp_path / plan.name)
    redone = damage(broken)
    assert kinds(plan, tmp_path).count("done") == redone
    for name in ("results.jsonl", "done", "config.json"):
        assert (broken / name).read_bytes() == (folder / name).read_bytes()
    assert json.loads((broken / "manifest.json").read_text())["sessions"][-1]["ended"]
    assert RunFolder(broken).complete()


def test_a_stopped_run_keeps_what_is_done(made, tmp_path):
    plan, folder = made
    events = execute(plan, tmp_path, ONE)
    next(events)
    next(events)
    events.close()
    assert len(RunFolder(tmp_path / plan.name).trusted(plan)) == 2
    with pytest.raises(ValueError, match="not done"):
        results(plan, tmp_path)
    assert sorted(kinds(plan, tmp_path)) == ["done"] * 4 + ["existing"] * 2
    assert (tmp_path / plan.name / "results.jsonl").read_bytes() == (folder / "results.jsonl").read_bytes()
    assert len(json.loads((tmp_path / plan.name / "manifest.json").read_text())["sessions"]) == 2


def test_two_processes_do_not_share_a_folder(made, tmp_path):
    pytest.importorskip("fcntl")
    plan, _ = made
    with RunFolder(tmp_path / plan.name).lock(), pytest.raises(ValueError, match="another process"):
        next(execute(plan, tmp_path, ONE))


def test_the_name_follows_everything_that_decides_the_numbers(made, tmp_path):
    plan, _ = made
    config = RunConfig(str(plan.entry.path), METHODS, seeds=(0, 1), clients_per_domain=2)
    assert make_plan(config).name == plan.name
    others = [
        replace(config, seeds=(0, 2)),
        replace(config, clients_per_domain=3),
        replace(config, order="correlated"),
        replace(config, schedule=replace(config.schedule, period=2)),
        replace(config, methods=METHODS[:2]),
        replace(config, benchmark=str(small_file(tmp_path, seed=1))),
    ]
    names = {make_plan(other).name for other in others}
    assert len(names | {plan.name}) == 1 + len(others)
    same = replace(config, methods=(*METHODS[:2], MethodConfig("latte", params={"k_l": 2, "alpha": 1})))
    assert make_plan(same).name == plan.name, "1 is 1.0, and a default that is spelt out is the default"


def test_a_run_that_cannot_start_is_refused_before_anything_is_written(made):
    plan, _ = made
    config = RunConfig(str(plan.entry.path), METHODS, clients_per_domain=2)
    with pytest.raises(ValueError, match="25 for 24 images of x"):
        make_plan(replace(config, clients_per_domain=25))
    for name in ("vte", "zero", "tpt"):
        with pytest.raises(InputError, match=f"one view of each image, want several views of each image for {name}"):
            make_plan(replace(config, methods=(MethodConfig(name),)))


def test_encoders_are_not_mixed(made, tmp_path):
    plan, folder = made
    other = make_plan(replace(plan.config, benchmark=str(small_file(tmp_path, seed=9)), seeds=(0,)))
    check_plans([plan, plan])
    with pytest.raises(ValueError, match="one encoder per comparison"):
        check_plans([plan, other])
    run(other, tmp_path, ONE)
    assert len(read_run(folder).results) == 6
    with pytest.raises(ValueError, match=r"benchmark small: got another encoder"):
        encoders([read_run(path) for path in find_runs([folder.parent, tmp_path])])
    (tmp_path / other.name / "results.jsonl").write_text("")
    with pytest.raises(ValueError, match="other results than the run ended with"):
        read_run(tmp_path / other.name)
    with pytest.raises(ValueError, match=r"has no results\.jsonl"):
        find_runs([tmp_path / "nowhere"])
    check_classifiers([("a", "1", "x"), ("b", "2", "y")])


def test_partial_participation_is_drawn_from_its_own_generator(made):
    plan, _ = made
    embeddings = open_benchmark(str(plan.entry.path)).embeddings
    half = replace(plan.config.schedule, participation=0.5)
    config = replace(plan.config, methods=plan.config.methods[2:], schedule=half)
    federation = federate(embeddings, 2, 0)
    first, again = run_item(federation, config, 0), run_item(federation, config, 0)
    assert all((a == b).all() for a, b in zip(first.labels, again.labels, strict=True))
    assert all((labels >= 0).all() for labels in first.labels)


def test_a_record_that_cannot_be_read_back_is_a_failure(tmp_path):
    """It would not be in the table, and the run would end as if nothing had happened."""
    plan = make_plan(RunConfig("cifar10c-mini", (MethodConfig("clip"),)))
    session = Session(plan, RunFolder(tmp_path / plan.name))
    session.start({})
    (item,) = session.missing
    good = Result("cifar10c-mini", "clip", {}, "default", 0, (ClientScore("a", "b", 1, 1),))
    for bad in (replace(good, params={"sizes": (1, 2)}), replace(good, method="tda"), replace(good, setting="tuned")):
        event = session.take(item, Done(bad.to_json(), 0.1, None))
        assert event.kind == "failed" and "cannot be read back" in event.problem
    assert session.take(item, Done(good.to_json(), 0.1, None)).kind == "done"
    with pytest.raises(IncompleteError, match="3 of 1"):
        session.close()


def test_a_manifest_says_what_was_calculated_approximately(tmp_path):
    plan = make_plan(RunConfig("cifar10c-mini", (MethodConfig("ristretto"),)))
    session = Session(plan, RunFolder(tmp_path / plan.name))
    session.start({})
    (item,) = session.missing
    score = (ClientScore("a", "b", 1, 1),)
    params = dict(plan.config.methods[0].params)
    done = Result("cifar10c-mini", "ristretto", params, "default", 0, score, approximation="a sample of clients")
    assert session.take(item, Done(done.to_json(), 0.1, None)).kind == "done"
    session.close()
    (entry,) = session.folder.manifest()["sessions"]
    assert entry["approximate"] == {"ristretto": "a sample of clients"}


def test_trials_are_run_in_memory():
    methods = (MethodConfig("clip"), MethodConfig("latte", params={"k_l": 2}))
    plan = make_plan(RunConfig("cifar10c-mini", methods, engine="readable"))
    clip, latte = in_order(run_trials(plan, Options(2)), plan)
    for trial in (clip, latte):
        assert trial.over_time[-1] == pytest.approx(trial.result.micro)
        assert trial.predictions is not None and trial.predictions.accuracy == trial.result.micro
    assert clip.downloads is None and latte.downloads.ndim == 2 and latte.downloads.sum() > 0
