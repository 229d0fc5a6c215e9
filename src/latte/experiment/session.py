"""A run folder while it is filled: what it has, what is missing, and what is written of every item that is done."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import InputError
from ..methods.plugins import describe_failure
from ..simulation.results import Result, same_scores
from ..version import __version__
from .folder import ResultLine, RunFolder, belongs
from .plan import Item, ItemKey, Plan
from .predictions import PredictionFiles, unpack
from .workers import WorkError

_GIT_SECONDS = 60.0  # a repository on a disk that hangs must not hold up a run
_PACKAGES = ("numpy", "click", "msgspec", "scipy", "numba", "torch", "onnxruntime")


def describe_session(command: tuple[str, ...], jobs: int) -> dict[str, Any]:
    """Return the state of this machine and process at the start of a session: it explains numbers, but decides none."""
    versions = {"python": sys.version.split()[0], "latte-tta": __version__}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "started": _now(),
        "ended": None,
        "command": list(command),
        "versions": versions,
        "git": {"latte": git_state(Path(__file__).parent), "here": git_state(Path.cwd())},
        "machine": {"system": platform.platform(), "cpu": _cpu_name(), "cores": os.cpu_count()},
        "jobs": jobs,
        "threads_per_job": 1,
    }


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def git_state(folder: Path) -> dict[str, Any] | None:
    """Return the commit of ``folder`` and whether anything is changed (None: unknown); None without git."""
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return None
    status = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return {"commit": commit, "changed": None if status is None else bool(status)}


def _git(folder: Path, *arguments: str) -> str | None:
    command = ["git", *arguments]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_GIT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _cpu_name() -> str:
    """Return the name of the processor as well as the system knows it."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


class Done(NamedTuple):
    """An item that was done: its line of results, its seconds, and its predictions where they are stored."""

    line: str
    seconds: float
    predictions: str | None


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


class Session:
    """A run folder that has to have everything of a plan, with ``predictions`` or without.

    To make it only reads. ``lines`` are the results that need not be computed again, ``complete`` the items that need
    not be done again; results of another version of this package must be.
    """

    def __init__(self, plan: Plan, folder: RunFolder, predictions: bool = False) -> None:
        self.plan, self.folder, self.failed = plan, folder, 0
        self.predictions = PredictionFiles(folder.path)
        self.before = folder.manifest()
        current = all(_version(session) == __version__ for session in self._sessions())
        self.lines: dict[ItemKey, ResultLine] = folder.trusted(plan) if current else {}
        self.complete = self.predictions.trusted(self._texts()) if predictions else set(self.lines)
        self.missing = [item for item in plan.items() if item.key not in self.complete]
        self.machine: Mapping[str, Any] = {}

    def is_done(self) -> bool:
        """Return whether the run has ended with everything."""
        return not self.missing and self.folder.complete()

    def existing(self) -> Iterator[Event]:
        """Yield the events of the items that were there already."""
        for item in self.plan.items():
            if item.key in self.complete:
                yield Event("existing", item, self.lines[item.key].result)

    def start(self, machine: Mapping[str, Any]) -> None:
        """Begin to fill the folder, whose lock the caller holds.

        ``machine`` is what :func:`describe_session` returns: it takes a quarter of a second, so many sessions share it.
        """
        self.machine, self.before = machine, self.before if self.lines else {}
        self.predictions.restart(self._texts())
        self.folder.restart(self.plan, self._in_order())
        self._write_manifest(machine)

    def take(self, item: Item, output: ItemOutput) -> Event:
        """Write what came of an item."""
        if isinstance(output, BaseException):
            return self._fail(item, str(output) if isinstance(output, WorkError) else describe_failure(output))
        try:
            again = ResultLine.parse(output.line)
        except InputError:
            again = None
        if again is None or (again.result.method, again.result.seed) != item.key or not belongs(again, self.plan):
            return self._fail(item, f"its record cannot be read back: {output.line[:200]}")
        line = self.lines.get(item.key, again)
        if not same_scores(line.result, again.result):  # it was done again for its predictions
            return self._fail(item, f"other results than before; to start anew, delete {self.folder.path}")
        if output.predictions is not None:
            self.predictions.add(self.plan, item, line.text, unpack(output.predictions))
        if item.key not in self.lines:
            self.folder.append(line, output.seconds)
        self.lines[item.key] = line
        return Event("done", item, line.result, output.seconds)

    def close(self) -> None:
        """Record the end; a folder that has everything is done."""
        results = (line.result for line in self.lines.values())
        approximate = {result.method: result.approximation for result in results if result.approximation}
        self._write_manifest({**self.machine, "ended": _now(), **({"approximate": approximate} if approximate else {})})
        if len(self.lines) == len(self.plan.items()):  # where items failed, it was for their predictions
            self.folder.finish(self._in_order())
        if self.failed:
            raise IncompleteError(
                f"{self.failed} of {len(self.plan.items())} items failed; the others are kept in {self.folder.path}"
            )

    def _fail(self, item: Item, problem: str) -> Event:
        self.failed += 1
        return Event("failed", item, None, 0.0, problem)

    def _sessions(self) -> list[Any]:
        sessions = self.before.get("sessions")
        return sessions if isinstance(sessions, list) else []

    def _texts(self) -> dict[ItemKey, str]:
        return {key: line.text for key, line in self.lines.items()}

    def _in_order(self) -> list[str]:
        return [self.lines[item.key].text for item in self.plan.items() if item.key in self.lines]

    def _write_manifest(self, session: Mapping[str, Any]) -> None:
        """Write the manifest with one more session; a resumed run has several."""
        plan = self.plan
        content = {
            "run": plan.name,
            "benchmark": plan.config.benchmark,
            "data": {
                "path": str(plan.entry.path),
                "sha256": plan.data.sha256,
                "fingerprint": plan.data.fingerprint,
                "encoder": plan.data.encoder,
            },
            "seeds": list(plan.config.seeds),
            "sources": dict(plan.sources),
            "sessions": [*self._sessions(), dict(session)],
        }
        self.folder.write_manifest(content)


def _version(session: Any) -> str | None:
    versions = session.get("versions") if isinstance(session, dict) else None
    return versions.get("latte-tta") if isinstance(versions, dict) else None


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
