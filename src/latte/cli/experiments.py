"""``latte run``, ``sweep``, ``tune`` and ``reproduce``: methods on benchmarks, into folders that can be resumed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import InputError
from .options import DATA, InputFile, OutputFile, OutputFolder
from .output import line, print_rows
from .report import FORMAT_NAMES, format_of, write_output
from .run_options import (
    ExperimentOptions,
    check_requirements,
    collect_failures,
    experiment_options,
    follow,
    make_options,
    plain_options,
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
@click.option("--tuned", type=InputFile(), help="What latte tune wrote.")
@click.option("--predictions", is_flag=True, help="Keep the prediction of every sample, too, in the run folder.")
def run(
    chosen: ExperimentOptions,
    out: Path,
    jobs: int | str,
    dry_run: bool,
    as_json: bool,
    tuned: Path | None,
    predictions: bool,
) -> None:
    """Run methods on benchmarks and print their accuracy.

    What to run comes from CONFIG.toml, from options, or from both (options win). Results go to a folder under --out
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
            clients, folder = plan.config.clients_per_domain, RunFolder(out / plan.name)
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
    check_requirements(plans, out, options)
    with collect_failures() as follow_one:
        for plan in plans:
            follow_one(execute(plan, out, options), len(plan.items()), plan.config.benchmark)
            line(out / plan.name, err=True)
            rows += summarise(present_results(plan, out))
        print_rows(rows, as_json, keys=3)


@click.command()
@experiment_options
@click.option("--over", "axes", metavar="KEY=V1,V2,...", multiple=True, required=True, help="What varies; repeatable.")
@running_options
def sweep(
    chosen: ExperimentOptions, axes: tuple[str, ...], out: Path, jobs: int | str, dry_run: bool, as_json: bool
) -> None:
    """Run methods at every value of a parameter, or every point of a grid.

    KEY is a parameter of a method (alpha, beta, gamma, k_l, k_e; of every method that has it, or latte.alpha for one),
    clients_per_domain, T (the period), or participation.

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
                rows.append({**_values(point, as_json), "folder": str(out / current.name / point.plan.name)})
        print_rows(rows, as_json)
        return
    options = make_options(chosen, jobs)
    check_requirements([point.plan for current in sweeps for point in current.points], out, options)
    with collect_failures() as follow_one:
        for current in sweeps:
            total = sum(len(point.plan.items()) for point in current.points)
            follow_one((event for _, event in execute_sweep(current, out, options)), total, current.name)
            line(out / current.name, err=True)
            for point in current.points:
                results = present_results(point.plan, out / current.name)
                rows += summarise(results, as_json, **_values(point, as_json))
        print_rows(rows, as_json, keys=3 + len(sweeps[0].axes))


def _values(point: Point, as_json: bool) -> dict[str, Any]:
    """Return the values of a point: as they are, or as a table shows them, with all their digits."""
    from ..report.sweeps import value_text

    return {key: value if as_json else value_text(value) for key, value in point.values.items()}


@click.command()
@experiment_options
@click.option("--over", "axes", metavar="KEY=V1,V2,...", multiple=True, help="The grid (default: the method's own).")
@click.option("--save", type=OutputFile(), default=Path("tuned.json"), show_default=True)
@running_options
def tune(
    chosen: ExperimentOptions,
    axes: tuple[str, ...],
    save: Path,
    out: Path,
    jobs: int | str,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Choose the parameters of methods by a grid search, and write the choice with the data it saw.

    The seeds are 100 to 104 by default, so that the partitions differ from those of a report on seeds 0 to 4.
    Use the choice with: latte run --tuned tuned.json

    \b
    latte tune --benchmark cifar10c-mini --methods dmn,tda --set clients_per_domain=2
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
    check_requirements([point.plan for tuning in tunings for point in tuning.sweep.points], out, options)
    with collect_failures():
        _search(tunings, out, options)
        tuned = select(tunings, out)
        save_tuned(save, tuned)
        line(f"wrote {save}", err=True)
        for tuning in tunings:
            choice, axes_ = tuned.methods[tuning.method.label], [axis.key for axis in tuning.sweep.axes]
            names = {key: key.rpartition(".")[2] for key in axes_}
            words = " ".join(f"{name}={choice.params.get(name, choice.point.get(key))}" for key, name in names.items())
            row = {"method": tuning.method.label, "chosen": words, "tied": f"{choice.tied} of {len(choice.grid)}"}
            rows.append({**row, "accuracy": choice.accuracy})
        print_rows(rows, as_json)


def _search(tunings: list[Tuning], out: Path, options: Options) -> None:
    """Run what is missing of every search while a bar follows."""
    from ..experiment.tune import execute_tunings

    total = sum(len(point.plan.items()) for tuning in tunings for point in tuning.sweep.points)
    follow((event for _, event in execute_tunings(tunings, out, options)), total, "tune")


@click.command()
@click.argument("benchmark", type=click.Choice(["vlcs", "terra", "cifar10c", "cifar100c"]))
@click.option("--backbone", type=click.Choice(["ViT-B/16", "RN50"]), default="ViT-B/16", show_default=True)
@DATA
@click.option("--text-encoder", help="hf:ID or openclip:MODEL/WEIGHTS of the same model, for TPT.")
@click.option("--seeds", default="0-4", show_default=True, help="Such as 0-4 or 0,2,7.")
@click.option(
    "--baselines",
    type=click.Choice(["tuned", "oracle", "default"]),
    default="tuned",
    show_default=True,
    help="TDA and DMN: tuned on other seeds, on the reported ones, or not at all.",
)
@click.option("--runs", type=OutputFolder(), default=Path("runs"), show_default=True, help="Run folders.")
@click.option("--format", "kind", type=click.Choice(FORMAT_NAMES), help="Default: what --out ends in, else text.")
@click.option("--out", type=OutputFile(makes_folder=True), help="Write to a file instead of stdout.")
def reproduce(
    benchmark: str,
    backbone: str,
    data: Path | None,
    text_encoder: str | None,
    seeds: str,
    baselines: str,
    runs: Path,
    kind: str | None,
    out: Path | None,
) -> None:
    """Run every method of the paper on one of its benchmarks and show the paper's numbers beside.

    It needs two embedding files in the data folder, for example vlcs-vit-b-16.safetensors and, for VTE, TPT and Zero,
    vlcs-vit-b-16-views64.safetensors. TDA and DMN are tuned first, as in the paper: by a grid search on other seeds
    than the reported ones, whose choice is written to --runs. What is finished is kept there and not done again.
    """
    from ..data.catalogue import data_folder
    from ..encoders.tuning import check_prompt_tuner
    from ..experiment.collection import encoders, read_run
    from ..experiment.config import parse_seeds
    from ..experiment.runner import execute
    from ..paper.reproduce import (
        benches,
        choose,
        facts,
        make_search,
        needing_text_encoder,
        notes,
        one_name,
        paper_files,
        tuning_source,
    )
    from ..report.contents import Report
    from ..report.page.sections import render_report
    from ..report.published import display
    from ..report.tables import build_table

    numbers, folder = parse_seeds(seeds), data_folder(data)
    plain, viewed = files = paper_files(benchmark, backbone, folder)
    if not plain.path.is_file():
        raise InputError(plain.missing())
    if not viewed.path.is_file():
        line(f"left out: {viewed.missing()}", err=True)
    elif text_encoder is None:
        for name in needing_text_encoder():
            line(f"left out: {display(name)}, which needs the text encoder itself: --text-encoder", err=True)
    if text_encoder is not None:
        check_prompt_tuner(text_encoder)
    tuning = tuning_source(benchmark, backbone, folder) if baselines == "tuned" else None
    extra = [tuning] if tuning is not None and tuning.path.is_file() else []
    there = [file for file in files if file.path.is_file()]
    bench_files = benches([*there, *extra], numbers, text_encoder)
    pool = bench_files.pop() if extra else None
    search = None if baselines == "default" else make_search(bench_files[0], baselines, runs, pool)
    if tuning is not None and search is not None and not search.apart:
        line(f"tuning under the reported corruptions: {tuning.missing()}", err=True)
    with collect_failures():
        tuned = None
        if search is not None:
            _search(list(search.tunings), search.folder, plain_options())
            tuned = choose(search)
            line(f"wrote {search.file}", err=True)
        plans = [bench.plan(tuned) for bench in bench_files]
        for plan in plans:
            follow(execute(plan, runs, plain_options()), len(plan.items()), plan.config.benchmark)
        source, zero_shot = bench_files[0].source, bench_files[0].benchmark.embeddings.zero_shot
        folders = [read_run(runs / plan.name) for plan in plans]
        encoder = next(iter(encoders(folders).values()), None)
        found = [result for folder in folders for result in folder.results]
        table = build_table(one_name(found, source.benchmark), encoder, source.backbone)
        costs = facts(plans[0], source.benchmark, source.backbone, zero_shot)
        sentences = (*notes(source, plans[0], search, tuned), *(fact.sentence() for fact in costs))
        table = replace(table, notes=table.notes + sentences, facts=costs)
        write_output(render_report(Report((table,), tuple(folders)), kind or format_of(out)), out)
