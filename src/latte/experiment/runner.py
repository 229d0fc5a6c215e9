"""Run a plan: everything that is missing in its folder, on all cores, one event per item."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..core.types import Reals
from ..core.validate import at_least
from ..encoders.tuning import check_prompt_tuner
from ..engine import (
    Follow,
    compile_loops,
    has_engine,
    log_compilation,
    must_compile,
    warn_of_copy_search,
    warn_without_loops,
)
from ..errors import need, refuse
from ..methods import describe
from ..methods.plugins import load_plugin
from ..simulation.results import Result
from ..simulation.simulator import Schedule
from .config import MethodConfig, RunConfig, parse_method
from .folder import RunFolder
from .item import as_message, batches, work
from .plan import Job, Plan, make_plan
from .predictions import Predictions, unpack
from .session import Done as Done
from .session import Event as Event
from .session import IncompleteError as IncompleteError
from .session import ItemOutput, Session, close_all, describe_session
from .workers import SERIAL, check_executor, unordered

MOST_JOBS = 1024  # processes at once


@dataclass(frozen=True, slots=True)
class Options:
    """How to run, none of which changes the numbers. ``jobs`` 0 means one per core.

    ``executor`` is where: empty for processes of this machine, "serial" for this process (a debugger and a profiler see
    the work), "dask:ADDRESS" for a cluster. With ``predictions`` the prediction of every sample is stored, too
    (:func:`latte.experiment.predictions.read_predictions`). ``follow_compilation`` goes through the steps of
    :func:`latte.engine.compile_loops`, where these are necessary.
    """

    jobs: int = 0
    plugins: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    executor: str = ""
    predictions: bool = False
    follow_compilation: Follow = field(default=log_compilation, compare=False)

    @property
    def processes(self) -> int:
        """How many processes work at once."""
        if self.executor == SERIAL:
            return 1
        return at_least("jobs", self.jobs, 0, MOST_JOBS) or os.cpu_count() or 1

    @property
    def cluster(self) -> bool:
        """Whether the work is done on other machines."""
        return self.executor not in ("", SERIAL)


def execute(plan: Plan, out: Path, options: Options | None = None) -> Iterator[Event]:
    """Do what is missing of ``plan`` in its folder under ``out``, and yield an :class:`Event` per item.

    A folder that is done is only read. Stopping early keeps what is finished; calling again does the rest, and the
    results are the same bytes as those of a run that was never stopped.
    """
    options = options or Options()
    for plugin in options.plugins:
        load_plugin(Path(plugin))
    session = Session(plan, RunFolder(Path(out) / plan.name), options.predictions)
    if session.is_done():
        yield from session.existing()
        return
    with session.folder.lock():
        for _, event in execute_all([(plan, Path(out))], options):
            yield event


def execute_all(plans: Sequence[tuple[Plan, Path]], options: Options) -> Iterator[tuple[int, Event]]:
    """Do what is missing of several plans, each in its folder under the path beside it, with the same processes.

    Yields the position of the plan and the event. The caller holds the locks of the folders.
    """
    sessions: dict[int, Session] = {}
    machine: dict[str, Any] = {}
    for position, (plan, out) in enumerate(plans):
        session = Session(plan, RunFolder(out / plan.name), options.predictions)
        if not session.is_done():
            machine = machine or describe_session(options.command, options.processes)
            session.start(machine)
            sessions[position] = session
        yield from ((position, event) for event in session.existing())
    positions = [position for position, session in sessions.items() for _ in session.missing]
    jobs = [Job(session.plan, item) for session in sessions.values() for item in session.missing]
    for number, output in do_items(jobs, options):
        yield positions[number], sessions[positions[number]].take(jobs[number].item, output)
    close_all(list(sessions.values()))


def run(plan: Plan, out: Path, options: Options | None = None) -> list[Result]:
    """Do all of ``plan`` and return its results, in order."""
    for _ in execute(plan, out, options):
        pass
    return results(plan, out)


def results(plan: Plan, out: Path) -> list[Result]:
    """Return the results of a plan that is done."""
    folder = RunFolder(Path(out) / plan.name)
    if not folder.complete():
        raise refuse("run folder", f"{folder.path}, which is not done", "one that is (run it again)")
    return present_results(plan, out)


def present_results(plan: Plan, out: Path) -> list[Result]:
    """Return the results that there are of a plan, done or not."""
    lines = RunFolder(Path(out) / plan.name).trusted(plan)
    return [lines[item.key].result for item in plan.items() if item.key in lines]


def do_items(jobs: Sequence[Job], options: Options) -> Iterator[tuple[int, ItemOutput]]:
    """Do items of any plans, those together that can be; yield positions and what comes of them, in any order."""
    if not jobs:
        return
    groups = batches(jobs)
    automatic = [(plan.size, item.method) for plan, item in jobs if plan.config.engine == "auto"]
    warn_without_loops(method.name for _, method in automatic)
    warn_of_copy_search((method.name, method.params) for _, method in automatic)
    if not options.cluster and any(must_compile(m.name, m.params, size, len(jobs)) for size, m in automatic):
        options.follow_compilation(compile_loops())  # before the workers start; those of a cluster do it there
    threads = 1 if options.cluster else max(1, options.processes // len(groups))  # cores that would be idle
    messages = [
        as_message([jobs[i] for i in group], options.plugins, options.predictions, len(jobs), threads)
        for group in groups
    ]
    for number, answer in unordered(work, messages, options.processes, options.executor):
        if isinstance(answer, BaseException):
            yield from ((position, answer) for position in groups[number])
            continue
        message = json.loads(answer)
        for position, line, packed in zip(groups[number], message["lines"], message["predictions"], strict=True):
            yield position, Done(line, message["seconds"], packed)


def run_experiment(
    benchmark: str,
    methods: Sequence[str | MethodConfig],
    *,
    seeds: Iterable[int] = (0,),
    schedule: Schedule | None = None,
    out: str | Path = "runs",
    data: str | Path | None = None,
    options: Options | None = None,
) -> list[Result]:
    """Run every method on every seed of a benchmark and return the results, in order.

    A method is named as on the command line, ``[LABEL=]NAME[:PRESET][+KEY=VALUE...]``. Finished items are kept in a
    folder under ``out``: the same call again only reads them, and a call that was stopped goes on.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     clip, latte = run_experiment("cifar10c-mini", ["clip", "latte:cifar10c"], out=folder)
    >>> clip.method, round(clip.micro, 2)
    ('clip', 35.57)
    """
    chosen = tuple(m if isinstance(m, MethodConfig) else MethodConfig(**parse_method(m)) for m in methods)
    config = RunConfig(benchmark, chosen, tuple(seeds), schedule=schedule or Schedule())
    plan = make_plan(config, None if data is None else Path(data))
    return run(plan, Path(out), options)


@dataclass(frozen=True, eq=False)
class TrialRun:
    """One method on one seed.

    ``over_time`` (longest,) is the accuracy in per cent over all samples up to each position of the streams,
    ``downloads`` (N, N) who received how much from whom, None for a method that does not collaborate.
    ``predictions`` are the answers to single images, None where they are not known.
    """

    result: Result
    over_time: Reals
    downloads: Reals | None
    predictions: Predictions | None = None


def run_trials(plan: Plan, jobs: int = 0) -> Iterator[TrialRun]:
    """Run every item of ``plan`` and yield the trials as they end; ``jobs`` 0 means one process per core."""
    items = sorted(plan.items(), key=lambda item: has_engine(item.method.name))  # the slowest first, to end together
    messages = [as_message([Job(plan, item)], predictions=True, downloads=True) for item in items]
    for _, answer in unordered(work, messages, Options(jobs).processes):
        if isinstance(answer, BaseException):
            raise answer
        message = json.loads(answer)
        predictions, (counted,) = unpack(message["predictions"][0]), message["downloads"]
        over_time = 100 * np.bincount(predictions.position, predictions.correct).cumsum()
        over_time /= np.bincount(predictions.position).cumsum()
        downloads = None if counted is None else np.array(counted, np.float64)
        yield TrialRun(Result.from_json(message["lines"][0]), over_time, downloads, predictions)


def in_order(trials: Iterable[TrialRun], plan: Plan) -> list[TrialRun]:
    """Return the trials in the order of the items of ``plan``."""
    by_key = {(trial.result.method, trial.result.seed): trial for trial in trials}
    return [by_key[item.method.label, item.seed] for item in plan.items()]


def check_packages(plans: Iterable[Plan], options: Options) -> None:
    """Import what the workers will import; a missing package is named before the first item starts.

    A cluster's workers may have other packages than this machine, so there only the connection to it is checked.
    """
    if options.executor:
        check_executor(options.executor)
    if options.cluster:
        need("distributed", "cluster")
        return
    tuning = [plan for plan in plans if any(describe(method.name).tunes_prompt for method in plan.config.methods)]
    for encoder in sorted({plan.config.text_encoder for plan in tuning if plan.config.text_encoder}):
        check_prompt_tuner(encoder)
