"""What folders of runs hold: runs that are reported as they are, and sweeps, whose points belong together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import refuse
from .runs import RESULTS, Run, read_run
from .sweep import PURPOSES, SWEEP_FILE, SweepFile, read_sweep_file

TUNING_COMMANDS = ("tune", "reproduce")  # what older folders, which do not record their purpose, were written by


@dataclass(frozen=True, slots=True)
class StoredPoint:
    """A point of a sweep that has results: the value of each axis, and the run."""

    values: Mapping[str, Any]
    run: Run


@dataclass(frozen=True, slots=True)
class SweepFolder:
    """A sweep or a tuning on disk.

    ``axes`` are the keys of what varies; ``points`` are in the order of the grid, those without results left out, of
    ``planned`` in all. A tuning that was named, as the folder of the call, is not folded away: ``named``.
    """

    folder: Path
    axes: tuple[str, ...]
    points: tuple[StoredPoint, ...]
    planned: int
    purposes: tuple[str, ...]
    named: bool = False

    @property
    def tuning(self) -> bool:
        """Whether the points were run for a choice only, and not to be reported."""
        return self.purposes == ("tuning",)

    def note(self) -> str | None:
        """Return what a reader of the report has to know about the folder; None where all is well."""
        if len(self.points) == self.planned:
            return None
        return f"{self.folder}: not finished, {len(self.points)} of {self.planned} points so far"


@dataclass(frozen=True, slots=True)
class Collection:
    """The content of the folders that a report was called with."""

    runs: tuple[Run, ...]
    sweeps: tuple[SweepFolder, ...]

    def every_run(self) -> list[Run]:
        """Return the runs, then those at the points of sweeps."""
        return [*self.runs, *(point.run for sweep in self.sweeps for point in sweep.points)]

    def notes(self) -> list[str]:
        """Return what a reader has to know about single folders."""
        notes = [*(run.note() for run in self.every_run()), *(sweep.note() for sweep in self.sweeps)]
        return [note for note in notes if note]


def collect(paths: Iterable[Path]) -> Collection:
    """Read the run folders among ``paths`` and below them, each once; paths without a single result are refused."""
    paths = list(paths)
    runs: dict[Path, Run] = {}
    points: dict[Path, list[Path]] = {}  # by the folder of their sweep
    for path in paths:
        for folder in _run_folders(path):
            if folder == path or not (folder.parent / SWEEP_FILE).is_file():
                runs.setdefault(folder, read_run(folder))
            elif folder not in points.setdefault(folder.parent, []):
                points[folder.parent].append(folder)
    sweeps = [_sweep(parent, inside, parent in paths) for parent, inside in points.items()]
    collection = Collection(tuple(runs.values()), tuple(sweep for sweep in sweeps if sweep.points))
    if not collection.every_run():
        got = f"{', '.join(map(str, paths))}, without a result that {SWEEP_FILE} lists"
        raise refuse("runs", got, "at least one finished (method, seed)")
    return collection


def _run_folders(path: Path) -> list[Path]:
    """Return the run folders at or below ``path``, in the order of their names."""
    if (path / RESULTS).is_file():
        return [path]
    folders = sorted(file.parent for file in path.glob(f"**/{RESULTS}"))
    if not folders:
        raise refuse("run", f"{path}, which has no {RESULTS}", "a folder that `latte run` wrote")
    return folders


def _sweep(folder: Path, inside: Sequence[Path], named: bool) -> SweepFolder:
    """Read the points of a sweep, which are the run folders ``inside`` that its list names."""
    file = read_sweep_file(folder)
    runs = {path.name: run for path in inside if (run := read_run(path, empty=True)).results}
    points = tuple(StoredPoint(point.values, runs[point.run]) for point in file.points if point.run in runs)
    axes = tuple(axis.key for axis in file.axes)
    return SweepFolder(folder, axes, points, len(file.points), _purposes(file, points), named)


def _purposes(file: SweepFile, points: Sequence[StoredPoint]) -> tuple[str, ...]:
    """Return what the sweep was run for: as it records, or by the commands in the manifests of older folders."""
    if file.purposes:
        return file.purposes
    commands = {word for point in points for word in _commands(point.run)}
    return PURPOSES[1:] if commands and commands <= set(TUNING_COMMANDS) else PURPOSES[:1]


def _commands(run: Run) -> list[str]:
    """Return which commands of ``latte`` wrote a run."""
    sessions = run.manifest.get("sessions")
    lines = (
        [session.get("command") for session in sessions if isinstance(session, dict)]
        if isinstance(sessions, list)
        else []
    )
    return [str(line[1]) for line in lines if isinstance(line, list) and len(line) > 1]
