"""``latte run``: methods on a benchmark, over seeds, into a folder that can be resumed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .arguments import InputFile
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
    from ..experiment.plan import Plan
    from ..experiment.runner import Options


@click.command()
@experiment_options
@running_options
@click.option("--tuned", type=InputFile(), help="What latte tune wrote.")
@click.option("--predictions", is_flag=True, help="Keep the prediction of every sample, too, in the run folder.")
def run(
    chosen: ExperimentOptions, out: Path, jobs: int, dry_run: bool, as_json: bool, tuned: Path | None, predictions: bool
) -> None:
    """Run methods on benchmarks and print their accuracy.

    What to run comes from CONFIG.toml, from options, or from both (options win). Results go to a folder under --out
    that is named by the hash of the resolved configuration; running again does only what is missing there.

    \b
    latte run --benchmark cifar10c-mini --methods clip,tda,latte:cifar10c --seeds 0-4
    latte run CONFIG.toml --set method.alpha=0.5 --set schedule.period=5 --dry-run
    """
    plans, options = _plans(chosen, tuned), make_options(chosen, jobs, predictions)
    if dry_run:
        print_rows([_plan_row(plan, out, options) for plan in plans], as_json)
        return
    check_requirements(plans, out, options)
    or_exit(lambda: _run_all(plans, out, options, as_json))


def _plans(chosen: ExperimentOptions, tuned: Path | None) -> list[Plan]:
    """Plan everything before anything is written."""
    from ..experiment.plan import open_benchmark, plan_on
    from ..experiment.runs import check_plans
    from ..experiment.tune import read_tuned, use_tuned

    choices = read_tuned(tuned) if tuned else None
    plans = []
    for config in chosen.configs():
        benchmark = open_benchmark(config.benchmark, chosen.data)
        plans.append(plan_on(use_tuned(config, choices, benchmark) if choices else config, benchmark))
    check_plans(plans)
    return plans


def _run_all(plans: list[Plan], out: Path, options: Options, as_json: bool) -> None:
    from ..experiment.runner import execute, present_results

    rows: list[dict[str, Any]] = []
    with collect_failures() as collect:
        for plan in plans:
            with collect():
                follow(execute(plan, out, options), len(plan.items()), plan.config.benchmark)
            line(out / plan.name, err=True)
            rows += summarise(present_results(plan, out))
        print_rows(rows, as_json, keys=3)


def _plan_row(plan: Plan, out: Path, options: Options) -> dict[str, Any]:
    from ..experiment.config import format_seeds
    from ..experiment.folder import RunFolder
    from ..experiment.session import complete_items

    folder = RunFolder(out / plan.name)
    clients = plan.config.clients_per_domain
    return {
        "benchmark": plan.config.benchmark,
        "clients per domain": "fixed" if clients is None else str(clients),
        "methods": " ".join(method.label for method in plan.config.methods),
        "seeds": format_seeds(plan.config.seeds),
        "items": len(plan.items()),
        "there already": len(complete_items(folder, folder.trusted(plan), options.predictions)),
        "folder": str(folder.path),
    }
