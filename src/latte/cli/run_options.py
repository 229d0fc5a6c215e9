"""What the commands that run experiments share: options, progress, and the rows that they print."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import InputError, refuse
from .options import DATA, JSON, PLUGINS, Command, Folder, InputFile, load_plugins
from .output import bar, draw_compilation, problem

if TYPE_CHECKING:
    from ..experiment.config import RunConfig
    from ..experiment.plan import Plan
    from ..experiment.runner import Event, Options
    from ..simulation.results import Result

_EXECUTOR = "latte.executor"


class _Jobs(click.IntRange):
    name = "N|serial"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if value == "serial" else super().convert(value, param, ctx)


JOBS = click.option(
    "--jobs",
    type=_Jobs(0, 1024),
    default=0,
    help="Processes at once (default: one per core); serial: in this process, for a debugger.",
)


@dataclass(frozen=True, slots=True)
class ExperimentOptions:
    """The options of a call that decide what is run."""

    config: Path | None
    benchmark: str | None
    methods: str | None
    seeds: str | None
    settings: tuple[str, ...]
    engine: str | None
    data: Path | None
    plugins: tuple[Path, ...]

    def configs(self, **defaults: Any) -> list[RunConfig]:
        """Return one configuration per benchmark; options override the file, ``defaults`` fill what neither has."""
        from ..experiment.config import apply_settings, configure, parse_method, read_config

        load_plugins(self.plugins)
        raw = {**defaults, **(read_config(self.config) if self.config else {})}
        methods = [parse_method(text) for text in self.methods.split(",")] if self.methods else None
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


def collect_options(command: Command, kind: type[Any], options: Sequence[Callable[[Command], Command]]) -> Command:
    """Add ``options`` to a command that takes their values together, as ``chosen``, a dataclass ``kind``."""

    def call_with_options(**values: Any) -> Any:
        chosen = kind(**{field.name: values.pop(field.name) for field in fields(kind)})
        return command(chosen=chosen, **values)

    call_with_options.__doc__, call_with_options.__name__ = command.__doc__, command.__name__
    call_with_options.__click_params__ = getattr(command, "__click_params__", [])  # type: ignore[attr-defined]
    for option in reversed(options):
        call_with_options = option(call_with_options)
    return call_with_options


def experiment_options(command: Command) -> Command:
    """Add the options that decide what is run; the command gets them as ``chosen``."""
    options = [
        click.argument("config", type=InputFile(), required=False),
        click.option("--benchmark", metavar="NAME,...", help="Benchmarks by name or file (see: latte data list)."),
        click.option("--methods", metavar="SPEC,...", help="[LABEL=]NAME[:PRESET][+KEY=VALUE...], comma-separated."),
        click.option("--seeds", metavar="LIST", help="Seeds, such as 0-4 or 0,2,7."),
        click.option("--set", "settings", metavar="KEY=VALUE", multiple=True, help="Change one value; repeatable."),
        click.option(
            "--engine",
            type=click.Choice(("auto", "readable")),
            help="auto: the fast engine where a method has one; readable: image by image.",
        ),
        DATA,
        PLUGINS,
    ]
    return collect_options(command, ExperimentOptions, options)


def running_options(command: Command) -> Command:
    """Add the options that decide how to run and what to print."""
    options = [
        click.option(
            "--runs", type=Folder(), default=Path("runs"), show_default=True, help="Folder of the run folders."
        ),
        JOBS,
        click.option(
            "--executor", metavar="dask:ADDRESS", expose_value=False, callback=_remember, help="Run on a cluster."
        ),
        click.option("--dry-run", is_flag=True, help="Say what would be done; write nothing."),
        JSON,
    ]
    for option in reversed(options):
        command = option(command)
    return command


def _remember(context: click.Context, option: click.Parameter, value: str | None) -> None:
    context.meta[_EXECUTOR] = value


def make_options(chosen: ExperimentOptions, jobs: int | str, predictions: bool = False) -> Options:
    """Return how to run what was chosen; ``jobs`` is a number of processes, or "serial"."""
    options, executor = plain_options(jobs), click.get_current_context().meta.get(_EXECUTOR)
    plugins = tuple(str(path.resolve()) for path in chosen.plugins)
    return replace(options, plugins=plugins, executor=executor or options.executor, predictions=predictions)


def plain_options(jobs: int | str = 0) -> Options:
    """Return how to run on this machine, with the command line as it was typed."""
    from ..experiment.runner import Options

    number, executor = (jobs, "") if isinstance(jobs, int) else (1, jobs)
    typed = ("latte", *sys.argv[1:])
    return Options(number, command=typed, executor=executor, follow_compilation=draw_compilation)


def check_requirements(plans: Sequence[Plan], runs: Path, options: Options) -> None:
    """Refuse what is planned if a package is missing or ``runs`` cannot be written, before anything is computed."""
    from ..experiment.runner import check_packages
    from ..files.atomic import check_writable_folder

    check_writable_folder(runs, "--runs")
    check_packages(plans, options)


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
    the worst client and domain, and over the first and the last quarter of streams (None in older records).
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
        rows.append(row | {column.key: _mean(same.values(column.key).values()) for column in more})
    return rows


def _mean(values: Collection[float]) -> float | None:
    return sum(values) / len(values) if values else None
