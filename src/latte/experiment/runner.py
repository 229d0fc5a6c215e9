"""Run a plan: everything that is missing in its folder, on all cores, one event per item."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..core.validate import at_least
from ..errors import refuse
from ..simulation.engine import (
    Follow,
    compile_loops,
    log_compilation,
    must_compile,
    warn_of_copy_search,
    warn_without_loops,
)
from ..simulation.records import Result
from .folder import RunFolder
from .item import load_plugin, work
from .manifest import describe_session
from .plan import Job, PlacedPlan, Plan, as_message
from .session import Done as Done
from .session import Event as Event
from .session import IncompleteError as IncompleteError
from .session import ItemOutput, Session, close_all, existing_events, in_plan_order, is_done, trusted_lines
from .together import batches
from .workers import unordered

MOST_JOBS = 1024  # processes at once


@dataclass(frozen=True, slots=True)
class Options:
    """How to run, none of which changes the numbers. ``jobs`` 0 means one per core.

    ``executor`` is where: empty for this machine, "dask:ADDRESS" for a cluster. With ``predictions`` the prediction of
    every sample is stored, too (:func:`latte.experiment.predictions.read_predictions`). ``follow_compilation``
    goes through the steps of :func:`latte.simulation.engine.compile_loops`, where these are necessary.
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
        return at_least("jobs", self.jobs, 0, MOST_JOBS) or os.cpu_count() or 1


def execute(plan: Plan, out: Path, options: Options | None = None) -> Iterator[Event]:
    """Do what is missing of ``plan`` in its folder under ``out``, and yield an :class:`Event` per item.

    A folder that is done is only read. Stopping early keeps what is finished; calling again does the rest, and the
    results are the same bytes as those of a run that was never stopped.
    """
    options = options or Options()
    for plugin in options.plugins:
        load_plugin(Path(plugin))
    folder = RunFolder(Path(out) / plan.name)
    if is_done(plan, folder, options.predictions):
        yield from existing_events(plan, trusted_lines(folder, plan))
        return
    with folder.lock():
        for _, event in execute_all([PlacedPlan(plan, Path(out))], options):
            yield event


def execute_all(plans: Sequence[PlacedPlan], options: Options) -> Iterator[tuple[int, Event]]:
    """Do what is missing of several plans, each in its folder under its path, with the same processes.

    Yields the position of the plan and the event. The caller holds the locks of the folders.
    """
    sessions: dict[int, Session] = {}
    machine: dict[str, Any] = {}
    for position, (plan, out) in enumerate(plans):
        folder = RunFolder(out / plan.name)
        if is_done(plan, folder, options.predictions):
            yield from ((position, event) for event in existing_events(plan, trusted_lines(folder, plan)))
            continue
        machine = machine or describe_session(options.command, options.processes)
        sessions[position] = Session(plan, folder, options.predictions, machine)
        yield from ((position, event) for event in sessions[position].existing())
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
    return [Result.from_json(line) for line in in_plan_order(plan, RunFolder(Path(out) / plan.name).trusted(plan))]


def do_items(jobs: Sequence[Job], options: Options) -> Iterator[tuple[int, ItemOutput]]:
    """Do items of any plans, those together that can be; yield positions and what comes of them, in any order."""
    if not jobs:
        return
    groups = batches(jobs)
    _prepare_engine(jobs, options)
    threads = 1 if options.executor else max(1, options.processes // len(groups))  # cores that would be idle
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


def _prepare_engine(jobs: Sequence[Job], options: Options) -> None:
    """Compile the engine's loops before the workers start, if they will need them; those of a cluster do it there."""
    automatic = [(plan.size, item.method) for plan, item in jobs if plan.config.engine == "auto"]
    warn_without_loops(method.name for _, method in automatic)
    warn_of_copy_search((method.name, method.params) for _, method in automatic)
    if options.executor:
        return
    if any(must_compile(method.name, method.params, size, len(jobs)) for size, method in automatic):
        options.follow_compilation(compile_loops())
