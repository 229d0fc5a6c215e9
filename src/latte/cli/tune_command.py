"""``latte tune``: choose hyper-parameters on partitions that are not reported."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .arguments import OutputFile
from .output import line, print_rows
from .run_options import (
    ExperimentOptions,
    check_requirements,
    experiment_options,
    follow,
    make_options,
    or_exit,
    running_options,
)

if TYPE_CHECKING:
    from ..experiment.runner import Options
    from ..experiment.tune import Choice, Tuning


@click.command()
@experiment_options
@click.option("--over", "axes", metavar="KEY=V1,V2,...", multiple=True, help="The grid (default: the method's own).")
@click.option("--save", type=OutputFile(), default=Path("tuned.json"), show_default=True)
@running_options
def tune(
    chosen: ExperimentOptions, axes: tuple[str, ...], save: Path, out: Path, jobs: int, dry_run: bool, as_json: bool
) -> None:
    """Choose the parameters of methods by a grid search, and write the choice with the data it saw.

    The seeds are 100 to 104 by default, so that the partitions differ from those of a report on seeds 0 to 4.
    Use the choice with: latte run --tuned tuned.json

    \b
    latte tune --benchmark cifar10c-mini --methods dmn,tda --set clients_per_domain=2
    """
    tunings = _tunings(chosen, axes)
    if dry_run:
        print_rows([_search_row(tuning) for tuning in tunings], as_json)
        return
    options = make_options(chosen, jobs)
    check_requirements([point.plan for tuning in tunings for point in tuning.sweep.points], out, options)
    or_exit(lambda: _run_all(tunings, save, out, options, as_json))


def _tunings(chosen: ExperimentOptions, axes: tuple[str, ...]) -> list[Tuning]:
    from ..experiment.plan import open_benchmark
    from ..experiment.sweep import parse_axis
    from ..experiment.tune import make_tunings

    configs = chosen.configs(seeds="100-104")
    if len(configs) != 1:
        raise click.UsageError("tune one benchmark at a time")
    parsed = [parse_axis(text) for text in axes]
    return make_tunings(configs[0], open_benchmark(configs[0].benchmark, chosen.data), parsed)


def _run_all(tunings: list[Tuning], save: Path, out: Path, options: Options, as_json: bool) -> None:
    from ..experiment.tune import save_tuned, select

    search_all(tunings, out, options)
    tuned = select(tunings, out)
    save_tuned(save, tuned)
    line(f"wrote {save}", err=True)
    print_rows([_choice_row(tuning, tuned.methods[tuning.method.label]) for tuning in tunings], as_json)


def search_all(tunings: list[Tuning], out: Path, options: Options) -> None:
    """Run what is missing of every search while a bar follows."""
    from ..experiment.tune import execute_tunings

    total = sum(len(point.plan.items()) for tuning in tunings for point in tuning.sweep.points)
    follow((event for _, event in execute_tunings(tunings, out, options)), total, "tune")


def _choice_row(tuning: Tuning, choice: Choice) -> dict[str, Any]:
    keys = {axis.key: axis.key.rpartition(".")[2] for axis in tuning.sweep.axes}
    words = " ".join(f"{name}={choice.params.get(name, choice.point.get(key))}" for key, name in keys.items())
    tied = f"{choice.tied} of {len(choice.grid)}"
    return {"method": tuning.method.label, "chosen": words, "tied": tied, "accuracy": choice.accuracy}


def _search_row(tuning: Tuning) -> dict[str, Any]:
    from ..experiment.config import format_seeds

    plan = tuning.sweep.points[0].plan
    grid = " ".join(f"{a.key.rpartition('.')[2]}={','.join(map(str, a.values))}" for a in tuning.sweep.axes)
    seeds = format_seeds(plan.config.seeds)
    return {"method": tuning.method.label, "points": len(tuning.sweep.points), "seeds": seeds, "grid": grid}
