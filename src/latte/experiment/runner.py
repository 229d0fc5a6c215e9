"""The runner of plans: everything that is missing in a run folder, on all cores, one event per item."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..core.types import Reals
from ..core.validate import at_least
from ..encoders.tuning import check_prompt_tuner
from ..engine.api import has_engine, must_compile, warn_of_labels, warn_of_slow_path
from ..engine.cache import Follow, compile_loops, log_compilation
from ..errors import InputError, need, refuse
from ..files.atomic import write_text
from ..methods import describe
from ..methods.plugins import describe_failure, load_plugin
from ..simulation.results import Result, same_scores
from ..simulation.simulator import Schedule
from ..version import __version__
from .config import MethodConfig, RunConfig, parse_method
from .folder import PredictionFiles, Predictions, ResultLine, RunFolder, belongs, unpack
from .item import as_message, batches, work
from .plan import Item, ItemKey, Job, Plan, make_plan
from .workers import SERIAL, WorkError, check_executor, unordered

MOST_JOBS = 1024  # processes at once


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
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8", errors="replace").splitlines() if info.is_file() else []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return {
        "started": _now(),
        "ended": None,
        "command": list(command),
        "versions": versions,
        "git": {"latte": git_state(Path(__file__).parent), "here": git_state(Path.cwd())},
        "machine": {
            "system": platform.platform(),
            "cpu": next(models, platform.processor() or platform.machine()),
            "cores": os.cpu_count(),
        },
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
        prompts = {"prompts": plan.prompts} if plan.prompts else {}
        content = {
            "run": plan.name,
            "benchmark": plan.config.benchmark,
            "data": {"path": str(plan.entry.path), **asdict(plan.data), **prompts},
            "seeds": list(plan.config.seeds),
            "sources": dict(plan.sources),
            "sessions": [*self._sessions(), dict(session)],
        }
        write_text(self.folder.path / "manifest.json", json.dumps(content, indent=1) + "\n")


def _version(session: Any) -> str | None:
    versions = session.get("versions") if isinstance(session, dict) else None
    return versions.get("latte-tta") if isinstance(versions, dict) else None


@dataclass(frozen=True, slots=True)
class Options:
    """How to run, none of which changes the numbers. ``jobs`` 0 means one per core.

    ``executor`` is where: empty for processes of this machine, "serial" for this process (a debugger and a profiler see
    the work), "dask:ADDRESS" for a cluster. With ``predictions`` the prediction of every sample is stored, too
    (:func:`latte.experiment.folder.read_predictions`). ``follow_compilation`` goes through the steps of
    :func:`latte.engine.cache.compile_loops`, where these are necessary.
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
    problem: IncompleteError | None = None
    for session in sessions.values():
        try:
            session.close()
        except IncompleteError as error:
            problem = problem or error
    if problem:
        raise problem


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
    automatic = [job for job in jobs if job.plan.config.engine == "auto"]
    warn_of_slow_path((item.method.name, item.method.params) for _, item in automatic)
    warn_of_labels(item.method.name for plan, item in automatic if plan.config.labels)
    if not options.cluster and any(
        must_compile(item.method.name, item.method.params, plan.readable_seconds * len(jobs))
        for plan, item in automatic
    ):
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


def run_trials(plan: Plan, options: Options | None = None) -> Iterator[TrialRun]:
    """Run every item of ``plan`` and yield the trials as they end."""
    options = options or Options()
    items = sorted(plan.items(), key=lambda item: has_engine(item.method.name))  # the slowest first, to end together
    messages = [as_message([Job(plan, item)], predictions=True, downloads=True) for item in items]
    for _, answer in unordered(work, messages, options.processes, options.executor):
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
