"""``latte sweep``: the same run over the values of a parameter."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .output import line, print_rows
from .run_options import (
    ExperimentOptions,
    check_requirements,
    collect_failures,
    experiment_options,
    follow,
    make_options,
    or_exit,
    running_options,
    summarise,
)

if TYPE_CHECKING:
    from ..experiment.runner import Options
    from ..experiment.sweep import Point, Sweep


@click.command()
@experiment_options
@click.option("--over", "axes", metavar="KEY=V1,V2,...", multiple=True, required=True, help="What varies; repeatable.")
@running_options
def sweep(chosen: ExperimentOptions, axes: tuple[str, ...], out: Path, jobs: int, dry_run: bool, as_json: bool) -> None:
    """Run methods at every value of a parameter, or every point of a grid.

    KEY is a parameter of a method (alpha, beta, gamma, k_l, k_e; of every method that has it, or latte.alpha for one),
    clients_per_domain, T (the period), or participation.

    \b
    latte sweep --benchmark cifar10c-mini --methods latte:cifar10c --over alpha=0.1,0.3,1,3
    latte sweep --benchmark cifar10c-mini --methods tda,latte:cifar10c --over clients_per_domain=1,2,4
    """
    sweeps = _sweeps(chosen, axes)
    if dry_run:
        rows = [
            {**_point_values(p, as_json), "folder": str(out / s.name / p.plan.name)} for s in sweeps for p in s.points
        ]
        print_rows(rows, as_json)
        return
    options = make_options(chosen, jobs)
    check_requirements([point.plan for current in sweeps for point in current.points], out, options)
    or_exit(lambda: _run_all(sweeps, out, options, as_json))


def _sweeps(chosen: ExperimentOptions, axes: tuple[str, ...]) -> list[Sweep]:
    from ..experiment.plan import open_benchmark
    from ..experiment.sweep import make_sweep, parse_axis

    parsed = [parse_axis(text) for text in axes]
    return [make_sweep(c, parsed, open_benchmark(c.benchmark, chosen.data)) for c in chosen.configs()]


def _run_all(sweeps: list[Sweep], out: Path, options: Options, as_json: bool) -> None:
    from ..experiment.runner import present_results
    from ..experiment.sweep import execute_sweep

    rows: list[dict[str, Any]] = []
    with collect_failures() as collect:
        for current in sweeps:
            total = sum(len(point.plan.items()) for point in current.points)
            with collect():
                follow((event for _, event in execute_sweep(current, out, options)), total, current.name)
            line(out / current.name, err=True)
            for point in current.points:
                results = present_results(point.plan, out / current.name)
                rows += summarise(results, as_json, **_point_values(point, as_json))
        print_rows(rows, as_json, keys=3 + len(sweeps[0].axes))


def _point_values(point: Point, as_json: bool) -> dict[str, Any]:
    """Return the values of a point: as they are, or as a table shows them, with all their digits."""
    from ..report.sweep_table import value_text

    return {key: value if as_json else value_text(value) for key, value in point.values.items()}
