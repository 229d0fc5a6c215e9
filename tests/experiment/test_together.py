"""Runs that differ in how the memory is read only share one replay; nobody can tell from the results."""

from __future__ import annotations

from dataclasses import replace

import pytest

from latte.experiment.config import MethodConfig, RunConfig
from latte.experiment.item import batches
from latte.experiment.plan import Item, Job, open_benchmark, plan_on
from latte.experiment.runner import Options, execute
from latte.experiment.sweep import execute_sweeps, make_sweep, parse_axis
from small_benchmark import small_file

pytestmark = pytest.mark.usefixtures("one_process")
TWO = Options(jobs=2)


@pytest.fixture(scope="module")
def benchmark(tmp_path_factory):
    return open_benchmark(str(small_file(tmp_path_factory.mktemp("data"))))


def config(*methods, **more):
    return RunConfig("small", tuple(MethodConfig(m) for m in methods), clients_per_domain=2, **{"seeds": (3,), **more})


def jobs_of(sweep):
    return [Job(point.plan, item) for point in sweep.points for item in point.plan.items()]


def test_a_grid_of_readouts_is_one_batch_per_method_and_seed(benchmark):
    axes = [parse_axis("alpha=0.5,1,2"), parse_axis("beta=2,8")]
    jobs = jobs_of(make_sweep(config("latte", "tda", seeds=(0, 1)), axes, benchmark))
    groups = batches(jobs)
    assert sorted(position for group in groups for position in group) == list(range(len(jobs)))
    assert [len(group) for group in groups] == [6] * 4
    for group in groups:
        assert len({(jobs[position].item.method.name, jobs[position].item.seed) for position in group}) == 1


@pytest.mark.parametrize("axis", ["gamma=1,2", "k_l=2,3", "T=1,3", "clients_per_domain=1,2"])
def test_what_changes_the_memory_is_not_shared(benchmark, axis):
    assert [len(group) for group in batches(jobs_of(make_sweep(config("latte"), [parse_axis(axis)], benchmark)))] == [
        1,
        1,
    ]


def test_neither_is_what_has_no_engine(benchmark):
    axis = [parse_axis("alpha=1,2")]
    by_hand = make_sweep(config("latte", engine="readable"), axis, benchmark)
    several_views = plan_on(config("clip"), benchmark)
    assert [len(group) for group in batches(jobs_of(by_hand))] == [1, 1]
    assert batches([Job(several_views, Item(several_views.config.methods[0], 0))]) == [[0]]


def test_rows_of_one_run_share_too(benchmark):
    methods = (MethodConfig("latte", label="a", params={"alpha": 0.5}), MethodConfig("latte", label="b"))
    plan = plan_on(replace(config("latte"), methods=methods), benchmark)
    assert batches([Job(plan, item) for item in plan.items()]) == [[0, 1]]


@pytest.mark.parametrize(
    ("method", "axes"),
    [
        ("latte", ("alpha=0.5,2", "beta=2,30")),
        ("tda", ("alpha=0.5,2", "beta=2,8")),
        ("dmn", ("weight=0.1,10",)),
        ("dmn-global", ("weight=0.1,10", "beta=2,8")),
    ],
)
def test_every_point_is_what_it_would_be_alone(benchmark, tmp_path, method, axes):
    sweep = make_sweep(config(method), [parse_axis(axis) for axis in axes], benchmark)
    assert {event.kind for _, event in execute_sweeps([sweep], tmp_path / "together", TWO)} == {"done"}
    for point in sweep.points:
        assert [event.kind for event in execute(point.plan, tmp_path / "alone", TWO)] == ["done"]
        together = tmp_path / "together" / sweep.name / point.plan.name
        alone = tmp_path / "alone" / point.plan.name
        for name in ("results.jsonl", "config.json", "done"):
            assert (together / name).read_bytes() == (alone / name).read_bytes()


def test_a_sweep_that_was_stopped_goes_on(benchmark, tmp_path):
    sweep = make_sweep(config("latte", "clip"), [parse_axis("alpha=0.5,1,2")], benchmark)
    events = execute_sweeps([sweep], tmp_path, TWO)
    next(events)
    events.close()
    kinds = [event.kind for _, event in execute_sweeps([sweep], tmp_path, TWO)]
    assert kinds.count("existing") >= 1 and len(kinds) == 6
    assert [event.kind for _, event in execute_sweeps([sweep], tmp_path, TWO)] == ["existing"] * 6
