"""A run folder while it is filled: what it has, what is missing, and what is written of every item that is done."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..errors import InputError
from ..simulation.records import Result, same_scores
from ..version import __version__
from .failures import describe_failure
from .folder import RunFolder, reads_back
from .manifest import manifest, now
from .plan import Item, Plan
from .predictions import ItemKey, PredictionFiles, unpack
from .workers import WorkError


class Done(NamedTuple):
    """An item that was done: its line of results, its seconds, and its predictions where they are stored."""

    line: str
    seconds: float
    predictions: Mapping[str, Any] | None


ItemOutput = Done | BaseException  # what comes of an item


@dataclass(frozen=True, slots=True)
class Event:
    """What happened to one item: ``kind`` is "existing" (its result was there already), "done" or "failed"."""

    kind: str
    item: Item
    result: Result | None
    seconds: float = 0.0
    problem: str = ""


class IncompleteError(RuntimeError):
    """Some items failed; the others are in the run folder and will not be done again."""


def is_done(plan: Plan, folder: RunFolder, predictions: bool) -> bool:
    """Return whether a folder has everything, with ``predictions`` or without, made with this version."""
    if not folder.complete():
        return False
    return len(complete_items(folder, trusted_lines(folder, plan), predictions)) == len(plan.items())


def complete_items(folder: RunFolder, lines: Mapping[ItemKey, str], predictions: bool) -> set[ItemKey]:
    """Return the items that need not be done: those with a result and, if they are stored, with ``predictions``."""
    return PredictionFiles(folder.path).trusted(lines) if predictions else set(lines)


def trusted_lines(folder: RunFolder, plan: Plan) -> dict[ItemKey, str]:
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

    def __init__(self, plan: Plan, folder: RunFolder, predictions: bool, machine: Mapping[str, Any]) -> None:
        self.plan, self.folder, self.failed = plan, folder, 0
        self.lines = trusted_lines(folder, plan)
        self.before = folder.manifest() if self.lines else {}
        self.complete = complete_items(folder, self.lines, predictions)
        self.predictions = PredictionFiles(folder.path)
        self.predictions.restart(self.lines)
        folder.restart(plan, in_plan_order(plan, self.lines))
        self.machine = machine
        folder.write_manifest(manifest(plan, self.before, machine))
        self.missing = [item for item in plan.items() if (item.method.label, item.seed) not in self.complete]

    def existing(self) -> Iterator[Event]:
        """Yield the events of the items that were there already."""
        yield from existing_events(self.plan, {key: self.lines[key] for key in self.complete})

    def take(self, item: Item, output: ItemOutput) -> Event:
        """Write what came of an item."""
        key = item.method.label, item.seed
        if isinstance(output, BaseException):
            return self._fail(item, str(output) if isinstance(output, WorkError) else describe_failure(output))
        if not reads_back(output.line, item, self.plan):
            return self._fail(item, f"its record cannot be read back: {output.line[:200]}")
        line = self.lines.get(key, output.line)
        if not _agree(line, output.line):  # it was done again for its predictions
            return self._fail(item, f"other results than before; to start anew, delete {self.folder.path}")
        if output.predictions is not None:
            self.predictions.add(self.plan, item, line, unpack(output.predictions))
        if key not in self.lines:
            self.folder.append(line, output.seconds)
        self.lines[key] = line
        return Event("done", item, Result.from_json(line), output.seconds)

    def _fail(self, item: Item, problem: str) -> Event:
        self.failed += 1
        return Event("failed", item, None, 0.0, problem)

    def close(self) -> None:
        """Record the end; a folder that has everything is done."""
        results = (Result.from_json(line) for line in self.lines.values())
        approximate = {result.method: result.approximation for result in results if result.approximation}
        session = {**self.machine, "ended": now(), **({"approximate": approximate} if approximate else {})}
        self.folder.write_manifest(manifest(self.plan, self.before, session))
        if len(self.lines) == len(self.plan.items()):  # where items failed, it was for their predictions
            self.folder.finish(in_plan_order(self.plan, self.lines))
        if self.failed:
            raise IncompleteError(
                f"{self.failed} of {len(self.plan.items())} items failed; the others are kept in {self.folder.path}"
            )


def close_all(sessions: Sequence[Session]) -> None:
    """Close all sessions; raise what the first with failed items raises."""
    problem: IncompleteError | None = None
    for session in sessions:
        try:
            session.close()
        except IncompleteError as error:
            problem = problem or error
    if problem:
        raise problem


def _agree(line: str, again: str) -> bool:
    """Say whether two lines have the same results; which path computed them does not matter."""
    if line == again:
        return True
    try:
        return same_scores(Result.from_json(line), Result.from_json(again))
    except InputError:  # a line that was edited
        return False


def existing_events(plan: Plan, lines: Mapping[ItemKey, str]) -> Iterator[Event]:
    """Yield an event for each item of ``plan`` that has a line."""
    for item in plan.items():
        line = lines.get((item.method.label, item.seed))
        if line is not None:
            yield Event("existing", item, Result.from_json(line))


def in_plan_order(plan: Plan, lines: Mapping[ItemKey, str]) -> list[str]:
    """Return the lines that there are, in the order of the items of ``plan``."""
    keys = [(item.method.label, item.seed) for item in plan.items()]
    return [lines[key] for key in keys if key in lines]
