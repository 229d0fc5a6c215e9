"""Run a plan: everything that is missing in its folder, on all cores, one event per item."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.validate import at_least, refuse
from ..version import __version__
from .folder import RunFolder
from .item import load_plugin, work
from .manifest import describe_session, manifest, now
from .plan import Item, Plan, as_message
from .pool import unordered
from .records import Result
from .together import batches

MOST_JOBS = 1024  # processes at once
Answer = tuple[str, float] | BaseException  # a line of results and its seconds


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

    ``executor`` is where: empty for this machine, "dask:ADDRESS" for a cluster.
    """

    jobs: int = 0
    plugins: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    executor: str = ""

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
    if done(plan, folder):
        yield from _events(plan, _kept(folder, plan))
        return
    with folder.lock():
        session = Session(plan, folder, options)
        yield from session.kept()
        for position, answer in answers([(plan, item) for item in session.missing], options):
            yield session.take(session.missing[position], answer)
        session.close()


def done(plan: Plan, folder: RunFolder) -> bool:
    """Say whether a folder has everything, made with this version."""
    return folder.complete() and len(_kept(folder, plan)) == len(plan.items())


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


def _kept(folder: RunFolder, plan: Plan) -> dict[tuple[str, int], str]:
    """Return the lines to keep; those of another version of this package are not."""
    sessions = folder.manifest().get("sessions") or []
    made_with = {_version(session) for session in sessions}
    return folder.trusted(plan) if made_with <= {__version__} else {}


def _version(session: Any) -> str | None:
    found = session.get("versions", {}).get("latte-tta") if isinstance(session, dict) else None
    return found if isinstance(found, str) else None


class Session:
    """A run folder that is being filled; whoever makes one holds its lock."""

    def __init__(self, plan: Plan, folder: RunFolder, options: Options) -> None:
        self.plan, self.folder, self.failed = plan, folder, 0
        self.lines = _kept(folder, plan)
        self.before = folder.manifest() if self.lines else {}
        folder.restart(plan, _in_order(plan, self.lines))
        self.told = describe_session(options.command, options.processes)
        folder.write_manifest(manifest(plan, self.before, self.told))
        self.missing = [item for item in plan.items() if (item.method.label, item.seed) not in self.lines]

    def kept(self) -> Iterator[Event]:
        """Yield what was there already."""
        yield from _events(self.plan, self.lines)

    def take(self, item: Item, answer: Answer) -> Event:
        """Write what came back for an item."""
        if isinstance(answer, BaseException):
            self.failed += 1
            return Event("failed", item, None, 0.0, f"{type(answer).__name__}: {answer}")
        line, seconds = answer
        self.folder.append(line, seconds)
        self.lines[item.method.label, item.seed] = line
        return Event("done", item, Result.from_json(line), seconds)

    def close(self) -> None:
        """Say that it ended; a folder that has everything is done."""
        self.folder.write_manifest(manifest(self.plan, self.before, {**self.told, "ended": now()}))
        if self.failed:
            raise IncompleteError(
                f"{self.failed} of {len(self.plan.items())} items failed; the others are kept in {self.folder.path}"
            )
        self.folder.finish(_in_order(self.plan, self.lines))


def answers(jobs: Sequence[tuple[Plan, Item]], options: Options) -> Iterator[tuple[int, Answer]]:
    """Do items of any plans, those together that can be; yield positions and what came back, as it comes."""
    if not jobs:
        return
    groups = batches(jobs)
    messages = [as_message([jobs[position] for position in group], options.plugins) for group in groups]
    for number, answer in unordered(work, messages, options.processes, options.executor):
        if isinstance(answer, BaseException):
            yield from ((position, answer) for position in groups[number])
            continue
        told = json.loads(answer)
        for position, line in zip(groups[number], told["lines"], strict=True):
            yield position, (line, told["seconds"])


def _events(plan: Plan, lines: dict[tuple[str, int], str]) -> Iterator[Event]:
    for item in plan.items():
        line = lines.get((item.method.label, item.seed))
        if line is not None:
            yield Event("kept", item, Result.from_json(line))


def _in_order(plan: Plan, lines: dict[tuple[str, int], str]) -> list[str]:
    keys = [(item.method.label, item.seed) for item in plan.items()]
    return [lines[key] for key in keys if key in lines]
