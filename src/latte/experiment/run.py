"""Run a plan: everything that is missing in its folder, on all cores, one event per item."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
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
        return at_least("jobs", self.jobs, 0) or os.cpu_count() or 1


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
    lines = _kept(folder, plan)
    if folder.complete() and len(lines) == len(plan.items()):
        yield from _events(plan, lines)
        return
    with folder.lock():
        yield from _continue(plan, folder, options)


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


def _continue(plan: Plan, folder: RunFolder, options: Options) -> Iterator[Event]:
    lines = _kept(folder, plan)
    before = folder.manifest() if lines else {}
    folder.restart(plan, _in_order(plan, lines))
    session = describe_session(options.command, options.processes)
    folder.write_manifest(manifest(plan, before, session))
    yield from _events(plan, lines)
    missing = [item for item in plan.items() if (item.method.label, item.seed) not in lines]
    failed = 0
    for event, line in _work(plan, missing, options):
        if event.result is not None:
            folder.append(line, event.seconds)
            lines[event.item.method.label, event.item.seed] = line
        failed += event.kind == "failed"
        yield event
    folder.write_manifest(manifest(plan, before, {**session, "ended": now()}))
    if failed:
        raise IncompleteError(f"{failed} of {len(plan.items())} items failed; the others are kept in {folder.path}")
    folder.finish(_in_order(plan, lines))


def _work(plan: Plan, items: list[Item], options: Options) -> Iterator[tuple[Event, str]]:
    if not items:
        return
    messages = [as_message(plan, item, options.plugins) for item in items]
    for position, answer in unordered(work, messages, options.processes, options.executor):
        item = items[position]
        if isinstance(answer, BaseException):
            yield Event("failed", item, None, 0.0, f"{type(answer).__name__}: {answer}"), ""
            continue
        told = json.loads(answer)
        yield Event("done", item, Result.from_json(told["line"]), told["seconds"]), told["line"]


def _events(plan: Plan, lines: dict[tuple[str, int], str]) -> Iterator[Event]:
    for item in plan.items():
        line = lines.get((item.method.label, item.seed))
        if line is not None:
            yield Event("kept", item, Result.from_json(line))


def _in_order(plan: Plan, lines: dict[tuple[str, int], str]) -> list[str]:
    keys = [(item.method.label, item.seed) for item in plan.items()]
    return [lines[key] for key in keys if key in lines]
