"""Run a plan: everything that is missing in its folder, on all cores, one event per item."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ..core.validate import at_least, refuse
from ..simulation.engine import (
    Follow,
    compile_loops,
    log_compilation,
    must_compile,
    warn_of_copy_search,
    warn_without_loops,
)
from ..simulation.records import Result, same_scores
from ..version import __version__
from .failures import describe_failure
from .folder import RunFolder, reads_back
from .item import load_plugin, work
from .manifest import describe_session, manifest, now
from .plan import Item, Plan, as_message
from .predictions import ItemKey, PredictionFiles, unpack
from .together import batches
from .workers import WorkError, unordered

MOST_JOBS = 1024  # processes at once


class Done(NamedTuple):
    """An item that was done: its line of results, its seconds, and its predictions where they are stored."""

    line: str
    seconds: float
    predictions: Mapping[str, Any] | None


Answer = Done | BaseException


@dataclass(frozen=True, slots=True)
class Event:
    """What happened to one item: ``kind`` is "existing" (its result was there already), "done" or "failed"."""

    kind: str
    item: Item
    result: Result | None
    seconds: float = 0.0
    problem: str = ""


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


class IncompleteError(RuntimeError):
    """Some items failed; the others are in the run folder and will not be done again."""


def execute(plan: Plan, out: Path, options: Options | None = None) -> Iterator[Event]:
    """Do what is missing of ``plan`` in its folder under ``out``, and yield an :class:`Event` per item.

    A folder that is done is only read. Stopping early keeps what is finished; calling again does the rest, and the
    results are the same bytes as those of a run that was never stopped.
    """
    options = options or Options()
    for plugin in options.plugins:
        load_plugin(Path(plugin))
    folder = RunFolder(Path(out) / plan.name)
    if is_done(plan, folder, options):
        yield from _events(plan, _trusted(folder, plan))
        return
    with folder.lock():
        for _, event in execute_all([(plan, Path(out))], options):
            yield event


def execute_all(plans: Sequence[tuple[Plan, Path]], options: Options) -> Iterator[tuple[int, Event]]:
    """Do what is missing of several plans, each in its folder under its path, with the same processes.

    Yields the position of the plan and the event. The caller holds the locks of the folders.
    """
    sessions: dict[int, Session] = {}
    machine: dict[str, Any] = {}
    for position, (plan, out) in enumerate(plans):
        folder = RunFolder(out / plan.name)
        if is_done(plan, folder, options):
            yield from ((position, event) for event in _events(plan, _trusted(folder, plan)))
            continue
        machine = machine or describe_session(options.command, options.processes)
        sessions[position] = Session(plan, folder, options, machine)
        yield from ((position, event) for event in sessions[position].existing())
    jobs = [(position, item) for position, session in sessions.items() for item in session.missing]
    for number, answer in answers([(plans[position][0], item) for position, item in jobs], options):
        position, item = jobs[number]
        yield position, sessions[position].take(item, answer)
    _close(list(sessions.values()))


def is_done(plan: Plan, folder: RunFolder, options: Options) -> bool:
    """Return whether a folder has everything, made with this version."""
    return folder.complete() and len(complete_items(folder, _trusted(folder, plan), options)) == len(plan.items())


def complete_items(folder: RunFolder, lines: Mapping[ItemKey, str], options: Options) -> set[ItemKey]:
    """Return the items that need not be done: results, with their predictions where those are stored."""
    return PredictionFiles(folder.path).trusted(lines) if options.predictions else set(lines)


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
    return [Result.from_json(line) for line in _in_order(plan, RunFolder(Path(out) / plan.name).trusted(plan))]


def _trusted(folder: RunFolder, plan: Plan) -> dict[ItemKey, str]:
    """Return the lines that need not be computed again; those of another version of this package must be."""
    sessions = folder.manifest().get("sessions") or []
    made_with = {_version(session) for session in sessions}
    return folder.trusted(plan) if made_with <= {__version__} else {}


def _version(session: Any) -> str | None:
    version = session.get("versions", {}).get("latte-tta") if isinstance(session, dict) else None
    return version if isinstance(version, str) else None


class Session:
    """A run folder that is being filled; the caller holds its lock.

    ``machine`` is what :func:`describe_session` returns: it takes a quarter of a second, so many sessions share it.
    """

    def __init__(self, plan: Plan, folder: RunFolder, options: Options, machine: Mapping[str, Any]) -> None:
        self.plan, self.folder, self.failed = plan, folder, 0
        self.lines = _trusted(folder, plan)
        self.before = folder.manifest() if self.lines else {}
        self.complete = complete_items(folder, self.lines, options)
        self.predictions = PredictionFiles(folder.path)
        self.predictions.restart(self.lines)
        folder.restart(plan, _in_order(plan, self.lines))
        self.machine = machine
        folder.write_manifest(manifest(plan, self.before, machine))
        self.missing = [item for item in plan.items() if (item.method.label, item.seed) not in self.complete]

    def existing(self) -> Iterator[Event]:
        """Yield the events of the items that were there already."""
        yield from _events(self.plan, {key: self.lines[key] for key in self.complete})

    def take(self, item: Item, answer: Answer) -> Event:
        """Write the answer for an item."""
        key = item.method.label, item.seed
        if isinstance(answer, BaseException):
            return self._fail(item, str(answer) if isinstance(answer, WorkError) else describe_failure(answer))
        if not reads_back(answer.line, item, self.plan):
            return self._fail(item, f"its record cannot be read back: {answer.line[:200]}")
        line = self.lines.get(key, answer.line)
        if not _agree(line, answer.line):  # it was done again for its predictions
            return self._fail(item, f"other results than before; to start anew, delete {self.folder.path}")
        if answer.predictions is not None:
            self.predictions.add(self.plan, item, line, unpack(answer.predictions))
        if key not in self.lines:
            self.folder.append(line, answer.seconds)
        self.lines[key] = line
        return Event("done", item, Result.from_json(line), answer.seconds)

    def _fail(self, item: Item, problem: str) -> Event:
        self.failed += 1
        return Event("failed", item, None, 0.0, problem)

    def close(self) -> None:
        """Record the end; a folder that has everything is done."""
        self.folder.write_manifest(manifest(self.plan, self.before, {**self.machine, "ended": now()}))
        if len(self.lines) == len(self.plan.items()):  # where items failed, it was for their predictions
            self.folder.finish(_in_order(self.plan, self.lines))
        if self.failed:
            raise IncompleteError(
                f"{self.failed} of {len(self.plan.items())} items failed; the others are kept in {self.folder.path}"
            )


def _close(sessions: Sequence[Session]) -> None:
    """Close all sessions; raise what the first with failed items raises."""
    problem: IncompleteError | None = None
    for session in sessions:
        try:
            session.close()
        except IncompleteError as error:
            problem = problem or error
    if problem:
        raise problem


def answers(jobs: Sequence[tuple[Plan, Item]], options: Options) -> Iterator[tuple[int, Answer]]:
    """Do items of any plans, those together that can be; yield positions and answers as they come."""
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


def _prepare_engine(jobs: Sequence[tuple[Plan, Item]], options: Options) -> None:
    """Compile the engine's loops before the workers start, if they will need them; those of a cluster do it there."""
    automatic = [(plan.size, item.method) for plan, item in jobs if plan.config.engine == "auto"]
    warn_without_loops(method.name for _, method in automatic)
    warn_of_copy_search((method.name, method.params) for _, method in automatic)
    if options.executor:
        return
    if any(must_compile(method.name, method.params, size, len(jobs)) for size, method in automatic):
        options.follow_compilation(compile_loops())


def _agree(line: str, again: str) -> bool:
    """Say whether two lines have the same results; which path computed them does not matter."""
    if line == again:
        return True
    try:
        return same_scores(Result.from_json(line), Result.from_json(again))
    except ValueError:  # a line that was edited
        return False


def _events(plan: Plan, lines: Mapping[ItemKey, str]) -> Iterator[Event]:
    for item in plan.items():
        line = lines.get((item.method.label, item.seed))
        if line is not None:
            yield Event("existing", item, Result.from_json(line))


def _in_order(plan: Plan, lines: Mapping[ItemKey, str]) -> list[str]:
    keys = [(item.method.label, item.seed) for item in plan.items()]
    return [lines[key] for key in keys if key in lines]
