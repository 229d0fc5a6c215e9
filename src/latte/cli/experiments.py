"""``latte run``, ``sweep`` and ``tune``: methods on benchmarks, into folders that can be resumed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .options import InputFile, OutputFile
from .output import line, print_rows
from .run_options import (
    ExperimentOptions,
    check_requirements,
    collect_failures,
    experiment_options,
    follow,
    make_options,
    running_options,
    summarise,
)

if TYPE_CHECKING:
    from ..experiment.runner import Options
    from ..experiment.sweep import Point
    from ..experiment.tune import Tuning


@click.command()
@experiment_options
@running_options
@click.option("--tuned", type=InputFile(), help="File of parameters that latte tune wrote.")
@click.option("--predictions", is_flag=True, help="Keep the prediction of every sample, too, in the run folder.")
def run(
    chosen: ExperimentOptions,
    runs: Path,
    jobs: int | str,
    dry_run: bool,
    as_json: bool,
    tuned: Path | None,
    predictions: bool,
) -> None:
    """Run methods on benchmarks and print their accuracy.

    What to run comes from CONFIG.toml, from options, or from both (options win). Results go to a folder under --runs
    that is named by the hash of the resolved configuration; running again does only what is missing there.

    \b
    latte run --benchmark cifar10c-mini --methods clip,tda,latte:cifar10c --seeds 0-4
    latte run CONFIG.toml --set method.alpha=0.5 --set schedule.period=5 --dry-run
    """
    from ..experiment.collection import check_plans
    from ..experiment.config import format_seeds
    from ..experiment.folder import RunFolder
    from ..experiment.plan import open_benchmark, plan_on
    from ..experiment.runner import Session, execute, present_results
    from ..experiment.tune import read_tuned, use_tuned

    choices = read_tuned(tuned) if tuned else None
    plans = []  # all of them before anything is written
    for config in chosen.configs():
        benchmark = open_benchmark(config.benchmark, chosen.data)
        plans.append(plan_on(use_tuned(config, choices, benchmark) if choices else config, benchmark))
    check_plans(plans)
    options = make_options(chosen, jobs, predictions)
    rows: list[dict[str, Any]] = []
    if dry_run:
        for plan in plans:
            clients, folder = plan.config.clients_per_domain, RunFolder(runs / plan.name)
            rows.append(
                {
                    "benchmark": plan.config.benchmark,
                    "clients per domain": "fixed" if clients is None else str(clients),
                    "methods": " ".join(method.label for method in plan.config.methods),
                    "seeds": format_seeds(plan.config.seeds),
                    "items": len(plan.items()),
                    "there already": len(Session(plan, folder, predictions).complete),
                    "folder": str(folder.path),
                }
            )
        print_rows(rows, as_json)
        return
    check_requirements(plans, runs, options)
    with collect_failures() as follow_one:
        for plan in plans:
            follow_one(execute(plan, runs, options), len(plan.items()), plan.config.benchmark)
            line(runs / plan.name, err=True)
            rows += summarise(present_results(plan, runs))
        print_rows(rows, as_json, keys=3)


@click.command()
@experiment_options
@click.option("--over", "axes", metavar="KEY=V1,V2,...", multiple=True, required=True, help="What varies; repeatable.")
@running_options
def sweep(
    chosen: ExperimentOptions, axes: tuple[str, ...], runs: Path, jobs: int | str, dry_run: bool, as_json: bool
) -> None:
    """Run methods at every value of a parameter, or every point of a grid.

    KEY is a parameter of a method (alpha, beta, gamma, k_l, k_e; of every method that has it, or latte.alpha for one),
    clients_per_domain, T (the period), participation, or labels.random (labels that a person gives).

    \b
    latte sweep --benchmark cifar10c-mini --methods latte:cifar10c --over alpha=0.1,0.3,1,3
    latte sweep --benchmark cifar10c-mini --methods tda,latte:cifar10c --over clients_per_domain=1,2,4
    """
    from ..experiment.plan import open_benchmark
    from ..experiment.runner import present_results
    from ..experiment.sweep import execute_sweep, make_sweep, parse_axis

    parsed = [parse_axis(text) for text in axes]
    sweeps = [make_sweep(c, parsed, open_benchmark(c.benchmark, chosen.data)) for c in chosen.configs()]
    rows: list[dict[str, Any]] = []
    if dry_run:
        for current in sweeps:
            for point in current.points:
                rows.append({**_values(point, as_json), "folder": str(runs / current.name / point.plan.name)})
        print_rows(rows, as_json)
        return
    options = make_options(chosen, jobs)
    check_requirements([point.plan for current in sweeps for point in current.points], runs, options)
    with collect_failures() as follow_one:
        for current in sweeps:
            total = sum(len(point.plan.items()) for point in current.points)
            follow_one((event for _, event in execute_sweep(current, runs, options)), total, current.name)
            line(runs / current.name, err=True)
            for point in current.points:
                results = present_results(point.plan, runs / current.name)
                rows += summarise(results, as_json, **_values(point, as_json))
        print_rows(rows, as_json, keys=3 + len(sweeps[0].axes))


def _values(point: Point, as_json: bool) -> dict[str, Any]:
    """Return the values of a point: as they are, or as a table shows them, with all their digits."""
    from ..report.sweeps import value_text

    return {key: value if as_json else value_text(value) for key, value in point.values.items()}


@click.command()
@experiment_options
@click.option("--over", "axes", metavar="KEY=V1,V2,...", multiple=True, help="The grid (default: the method's own).")
@click.option("--out", type=OutputFile(), default=Path("tuned.json"), show_default=True, help="File for the choice.")
@running_options
def tune(
    chosen: ExperimentOptions,
    axes: tuple[str, ...],
    out: Path,
    runs: Path,
    jobs: int | str,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Choose the parameters of methods by a grid search, and write the choice with the data it saw.

    The seeds are 100 to 104 by default, so that the splits differ from those of a report on seeds 0 to 4.
    Use the choice with: latte run --tuned tuned.json

    \b
    latte tune --benchmark cifar10c-mini --methods dmn,tda --seeds 100-101
    """
    from ..experiment.config import format_seeds
    from ..experiment.plan import open_benchmark
    from ..experiment.sweep import parse_axis
    from ..experiment.tune import make_tunings, save_tuned, select

    configs = chosen.configs(seeds="100-104")
    if len(configs) != 1:
        raise click.UsageError("tune one benchmark at a time")
    benchmark = open_benchmark(configs[0].benchmark, chosen.data)
    tunings = make_tunings(configs[0], benchmark, [parse_axis(text) for text in axes])
    rows: list[dict[str, Any]] = []
    if dry_run:
        for tuning in tunings:
            grid = [f"{axis.key.rpartition('.')[2]}={','.join(map(str, axis.values))}" for axis in tuning.sweep.axes]
            seeds = format_seeds(tuning.sweep.points[0].plan.config.seeds)
            points = len(tuning.sweep.points)
            rows.append({"method": tuning.method.label, "points": points, "seeds": seeds, "grid": " ".join(grid)})
        print_rows(rows, as_json)
        return
    options = make_options(chosen, jobs)
    check_requirements([point.plan for tuning in tunings for point in tuning.sweep.points], runs, options)
    with collect_failures():
        run_searches(tunings, runs, options)
        tuned = select(tunings, runs)
        save_tuned(out, tuned)
        line(f"wrote {out}", err=True)
        for tuning in tunings:
            choice, axes_ = tuned.methods[tuning.method.label], [axis.key for axis in tuning.sweep.axes]
            names = {key: key.rpartition(".")[2] for key in axes_}
            words = " ".join(f"{name}={choice.params.get(name, choice.point.get(key))}" for key, name in names.items())
            row = {"method": tuning.method.label, "chosen": words, "tied": f"{choice.tied} of {len(choice.grid)}"}
            rows.append({**row, "accuracy": choice.accuracy})
        print_rows(rows, as_json)


def run_searches(tunings: list[Tuning], runs: Path, options: Options) -> None:
    """Run what is missing of every search while a bar follows."""
    from ..experiment.tune import execute_tunings

    total = sum(len(point.plan.items()) for tuning in tunings for point in tuning.sweep.points)
    follow((event for _, event in execute_tunings(tunings, runs, options)), total, "tune")
