"""Real pictures of a small federation; the numbers beside them computed again."""

from __future__ import annotations

import csv
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from latte.cli import cli
from latte.data.federation import federate
from latte.errors import need
from latte.experiment import runner
from latte.experiment.config import MethodConfig, RunConfig
from latte.experiment.item import run_item
from latte.experiment.plan import open_benchmark, plan_on
from latte.experiment.runner import Options
from latte.methods import resolve
from latte.paper.figures.draw import Placed, classes_to_draw, lines_of, tsne
from latte.paper.figures.make import FIGURES, make_figures, write_gallery
from latte.paper.studies import (
    PERIODS,
    RISTRETTO_GRIDS,
    STUDY_GRIDS,
    WITHOUT,
    ClientMemory,
    MemoryItems,
    Score,
    ablation,
    client_numbers,
    collaboration,
    decentralisation,
    make_setup,
    measure,
    memories,
    memory_items,
    period,
    preset_for,
    routing,
    sensitivity,
    summary,
)
from latte.report.page.sections import picture_section
from latte.simulation.simulator import Schedule, run_readable, set_up, simulate
from latte.simulation.wrapped import share_inside
from small_benchmark import small_file

pytestmark = pytest.mark.usefixtures("one_process")


@pytest.fixture(scope="module")
def setup(tmp_path_factory):
    path = small_file(tmp_path_factory.mktemp("data"))
    return make_setup(open_benchmark(str(path)), (0, 1), clients=2)


@pytest.fixture(scope="module")
def made(setup, tmp_path_factory):
    folder = tmp_path_factory.mktemp("figures")
    return make_figures(FIGURES, setup, folder, Options(jobs=2))


def rows_of(picture):
    with picture.path("csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


# --- files -------------------------------------------------------------------------------------------------------


def test_every_figure_is_a_png_an_svg_and_a_csv(made):
    assert [picture.name for picture in made] == list(FIGURES)
    for picture in made:
        png = picture.path("png").read_bytes()
        assert png[:8] == b"\x89PNG\r\n\x1a\n"
        assert int.from_bytes(png[16:20], "big") > 600  # pixels across
        root = ElementTree.fromstring(picture.path("svg").read_text(encoding="utf-8"))
        assert root.tag.endswith("svg")
        assert rows_of(picture)
        assert picture.caption.endswith(".")


def test_the_same_numbers_give_the_same_svg(made, setup, tmp_path):
    (again,) = make_figures(["ablation"], setup, tmp_path, Options(jobs=1))
    first = next(picture for picture in made if picture.name == "ablation")
    for ending in ("svg", "png", "csv"):
        assert again.path(ending).read_bytes() == first.path(ending).read_bytes()


def test_page_shows_every_figure_without_the_network(made, setup):
    page = write_gallery(made, setup, made[0].folder).read_text(encoding="utf-8")
    assert page.count("data:image/svg+xml;base64,") == len(FIGURES)
    for picture in made:
        assert f'href="{picture.name}.csv"' in page
    assert "http://" not in page.replace("http://www.w3.org", "")


def test_a_picture_without_a_size_is_refused():
    with pytest.raises(ValueError, match="viewBox"):
        picture_section("x", "<svg></svg>")


# --- numbers -----------------------------------------------------------------------------------------------------


def accuracy(setup, seed, clients, name, params, schedule=None):
    federation = federate(setup.benchmark.embeddings, clients, seed)
    outcome = run_readable(federation, name, resolve(name, params), schedule)
    return outcome.result(federation, name, {}, "default", seed).micro


def test_decentralisation_again(made, setup):
    rows = rows_of(made[FIGURES.index("decentralisation")])
    assert {row["method"] for row in rows} == {"clip", "tda", "tda-global", "dmn", "dmn-global", "latte", "ristretto"}
    assert {int(row["value"]) for row in rows} == {1, 2, 3, 4, 6, 12}
    for row in rows[::3]:
        again = accuracy(setup, int(row["seed"]), int(row["value"]), row["method"], {})
        assert float(row["accuracy"]) == pytest.approx(again, abs=1e-9)


def test_period_again(made, setup):
    rows = rows_of(made[FIGURES.index("period")])
    for line in ("latte", "ristretto", "latte+doubling", "ristretto+doubling"):
        name, _, kind = line.partition("+")
        points = [row for row in rows if row["method"] == line]
        assert {int(row["value"]) for row in points} == set(PERIODS) - ({1} if kind else set())
        for row in points[::3]:
            schedule = Schedule(int(row["value"]), sync=kind or "every")
            again = accuracy(setup, int(row["seed"]), 2, name, {}, schedule)
            assert float(row["accuracy"]) == pytest.approx(again, abs=1e-9)


def test_ablation_again(made, setup):
    changes = {
        ("memory", "local only"): {"memory": "local"},
        ("memory", "external only"): {"memory": "external"},
        ("memory", "both"): {},
        ("weights", "similarity only"): {"gamma": 0.0, "gamma_prototype": 1.5},
        ("weights", "certainty only"): {"beta": 0.0},
        ("weights", "both"): {},
    }
    rows = rows_of(made[FIGURES.index("ablation")])
    assert {(row["panel"], row["value"]) for row in rows} == set(changes)
    for row in rows:
        again = accuracy(setup, int(row["seed"]), 2, "latte", changes[row["panel"], row["value"]])
        assert float(row["accuracy"]) == pytest.approx(again, abs=1e-9)


def test_sensitivity_again(made, setup):
    rows = rows_of(made[FIGURES.index("sensitivity")])
    assert {row["panel"] for row in rows} == {*STUDY_GRIDS, *RISTRETTO_GRIDS}
    for row in rows[::4]:
        value = int(row["value"]) if row["panel"] in ("k_l", "k_e") else float(row["value"])
        again = accuracy(setup, int(row["seed"]), 2, row["method"], {row["panel"]: value})
        assert float(row["accuracy"]) == pytest.approx(again, abs=1e-9)


def test_steps_again(made, setup):
    rows = rows_of(made[FIGURES.index("steps")])
    assert [row["value"] for row in rows[::2]] == list(WITHOUT)
    for row in rows:
        again = accuracy(setup, int(row["seed"]), 2, "ristretto", WITHOUT[row["value"]])
        assert float(row["accuracy"]) == pytest.approx(again, abs=1e-9)
    zero_shot = accuracy(setup, 0, 2, "clip", {})
    assert float(next(row["accuracy"] for row in rows if row["value"] == "5 no head")) == zero_shot


def test_routes_again(made, setup):
    rows = rows_of(made[FIGURES.index("routing")])
    shares, n = routing(replace(setup, settings=("engine=readable",))), 4
    table = np.array([float(row["share"]) for row in rows]).reshape(n, n)
    np.testing.assert_allclose(table, shares.downloads, atol=1e-9)
    assert (table.diagonal() == 0).all() and table.max() <= 1 and table.sum() > 0
    assert f"{shares.share.inside:.1f} %" in made[FIGURES.index("routing")].caption
    assert shares.share.best == pytest.approx(100.0)  # a head may use its own domain only


def test_means_and_spreads():
    scores = [Score("", "latte", 1, seed, value) for seed, value in enumerate((50.0, 52.0, 57.0))]
    ((_, mean, sd),) = summary(scores)
    assert (mean, sd) == pytest.approx((53.0, np.sqrt(13.0)))
    assert lines_of(scores)["latte"][1] == pytest.approx((mean, sd))
    assert summary(scores[:1])[0][2] == 0


def test_the_same_run_is_done_once(setup, tmp_path):
    """A point that several figures share is one item of work."""
    done = []
    usual = setup.latte.k_l
    both = [case for case in ablation(setup) if case.value == "both"]
    cases = both + [case for case in sensitivity(setup) if (case.panel, case.value) == ("k_l", usual)]
    scores = measure(setup, cases, tmp_path, Options(jobs=1), lambda *step: done.append(step))
    assert done == [("runs", 0, 2), ("runs", 1, 2), ("runs", 2, 2)]  # one configuration, two seeds
    assert len(scores) == 2 * len(cases)


# --- run once ----------------------------------------------------------------------------------------------------


def test_a_second_call_runs_nothing_again(made, setup):
    folder, steps = made[0].folder, []
    before = {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
    again = make_figures(FIGURES, setup, folder, Options(jobs=1), progress=lambda *step: steps.append(step))
    assert again == made and steps[1][0] == "runs there already" and steps[1][1] == steps[1][2]
    assert {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()} == before


def test_a_stopped_call_goes_on_where_it_was(setup, tmp_path):
    class StopError(Exception):
        pass

    def stop(what, done, total):
        if (what, done) == ("runs", 4):
            raise StopError

    with pytest.raises(StopError):
        make_figures(["ablation"], setup, tmp_path / "a", Options(jobs=1), progress=stop)
    steps = []
    (picture,) = make_figures(["ablation"], setup, tmp_path / "a", Options(jobs=1), progress=lambda *s: steps.append(s))
    assert steps[:3] == [("runs", 0, 10), ("runs there already", 4, 10), ("runs", 5, 10)]
    (whole,) = make_figures(["ablation"], setup, tmp_path / "b", Options(jobs=1))
    assert picture.path("csv").read_bytes() == whole.path("csv").read_bytes()


def test_a_failed_run_is_named_and_the_others_are_there(setup, tmp_path, monkeypatch):
    def fail(jobs, options):
        yield 0, MemoryError("too large")
        yield from ((i + 1, answer) for i, answer in real(jobs[1:], options))

    real = runner.do_items
    monkeypatch.setattr(runner, "do_items", fail)
    with pytest.raises(runner.IncompleteError, match="latte, seed 0: MemoryError: too large; 1 of 2 items failed"):
        make_figures(["ablation"], setup, tmp_path, Options(jobs=1))
    monkeypatch.undo()
    steps = []
    make_figures(["ablation"], setup, tmp_path, Options(jobs=1), progress=lambda *step: steps.append(step))
    assert steps[:3] == [("runs", 0, 10), ("runs there already", 9, 10), ("runs", 10, 10)]


@pytest.mark.parametrize(("package", "name"), [("matplotlib.figure", "period"), ("sklearn.manifold", "memory")])
def test_a_missing_package_is_named_before_anything_runs(setup, tmp_path, monkeypatch, package, name):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "matplotlib>=.*the extra report'):
        make_figures([name, "ablation"], setup, tmp_path / "new", Options(jobs=1))
    assert not (tmp_path / "new").exists()


# --- who downloads from whom -------------------------------------------------------------------------------------


def test_map_is_the_same_by_both_ways(setup):
    fast, readable = collaboration(setup), collaboration(replace(setup, settings=("engine=readable",)))
    np.testing.assert_array_equal(fast.downloads, readable.downloads)
    assert (fast.share, fast.clients) == (readable.share, readable.clients)


def test_map_is_the_same_by_both_ways_on_real_embeddings(shared):
    """CIFAR-10-C, 190 clients, the first images of each."""
    benchmark = open_benchmark(str(shared / "data" / "embeddings" / "cifar10c.npz"))
    whole = federate(benchmark.embeddings, 10, 0)
    federation = replace(whole, clients=tuple(replace(c, samples=c.samples[:12]) for c in whole.clients))
    config = plan_on(
        RunConfig(str(benchmark.entry.path), (MethodConfig("latte", preset="cifar10c"),)), benchmark
    ).config
    fast = run_item(federation, config, 0)
    readable = run_item(federation, replace(config, engine="readable"), 0)
    np.testing.assert_array_equal(fast.downloads, readable.downloads)


def test_map_in_the_file_gives_the_share(made, setup):
    rows = rows_of(made[FIGURES.index("collaboration")])
    total = sum(int(row["downloads"]) for row in rows)
    inside = sum(int(row["downloads"]) for row in rows if row["domain"] == row["from_domain"])
    found = collaboration(setup)
    assert found.share.inside == pytest.approx(100 * inside / total)
    assert all(int(row["downloads"]) == 0 for row in rows if row["client"] == row["from_client"])
    assert found.share.chance == pytest.approx(100 / 3)  # one peer among three others
    assert found.share.inside <= found.share.best < 50  # k_e = 9 asks for all three, as soon as they know a class
    assert f"{found.share.inside:.1f} %" in made[FIGURES.index("collaboration")].caption


def test_clients_are_sorted_by_domain(setup):
    found = collaboration(setup)
    assert list(found.domains) == sorted(found.domains)
    groups = np.array([0, 0, 1, 1])
    assert share_inside(found.downloads, groups) == pytest.approx(found.share.inside)


# --- memories ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("samples", [1, 2, 7, 10, 300])
def test_memories_are_those_of_a_whole_simulation(setup, samples):
    """Only storing and the last exchange take place for the figure; here everyone predicts and exchanges."""
    whole = federate(setup.benchmark.embeddings, setup.clients, 0)
    federation = replace(whole, clients=tuple(replace(c, samples=c.samples[:samples]) for c in whole.clients))
    clients, exchange = set_up(federation, "latte", setup.latte)
    for _ in simulate(clients, exchange, Schedule()):
        pass
    methods = {client.name: client.method for client in clients}
    for memory in memories(setup, samples):
        for found, expected in zip((memory.local, memory.merged), memory_items(methods[memory.client]), strict=True):
            for name in ("vectors", "label", "entropy", "external"):
                np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
        merged = methods[memory.client].merged
        assert len(memory.merged.label) == np.isfinite(merged.offset).sum()  # what the method itself reads
        assert {v.tobytes() for v in memory.merged.vectors} == {
            v.tobytes() for v in merged.vectors[np.isfinite(merged.offset)]
        }


def test_memories_of_one_client_per_domain(setup):
    found = memories(setup, samples=10)
    assert [memory.domain for memory in found] == ["x", "y"]
    for memory in found:
        assert memory.samples == 10
        assert len(memory.local.label) == 10  # 12 slots per class: all ten are stored
        assert not memory.local.external.any()
        assert memory.merged.external.any()


def test_memory_file_has_the_items(made, setup):
    rows = rows_of(made[FIGURES.index("memory")])
    for memory in memories(setup):
        for name, items in (("local", memory.local), ("merged", memory.merged)):
            mine = [row for row in rows if (row["client"], row["memory"]) == (memory.client, name)]
            np.testing.assert_array_equal([float(row["entropy"]) for row in mine], items.entropy)
            np.testing.assert_array_equal([int(row["external"]) for row in mine], items.external)


def test_of_many_classes_those_with_most_items_are_drawn():
    label = np.repeat(np.arange(30), np.arange(30) % 15 + 1)  # 14 and 29 have the most
    items = MemoryItems(np.zeros((len(label), 2), np.float32), label, np.zeros(len(label)), np.zeros(len(label), bool))
    one = Placed(ClientMemory("c", "d", 1, items, items), np.zeros((len(label), 2)), np.zeros((len(label), 2)))
    drawn = classes_to_draw([one], 30)
    assert drawn == [9, 10, 11, 12, 13, 14, 24, 25, 26, 27, 28, 29]
    assert classes_to_draw([one], 12) == list(range(12))


@pytest.mark.parametrize("n", [1, 2, 4, 5, 9])
def test_tsne_places_any_number(n):
    vectors = np.random.default_rng(0).standard_normal((n, 6)).astype(np.float32)
    places = tsne(vectors)
    assert places.shape == (n, 2)
    assert np.isfinite(places).all()


# --- what is asked -----------------------------------------------------------------------------------------------


def test_nobody_is_without_an_image(setup):
    assert client_numbers(setup) == (1, 2, 3, 4, 6, 12)
    few = replace(setup.benchmark.embeddings, domain=np.repeat([0, 1], [45, 3]))
    assert client_numbers(replace(setup, benchmark=replace(setup.benchmark, embeddings=few))) == (1, 2, 3)


def test_values_replace_the_grid(setup):
    assert {case.value for case in decentralisation(setup, (1, 7))} == {1, 7}
    assert {case.value for case in period(setup, (4,))} == {4}


@pytest.mark.parametrize(("name", "preset"), [("VLCS-vit", "vlcs"), ("cifar-100-c", "cifar100c"), ("x", None)])
def test_preset_by_name(name, preset):
    assert preset_for(name) == preset


def test_a_missing_package_gives_the_pip_line():
    with pytest.raises(ModuleNotFoundError, match=r'pip install "matplotlib>=.*the extra report'):
        need("no_such_package", "report")


FILES = {"period.png", "period.svg", "period.csv", "index.html", "runs"}


def test_command(setup, tmp_path):
    path, out = str(setup.benchmark.entry.path), tmp_path / "out"
    arguments = ["paper", "figure", "period", "--benchmark", path, "--clients", "2", "--seeds", "0", "--values", "1,3"]
    done = CliRunner().invoke(cli, [*arguments, "--out", str(out), "--jobs", "1"])
    assert done.exit_code == 0, done.output
    assert {file.name for file in out.iterdir()} == FILES
    assert "One seed" in done.output
    again = CliRunner().invoke(cli, [*arguments, "--out", str(out), "--jobs", "1"])
    assert again.exit_code == 0 and "runs there already" in again.stderr
    assert again.stdout == done.stdout
    wrong = CliRunner().invoke(cli, ["paper", "figure", "ablation", "--benchmark", path, "--values", "1"])
    assert wrong.exit_code == 2
    wrong = CliRunner().invoke(cli, ["paper", "figure", "decentralisation", "--benchmark", path, "--clients", "2"])
    assert wrong.exit_code == 2 and "--values, not --clients" in wrong.output
    with pytest.raises(ValueError, match="--values"):
        CliRunner().invoke(cli, [*arguments[:-1], "0,x", "--out", str(out)], catch_exceptions=False)
