"""What the commands that run experiments share: options, progress, and the rows that they print."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import InputError
from .arguments import Folder, InputFile
from .options import PLUGINS, Command, load_plugins
from .output import problem
from .progress import draw_compilation

if TYPE_CHECKING:
    from ..experiment.config import RunConfig
    from ..experiment.plan import Plan
    from ..experiment.runner import Event, Options
    from ..simulation.records import Result

_EXECUTOR = "latte.executor"


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
        from ..experiment.config import parse_method, read_config
        from ..experiment.config_changes import apply_settings
        from ..experiment.structure import configure

        load_plugins(self.plugins)
        raw = {**defaults, **(read_config(self.config) if self.config else {})}
        if self.methods:
            raw["methods"] = [parse_method(text) for text in self.methods.split(",")]
        if self.seeds:
            raw["seeds"] = self.seeds
        if self.engine:
            raw["engine"] = self.engine
        if self.benchmark is None and self.config is None:
            raise click.UsageError("name a benchmark (--benchmark NAME, see: latte data ls) or give a CONFIG.toml")
        if "methods" not in raw:
            raise self._no_methods()
        names = self.benchmark.split(",") if self.benchmark else []
        choices = [{**raw, "benchmark": name} for name in names] or [raw]
        try:
            return [apply_settings(configure(choice), self.settings) for choice in choices]
        except InputError as error:
            raise (InputError(f"{self.config}: {error}") if self.config else error) from None

    def _no_methods(self) -> Exception:
        """Return what to say where no methods are named: a file is refused, a call is told how it is used."""
        from ..errors import refuse

        example = "--methods clip,latte,ristretto (see: latte methods)"
        if self.config is not None:
            return refuse(str(self.config), "no methods", f"[[methods]] in it, or {example}")
        return click.UsageError(f"name the methods to run, such as {example}, or write [[methods]] in CONFIG.toml")


def experiment_options(command: Command) -> Command:
    """Add the options that decide what is run; the command gets them as ``chosen``."""
    return collect_options(command, ExperimentOptions, _options())


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


def _options() -> list[Callable[[Command], Command]]:
    file = InputFile()
    return [
        click.argument("config", type=file, required=False),
        click.option("--benchmark", metavar="NAME,...", help="Benchmarks by name or file (see: latte data ls)."),
        click.option("--methods", metavar="SPEC,...", help="[LABEL=]NAME[:PRESET][+KEY=VALUE...], comma-separated."),
        click.option("--seeds", metavar="LIST", help="Seeds, such as 0-4 or 0,2,7."),
        click.option("--set", "settings", metavar="KEY=VALUE", multiple=True, help="Change one value; repeatable."),
        click.option(
            "--engine",
            type=click.Choice(("auto", "readable")),
            help="auto: the fast engine where a method has one; readable: sample by sample.",
        ),
        click.option("--data", type=Folder(), help="Folder of embedding files (default: $LATTE_DATA)."),
        PLUGINS,
    ]


def running_options(command: Command) -> Command:
    """Add the options that decide how to run and what to print."""
    options = [
        click.option("--out", type=Folder(), default=Path("runs"), show_default=True, help="Where run folders go."),
        click.option(
            "--jobs", type=click.IntRange(0, 1024), default=0, help="Processes at once (default: one per core)."
        ),
        click.option(
            "--executor", metavar="dask:ADDRESS", expose_value=False, callback=_remember, help="Run on a cluster."
        ),
        click.option("--dry-run", is_flag=True, help="Say what would be done; write nothing."),
        click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def _remember(context: click.Context, option: click.Parameter, value: str | None) -> None:
    context.meta[_EXECUTOR] = value


def command_line() -> tuple[str, ...]:
    """Return the command as it was typed, without where it is installed."""
    return ("latte", *sys.argv[1:])


def make_options(chosen: ExperimentOptions, jobs: int, predictions: bool = False) -> Options:
    """Return how to run what was chosen."""
    executor = click.get_current_context().meta.get(_EXECUTOR) or ""
    plugins = tuple(str(path.resolve()) for path in chosen.plugins)
    return replace(plain_options(jobs), plugins=plugins, executor=executor, predictions=predictions)


def plain_options(jobs: int = 0) -> Options:
    """Return how to run on this machine, with the command line as it was typed."""
    from ..experiment.runner import Options

    return Options(jobs, command=command_line(), follow_compilation=draw_compilation)


def check_requirements(plans: Sequence[Plan], out: Path, options: Options) -> None:
    """Refuse what is planned if a package is missing or ``out`` cannot be written, before anything is computed."""
    from ..experiment.requirements import check_packages
    from ..files.atomic import check_writable_folder

    check_writable_folder(out, "--out")
    check_packages(plans, options)


def follow(events: Iterable[Event], total: int, label: str) -> None:
    """Go through events while a bar on stderr follows them; a failure is printed at once, in one line."""
    from .progress import bar

    with bar(label[:24], total) as advance:
        for event in events:
            if event.kind == "failed":
                problem(f"{event.item.method.label}, seed {event.item.seed}: {event.problem}")
            advance(1)


@contextmanager
def collect_failures() -> Iterator[Callable[[], AbstractContextManager[None]]]:
    """Yield a context for each of several runs, in which failed items are printed and the next run goes on.

    After all of them, the first failure is raised, if there was one.
    """
    from ..experiment.runner import IncompleteError

    failures: list[IncompleteError] = []

    @contextmanager
    def collect() -> Iterator[None]:
        try:
            yield
        except IncompleteError as error:
            failures.append(error)

    yield collect
    if failures:
        raise failures[0]


def or_exit(run: Callable[[], None]) -> None:
    """Call ``run``; a run with failed items ends in one line and exit code 1."""
    from ..experiment.runner import IncompleteError

    try:
        run()
    except IncompleteError as error:
        problem(error)
        sys.exit(1)


def summarise(results: Iterable[Result], deployment: bool = True, **first: Any) -> list[dict[str, Any]]:
    """Return one row per method and parameters: accuracy over samples and over clients, mean and sd over seeds.

    Where a run measured it, ``ece`` is the expected calibration error in per cent. With ``deployment``, the means of
    the worst client and domain, and over the first and the last quarter of streams (None in older records).
    """
    from ..analysis.stats import estimate
    from ..report.groups import group
    from ..report.metrics import QUARTERS, WORST

    rows, groups = [], group(results)
    calibrated = any(same.calibration() for same in groups)
    for same in groups:
        micro, macro = estimate(same.micro().values()), estimate(same.macro().values())
        row = {"benchmark": same.benchmark, **first, "method": same.method, "setting": same.setting}
        row |= {"seeds": micro.seeds, "accuracy": micro.mean, "sd": micro.sd, "per_client": macro.mean}
        row |= {"kB/client": _mean(same.kilobytes())}
        row |= {"ece": _mean(same.calibration().values())} if calibrated else {}
        more = (*WORST, *QUARTERS[:2]) if deployment else ()
        rows.append(row | {metric.column.key: _mean(same.values(metric).values()) for metric in more})
    return rows


def _mean(values: Collection[float]) -> float | None:
    return sum(values) / len(values) if values else None
