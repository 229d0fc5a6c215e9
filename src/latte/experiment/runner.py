"""Run a plan: everything that is missing in its folder, on all cores, one event per item."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from ..core.validate import at_least, refuse
from ..simulation.engine import warn_without_loops
from ..simulation.records import Result
from ..version import __version__
from .folder import RunFolder
from .item import load_plugin, work
from .manifest import describe_session, manifest, now
from .plan import Item, Plan, as_message
from .predictions import Key, PredictionFiles, unpack
from .together import batches
from .workers import unordered

MOST_JOBS = 1024  # processes at once


class Done(NamedTuple):
    """An item that was done: its line of results, its seconds, and its predictions where they are wanted."""

    line: str
    seconds: float
    predictions: Mapping[str, Any] | None


Answer = Done | BaseException


@dataclass(frozen=True, slots=True)
class Event:
    """What happened to one item: ``kind`` is "kept" (it was there already), "done" or "failed"."""

    kind: str
    item: Item
    result: Result | None
    seconds: float = 0.0
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Options:
    """How to run, none of which changes the numbers. ``jobs`` 0 means one per core.

    ``executor`` is where: empty for this machine, "dask:ADDRESS" for a cluster. With ``predictions`` the prediction of
    every sample is kept too (:func:`latte.experiment.predictions.read_predictions`).
    """

    jobs: int = 0
    plugins: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    executor: str = ""
    predictions: bool = False

    @property
    def processes(self) -> int:
        """How many processes work at once."""
        return at_least("jobs", self.jobs, 0, MOST_JOBS) or os.cpu_count() or 1


class IncompleteError(RuntimeError):
    """Some items failed; what succeeded is kept and will not be done again."""


def execute(plan: Plan, out: Path, options: Options | None = None) -> Iterator[Event]:
    """Do what is missing of ``plan`` in its folder under ``out``, and yield an :class:`Event` per item.

    A folder that is done is only read. Stopping early keeps what is finished; calling again does the rest, and the
    results are the same bytes as those of a run that was never stopped.
    """
    options = options or Options()
    for plugin in options.plugins:
        load_plugin(Path(plugin))
    folder = RunFolder(Path(out) / plan.name)
    if done(plan, folder, options):
        yield from _events(plan, _kept(folder, plan))
        return
    with folder.lock():
        session = Session(plan, folder, options)
        yield from session.kept()
        for position, answer in answers([(plan, item) for item in session.missing], options):
            yield session.take(session.missing[position], answer)
        session.close()


def done(plan: Plan, folder: RunFolder, options: Options) -> bool:
    """Say whether a folder has everything, made with this version."""
    return folder.complete() and len(complete_items(folder, _kept(folder, plan), options)) == len(plan.items())


def complete_items(folder: RunFolder, lines: Mapping[Key, str], options: Options) -> set[Key]:
    """Return what need not be done: results, with their predictions where those are wanted."""
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
    return [Result.from_json(line) for line in _in_order(plan, folder.trusted(plan))]


def _kept(folder: RunFolder, plan: Plan) -> dict[Key, str]:
    """Return the lines to keep; those of another version of this package are not."""
    sessions = folder.manifest().get("sessions") or []
    made_with = {_version(session) for session in sessions}
    return folder.trusted(plan) if made_with <= {__version__} else {}


def _version(session: Any) -> str | None:
    found = session.get("versions", {}).get("latte-tta") if isinstance(session, dict) else None
    return found if isinstance(found, str) else None


class Session:
    """A run folder that is being filled; whoever makes one holds its lock.

    ``machine`` is what :func:`describe_session` says: it takes a quarter of a second, so many sessions share it.
    """

    def __init__(
        self, plan: Plan, folder: RunFolder, options: Options, machine: Mapping[str, Any] | None = None
    ) -> None:
        self.plan, self.folder, self.failed = plan, folder, 0
        self.lines = _kept(folder, plan)
        self.before = folder.manifest() if self.lines else {}
        self.complete = complete_items(folder, self.lines, options)
        self.predictions = PredictionFiles(folder.path)
        self.predictions.restart(self.lines)
        folder.restart(plan, _in_order(plan, self.lines))
        self.told = dict(machine or describe_session(options.command, options.processes))
        folder.write_manifest(manifest(plan, self.before, self.told))
        self.missing = [item for item in plan.items() if (item.method.label, item.seed) not in self.complete]

    def kept(self) -> Iterator[Event]:
        """Yield what was there already."""
        yield from _events(self.plan, {key: self.lines[key] for key in self.complete})

    def take(self, item: Item, answer: Answer) -> Event:
        """Write what came back for an item."""
        key = item.method.label, item.seed
        if isinstance(answer, BaseException):
            return self._fail(item, f"{type(answer).__name__}: {answer}")
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
        """Say that it ended; a folder that has everything is done."""
        self.folder.write_manifest(manifest(self.plan, self.before, {**self.told, "ended": now()}))
        if len(self.lines) == len(self.plan.items()):  # where items failed, it was for their predictions
            self.folder.finish(_in_order(self.plan, self.lines))
        if self.failed:
            raise IncompleteError(
                f"{self.failed} of {len(self.plan.items())} items failed; the others are kept in {self.folder.path}"
            )


def answers(jobs: Sequence[tuple[Plan, Item]], options: Options) -> Iterator[tuple[int, Answer]]:
    """Do items of any plans, those together that can be; yield positions and what came back, as it comes."""
    if not jobs:
        return
    groups = batches(jobs)
    warn_without_loops(item.method.name for plan, item in jobs if plan.config.engine == "auto")
    threads = 1 if options.executor else max(1, options.processes // len(groups))  # cores that would be idle
    messages = [
        as_message([jobs[i] for i in group], options.plugins, options.predictions, len(jobs), threads)
        for group in groups
    ]
    for number, answer in unordered(work, messages, options.processes, options.executor):
        if isinstance(answer, BaseException):
            yield from ((position, answer) for position in groups[number])
            continue
        told = json.loads(answer)
        for position, line, packed in zip(groups[number], told["lines"], told["predictions"], strict=True):
            yield position, Done(line, told["seconds"], packed)


def _agree(line: str, again: str) -> bool:
    """Say whether two lines have the same results; which path computed them does not matter."""
    return line == again or replace(Result.from_json(line), engine="") == replace(Result.from_json(again), engine="")


def _events(plan: Plan, lines: Mapping[Key, str]) -> Iterator[Event]:
    for item in plan.items():
        line = lines.get((item.method.label, item.seed))
        if line is not None:
            yield Event("kept", item, Result.from_json(line))


def _in_order(plan: Plan, lines: Mapping[Key, str]) -> list[str]:
    keys = [(item.method.label, item.seed) for item in plan.items()]
    return [lines[key] for key in keys if key in lines]
