"""``latte run``, ``sweep`` and ``tune``: methods on benchmarks, into folders that can be resumed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import InputError, refuse
from .options import DATA, JOBS, JSON, PLUGINS, RUNS, SET, Command, InputFile, OutputFile, collect_options, load_plugins
from .output import bar, draw_compilation, line, print_rows, problem

if TYPE_CHECKING:
    from ..experiment.config import RunConfig
    from ..experiment.plan import Plan
    from ..experiment.runner import Event, Options
    from ..experiment.sweep import Point, Sweep
    from ..simulation.results import Result


@dataclass(frozen=True, slots=True)
class ExperimentOptions:
    """The options of a call: what is run, where, and what is printed."""

    config: Path | None
    benchmark: str | None
    methods: str | None
    seeds: str | None
    settings: tuple[str, ...]
    engine: str | None
    data: Path | None
    plugins: tuple[Path, ...]
    runs: Path
    jobs: int | str
    executor: str | None
    dry_run: bool
    as_json: bool

    def configs(self, **defaults: Any) -> list[RunConfig]:
        """Return one configuration per benchmark; options override the file, ``defaults`` fill what neither has."""
        from ..experiment.config import MethodConfig, apply_settings, configure, parse_method, read_config

        load_plugins(self.plugins)
        raw = {**defaults, **(read_config(self.config) if self.config else {})}
        methods = [parse_method(text) for text in self.methods.split(",")] if self.methods else None
        for method in methods or ():
            MethodConfig(**method)  # refuses an unknown name as it was typed
        given = {"methods": methods, "seeds": self.seeds, "engine": self.engine}
        raw |= {key: value for key, value in given.items() if value}
        if self.benchmark is None and self.config is None:
            raise click.UsageError("name a benchmark (--benchmark NAME, see: latte data list) or give a CONFIG.toml")
        if "methods" not in raw:
            example = "--methods clip,latte,ristretto (see: latte methods)"
            if self.config is not None:
                raise refuse(str(self.config), "no methods", f"[[methods]] in it, or {example}")
            want = f"name the methods to run, such as {example}, or write [[methods]] in CONFIG.toml"
            raise click.UsageError(want)
        names = self.benchmark.split(",") if self.benchmark else []
        choices = [{**raw, "benchmark": name} for name in names] or [raw]
        try:
            return [apply_settings(configure(choice), self.settings) for choice in choices]
        except InputError as error:
            raise (InputError(f"{self.config}: {error}") if self.config else error) from None

    def start(self, plans: Sequence[Plan], predictions: bool = False) -> Options:
        """Return how to run the plans; what would stop them is found before anything is computed."""
        from ..experiment.runner import check_packages
        from ..files.atomic import check_writable_folder

        check_writable_folder(self.runs, "--runs")
        options = how_to_run(self.jobs, self.plugins, self.executor, predictions)
        check_packages(plans, options)
        return options


def how_to_run(
    jobs: int | str = 0, plugins: Sequence[Path] = (), executor: str | None = None, predictions: bool = False
) -> Options:
    """Return how to run on this machine or on a cluster, with the command line as it was typed."""
    from ..experiment.runner import Options

    number, where = (jobs, executor or "") if isinstance(jobs, int) else (1, executor or jobs)
    return Options(
        number,
        command=("latte", *sys.argv[1:]),
        plugins=tuple(str(path.resolve()) for path in plugins),
        executor=where,
        predictions=predictions,
        follow_compilation=draw_compilation,
    )


def experiment_options(command: Command) -> Command:
    """Add the options of an experiment; the command gets them as ``chosen``."""
    options = [
        click.argument("config", type=InputFile(), required=False),
        click.option("--benchmark", metavar="NAME,...", help="Benchmarks by name or file (see: latte data list)."),
        click.option("--methods", metavar="SPEC,...", help="[LABEL=]NAME[:PRESET][+KEY=VALUE...], comma-separated."),
        click.option("--seeds", metavar="LIST", help="Seeds, such as 0-4 or 0,2,7."),
        SET,
        click.option(
            "--engine",
            type=click.Choice(("auto", "readable")),
            help="auto: the fast engine where a method has one; readable: image by image.",
        ),
        DATA,
        PLUGINS,
        RUNS,
        JOBS,
        click.option("--executor", metavar="dask:ADDRESS", help="Run on a cluster."),
        click.option("--dry-run", is_flag=True, help="Say what would be done; write nothing."),
        JSON,
    ]
    return collect_options(command, ExperimentOptions, options)


def follow(events: Iterable[Event], total: int, label: str) -> None:
    """Go through events while a bar on stderr follows them; a failure is printed at once, in one line."""
    with bar(label[:24], total) as advance:
        for event in events:
            if event.kind == "failed":
                problem(f"{event.item.method.label}, seed {event.item.seed}: {event.problem}")
            advance(1)


@contextmanager
def collect_failures() -> Iterator[Callable[[Iterable[Event], int, str], None]]:
    """Yield what follows one of several runs; one with failed items does not keep the next from starting.

    A run with failed items ends in one line and exit code 1, after all of them.
    """
    from ..experiment.runner import IncompleteError

    failures: list[IncompleteError] = []

    def follow_one(events: Iterable[Event], total: int, label: str) -> None:
        try:
            follow(events, total, label)
        except IncompleteError as error:
            failures.append(error)

    try:
        yield follow_one
    except IncompleteError as error:
        failures.append(error)
    if failures:
        problem(failures[0])
        sys.exit(1)


def summarise(results: Iterable[Result], deployment: bool = True, **first: Any) -> list[dict[str, Any]]:
    """Return one row per method and parameters: accuracy over samples and over clients, mean and sd over seeds.

    Where a run measured it, ``ece`` is the expected calibration error in per cent. With ``deployment``, the means of
    the worst client and domain, and over the first and the last quarter of streams (None in older records). Where
    answers were approximate, ``approximate`` says how.
    """
    from ..analysis.stats import estimate
    from ..report.tables import QUARTERS, WORST, group

    rows, groups = [], group(results)
    calibrated = any(same.values("ece") for same in groups)
    for same in groups:
        micro, macro = (estimate(same.values(key).values()) for key in ("micro", "macro"))
        row = {"benchmark": same.benchmark, **first, "method": same.method, "setting": same.setting}
        row |= {"seeds": micro.seeds, "accuracy": micro.mean, "sd": micro.sd, "per_client": macro.mean}
        row |= {"kB/client": _mean(same.values("sent").values())}
        row |= {"ece": _mean(same.values("ece").values())} if calibrated else {}
        more = (*WORST, *QUARTERS[:2]) if deployment else ()
        row |= {column.key: _mean(same.values(column.key).values()) for column in more}
        words = {result.approximation for result in same.results.values() if result.approximation}
        rows.append(row | ({"approximate": "; ".join(sorted(words))} if words else {}))
    return rows


def _mean(values: Collection[float]) -> float | None:
    return sum(values) / len(values) if values else None


@click.command()
@experiment_options
@click.option("--tuned", type=InputFile(), help="File of parameters that latte tune wrote.")
@click.option("--predictions", is_flag=True, help="Keep the prediction of every image, too, in the run folder.")
def run(chosen: ExperimentOptions, tuned: Path | None, predictions: bool) -> None:
    """Run methods on benchmarks and print their accuracy.

    What to run comes from CONFIG.toml, from options, or from both (options win). Results go to a folder under --runs
    that is named by a hash of the whole configuration; running again does only what is missing there.

    Every method syncs by its own schedule: Latte after every image, Ristretto after 1, 2, 4, 8 and 16 images of a
    client and then after every 16. --set schedule.sync=doubling gives Latte the schedule of Ristretto, and --set
    schedule.period=5 a sync after every 5 images.

    \b
    latte run --benchmark cifar10c-mini --methods clip,latte:cifar10c --seeds 0-4
    latte run CONFIG.toml --set method.alpha=0.5 --set schedule.sync=doubling
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
    rows: list[dict[str, Any]] = []
    if chosen.dry_run:
        for plan in plans:
            clients, folder = plan.config.clients_per_domain, RunFolder(chosen.runs / plan.name)
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
        print_rows(rows, chosen.as_json)
        return
    options = chosen.start(plans, predictions)
    with collect_failures() as follow_one:
        for plan in plans:
            follow_one(execute(plan, chosen.runs, options), len(plan.items()), plan.config.benchmark)
            line(chosen.runs / plan.name, err=True)
            rows += summarise(present_results(plan, chosen.runs))
        print_rows(rows, chosen.as_json, keys=3)


@click.command()
@experiment_options
@click.option("--over", "axes", metavar="KEY=V1,V2,...", multiple=True, required=True, help="What varies; repeatable.")
def sweep(chosen: ExperimentOptions, axes: tuple[str, ...]) -> None:
    """Run methods at every value of a parameter, or every point of a grid.

    KEY is a parameter of a method (alpha, beta, gamma, k_l, k_e; of every method that has it, or latte.alpha for one),
    clients_per_domain, T (the period), participation, or labels.random (labels that a person gives).

    \b
    latte sweep --benchmark cifar10c-mini --methods latte --over alpha=0.1,0.3,1
    latte sweep --benchmark cifar10c-mini --methods tda,latte --over T=1,5,10
    """
    from ..experiment.plan import open_benchmark
    from ..experiment.runner import present_results
    from ..experiment.sweep import execute_sweeps, make_sweep, parse_axis

    parsed = [parse_axis(text) for text in axes]
    sweeps = [make_sweep(c, parsed, open_benchmark(c.benchmark, chosen.data)) for c in chosen.configs()]
    rows: list[dict[str, Any]] = []
    if chosen.dry_run:
        for current in sweeps:
            for point in current.points:
                rows.append(
                    {**_values(point, chosen.as_json), "folder": str(chosen.runs / current.name / point.plan.name)}
                )
        print_rows(rows, chosen.as_json)
        return
    options = chosen.start([point.plan for current in sweeps for point in current.points])
    with collect_failures() as follow_one:
        for current in sweeps:
            total = sum(len(point.plan.items()) for point in current.points)
            follow_one((event for _, event in execute_sweeps([current], chosen.runs, options)), total, current.name)
            line(chosen.runs / current.name, err=True)
            for point in current.points:
                results = present_results(point.plan, chosen.runs / current.name)
                rows += summarise(results, chosen.as_json, **_values(point, chosen.as_json))
        print_rows(rows, chosen.as_json, keys=3 + len(sweeps[0].axes))


def _values(point: Point, as_json: bool) -> dict[str, Any]:
    """Return the values of a point: as they are, or as a table shows them, with all their digits."""
    from ..report.sweeps import value_text

    return {key: value if as_json else value_text(value) for key, value in point.values.items()}


@click.command()
@experiment_options
@click.option("--over", "axes", metavar="KEY=V1,V2,...", multiple=True, help="The grid (default: the method's own).")
@click.option("--out", type=OutputFile(), default=Path("tuned.json"), show_default=True, help="File for the choice.")
def tune(chosen: ExperimentOptions, axes: tuple[str, ...], out: Path) -> None:
    """Choose the parameters of methods by a grid search, and write them to a file.

    The file also says which data was seen. The seeds are 100 to 104 by default, so that the splits differ from those
    of a report on seeds 0 to 4. latte run --tuned tuned.json uses the chosen parameters.

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
    if chosen.dry_run:
        for tuning in tunings:
            grid = [f"{axis.key.rpartition('.')[2]}={','.join(map(str, axis.values))}" for axis in tuning.axes]
            seeds = format_seeds(tuning.points[0].plan.config.seeds)
            points = len(tuning.points)
            rows.append({"method": tuning.methods[0].label, "points": points, "seeds": seeds, "grid": " ".join(grid)})
        print_rows(rows, chosen.as_json)
        return
    options = chosen.start([point.plan for tuning in tunings for point in tuning.points])
    with collect_failures():
        run_searches(tunings, chosen.runs, options)
        tuned = select(tunings, chosen.runs)
        save_tuned(out, tuned)
        line(f"wrote {out}", err=True)
        for tuning in tunings:
            choice, axes_ = tuned.methods[tuning.methods[0].label], [axis.key for axis in tuning.axes]
            names = {key: key.rpartition(".")[2] for key in axes_}
            words = " ".join(f"{name}={choice.params.get(name, choice.point.get(key))}" for key, name in names.items())
            row = {"method": tuning.methods[0].label, "chosen": words, "tied": f"{choice.tied} of {len(choice.grid)}"}
            rows.append({**row, "accuracy": choice.accuracy})
        print_rows(rows, chosen.as_json)


def run_searches(tunings: list[Sweep], runs: Path, options: Options) -> None:
    """Run what is missing of every search while a bar follows."""
    from ..experiment.sweep import execute_sweeps

    total = sum(len(point.plan.items()) for tuning in tunings for point in tuning.points)
    follow((event for _, event in execute_sweeps(tunings, runs, options, "tuning")), total, "tune")
