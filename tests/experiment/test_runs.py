"""Run folders and the report command, on folders that a real run wrote and on broken ones."""

import json

import pytest
from click.testing import CliRunner

from latte.cli.report import report
from latte.experiment.collection import encoders, find_runs, read_run
from latte.experiment.config import configure
from latte.experiment.folder import ResultLine, RunFolder
from latte.experiment.plan import make_plan
from latte.experiment.runner import Options, run
from latte.simulation.results import Result
from report.fake import fake_results


@pytest.fixture(scope="module")
def real_run(tmp_path_factory):
    """A finished run of two methods and two seeds on the bundled benchmark."""
    methods = [{"name": "clip"}, {"name": "tda"}]
    plan = make_plan(configure({"benchmark": "cifar10c-mini", "methods": methods, "seeds": "0-1"}))
    out = tmp_path_factory.mktemp("runs")
    run(plan, out, Options(jobs=1))
    return out / plan.name


def write_run(folder, results, encoder=None, fingerprint="f"):
    """A run that was stopped after ``results``."""
    folder.mkdir(parents=True)
    for one in results:
        RunFolder(folder).append(ResultLine(one.to_json(), one), 0.1)
    if encoder:
        data = {"encoder": encoder, "fingerprint": fingerprint}
        (folder / "manifest.json").write_text(json.dumps({"run": folder.name, "data": data}))
    return folder


def invoke(*arguments):
    return CliRunner().invoke(report, list(map(str, arguments)))


def test_a_real_run(real_run):
    found = read_run(real_run)
    assert found.done
    assert len(found.results) == 4
    assert found.manifest["run"] == real_run.name
    assert found.config["config"]["benchmark"] == "cifar10c-mini"
    shown = invoke(real_run)
    assert shown.exit_code == 0
    assert "TDA (local)" in shown.stdout
    assert "Paper" not in shown.stdout  # the bundled embeddings are not CLIP's
    assert shown.stderr == ""


def test_points_of_a_sweep_are_reported_on_their_own_only(tmp_path):
    run_folder = write_run(tmp_path / "run", fake_results())
    sweep = tmp_path / "tuning" / "sweep-1"
    points = [write_run(sweep / name, fake_results()) for name in ("a", "b")]
    (sweep / "sweep.json").write_text("{}")
    assert find_runs([tmp_path]) == [run_folder]
    assert find_runs([sweep]) == find_runs([tmp_path / "tuning"]) == points


def test_every_format_of_a_real_run(real_run, tmp_path):
    starts = {
        "a.md": "###",
        "a.tex": "%",
        "a.json": "[",
        "a.csv": "kind,",
        "a.html": "<!doctype",
        "a.txt": "cifar10c-mini",
    }
    for name, start in starts.items():
        shown = invoke(real_run, "--out", tmp_path / "deep" / name)
        assert shown.exit_code == 0
        assert shown.stdout == ""
        assert (tmp_path / "deep" / name).read_text(encoding="utf-8").startswith(start)
    page = (tmp_path / "deep" / "a.html").read_text(encoding="utf-8")
    assert f"<summary>{real_run.name}</summary>" in page
    assert "sessions" in page


def test_a_folder_of_runs(real_run):
    assert find_runs([real_run.parent, real_run]) == [real_run]


def finish(folder, lines):
    RunFolder(folder).finish(lines)
    return folder


def test_extra_keys_are_left_out(tmp_path):
    results = fake_results(seeds=2)
    folder = write_run(tmp_path / "r", results)
    lines = [json.dumps({**json.loads(one.to_json()), "later": {"x": 1}}) for one in results]
    assert read_run(finish(folder, lines)).results == tuple(results)


def test_a_run_that_goes_on(tmp_path):
    results = fake_results(seeds=1)
    folder = write_run(tmp_path / "r", results)
    with (folder / "results.jsonl").open("a") as file:
        file.write(results[0].to_json()[:50])
    found = read_run(folder)
    assert (len(found.results), found.done, found.ignored) == (9, False, 0)
    assert "not finished, 9 results so far" in invoke(folder).stderr


def test_a_page_of_a_run_that_is_not_finished_says_what_is_missing(real_run, tmp_path):
    folder = write_run(tmp_path / "r", read_run(real_run).results[:3])  # clip twice, then tda of one seed
    (folder / "config.json").write_text((real_run / "config.json").read_text())
    assert invoke(folder, "--out", tmp_path / "page.html").exit_code == 0
    (lacking,) = {0, 1} - {result.seed for result in read_run(folder).results if result.method == "tda"}
    note = f"not finished, 3 results so far, without tda (seeds {lacking})"
    assert note in (tmp_path / "page.html").read_text(encoding="utf-8") and note in invoke(folder).stderr
    for damaged in ({"config": {"methods": [1, {}], "seeds": [[0]]}}, {"config": {"methods": {}}}, {"config": []}):
        (folder / "config.json").write_text(json.dumps(damaged))
        assert "not finished, 3 results so far" in (read_run(folder).note() or "")


def edited(line, **client):
    fields = json.loads(line)
    fields["clients"][0].update(client)
    return json.dumps(fields, sort_keys=True)


IMPOSSIBLE = [{"correct": 10**6}, {"correct": -1}, {"samples": 0, "correct": 0}, {"samples": -5}, {"correct": 1.5}]
BROKEN = ["{", "[]", "3", '{"method": "clip"}', '{"clients": 3}', "[" * 100_000]


def test_edited_lines_of_an_unfinished_run_are_not_believed(tmp_path):
    folder = write_run(tmp_path / "r", fake_results(seeds=1))
    path = folder / "results.jsonl"
    lines = path.read_text().splitlines()
    before = json.loads(lines[2])["clients"][0]["correct"]
    lines[2] = edited(lines[2], correct=before + 1)  # as plausible as any
    path.write_text("\n".join([*BROKEN, *lines, lines[0], ""]))
    found = read_run(folder)
    assert [result.to_json() for result in found.results] == lines[:2] + lines[3:]
    assert found.ignored == len(BROKEN) + 1
    shown = invoke(folder)
    assert "ignored 7 lines that items.jsonl does not vouch for" in shown.stderr and shown.exit_code == 0
    (folder / "items.jsonl").unlink()
    with pytest.raises(ValueError, match=r"items\.jsonl does not vouch for"):
        read_run(folder)


@pytest.mark.parametrize("change", IMPOSSIBLE, ids=str)
def test_what_cannot_be_is_refused_even_where_the_checksums_agree(tmp_path, change):
    result = fake_results(seeds=1)[0]
    line = edited(result.to_json(), **change)
    with pytest.raises(ValueError, match="clients"):
        Result.from_json(line)
    folder = finish(write_run(tmp_path / "r", [result]), [line])
    with pytest.raises(ValueError, match=r"results\.jsonl, line 1: .*clients\[0\]"):
        read_run(folder)


@pytest.mark.parametrize("line", BROKEN, ids=lambda line: line[:20])
def test_a_broken_line_of_a_finished_run_is_refused(tmp_path, line):
    result = fake_results(seeds=1)[0]
    folder = finish(write_run(tmp_path / "r", [result]), [result.to_json(), line])
    with pytest.raises(ValueError, match=r"results\.jsonl, line 2: ") as caught:
        read_run(folder)
    assert "\n" not in str(caught.value)
    twice = finish(folder, [result.to_json()] * 2)
    with pytest.raises(ValueError, match="line 2: got clip, seed 0 twice"):
        read_run(twice)


def test_results_that_were_changed_after_the_end_are_refused(real_run, tmp_path):
    folder = tmp_path / "copy"
    folder.mkdir()
    for name in ("results.jsonl", "done"):
        (folder / name).write_bytes((real_run / name).read_bytes())
    assert read_run(folder).done
    text = (folder / "results.jsonl").read_text()
    (folder / "results.jsonl").write_text(text.replace('"correct": ', '"correct": 1', 1))
    with pytest.raises(ValueError, match="other results than the run ended with"):
        read_run(folder)


def test_folders_without_results_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"no results\.jsonl"):
        find_runs([tmp_path])
    (tmp_path / "results.jsonl").write_text("")
    with pytest.raises(ValueError, match="is empty"):
        read_run(tmp_path)
    (tmp_path / "manifest.json").write_text("{")
    RunFolder(tmp_path).append(ResultLine.parse(fake_results(seeds=1)[0].to_json()), 0.1)
    with pytest.raises(ValueError, match="not JSON"):
        read_run(tmp_path)


def test_two_encoders_in_one_table_are_refused(tmp_path):
    results = fake_results(seeds=1)
    one = write_run(tmp_path / "a", results, "CLIP RN50", "same")
    two = write_run(tmp_path / "b", results, "mini-VLM", "same")
    three = write_run(tmp_path / "c", results, "CLIP RN50", "another")
    with pytest.raises(ValueError, match="do not compare"):
        encoders([read_run(one), read_run(two)])
    with pytest.raises(ValueError, match="one encoder per comparison"):
        encoders([read_run(one), read_run(three)])


def test_the_papers_numbers_on_the_command_line(tmp_path):
    results = fake_results(seeds=2)
    silent = write_run(tmp_path / "silent", results, "unknown")
    mini = write_run(tmp_path / "mini", results, "mini-VLM")
    clip = write_run(tmp_path / "clip", results, "hf:openai/clip-vit-base-patch16")
    assert "Paper" not in invoke(silent).stdout
    assert "40.06 ±0.13" in invoke(silent, "--backbone", "RN50").stdout
    assert "68.27 ±0.13" in invoke(clip).stdout
    assert "Paper" not in invoke(mini).stdout
    refused = invoke(mini, "--backbone", "RN50")
    assert isinstance(refused.exception, ValueError)
    assert "mini-VLM" in str(refused.exception)
