"""What folders of runs hold: runs that are reported as they are, and sweeps, whose points belong together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import refuse
from ..files.documents import read_json, structure
from ..simulation.results import Result
from .folder import RunFolder, read_results
from .plan import UNKNOWN, Plan, RunFile
from .sweep import SWEEP_FILE, read_sweep_file

RESULTS, CONFIG, MANIFEST = "results.jsonl", "config.json", "manifest.json"


@dataclass(frozen=True, slots=True)
class Run:
    """What a run folder holds; ``config`` and ``manifest`` are empty where the files are not there.

    ``done`` is False for a run that was stopped, or still goes on: its table is not the last word. ``ignored`` counts
    the lines of its results that are not trusted.
    """

    folder: Path
    results: tuple[Result, ...]
    config: Mapping[str, Any]
    manifest: Mapping[str, Any]
    done: bool = True
    ignored: int = 0

    def note(self) -> str | None:
        """Return what a reader of the report has to know about the folder; None where all is well."""
        parts = [] if self.done else [f"not finished, {len(self.results)} results so far{self._missing()}"]
        if self.ignored:
            parts.append(f"ignored {_ignored(self.ignored)} (edited or broken: `latte run` redoes them)")
        return f"{self.folder}: {'; '.join(parts)}" if parts else None

    def _missing(self) -> str:
        """Return which methods and seeds have no result yet, where the configuration says what was to be run."""
        config = self.config.get("config")
        seeds = config.get("seeds") if isinstance(config, Mapping) else None
        there = [(result.method, result.seed) for result in self.results]  # a file may have a seed that no set takes
        lacking = {
            str(label): [str(seed) for seed in seeds if (label, seed) not in there] if isinstance(seeds, list) else []
            for label in (method.get("label") for method in self._methods())
        }
        words = [f"{label} (seeds {', '.join(absent)})" for label, absent in lacking.items() if absent]
        return f", without {', '.join(words)}" if words else ""

    def method_names(self) -> dict[str, str]:
        """Return the registered name of each method by its label, as the configuration records them.

        The ``method`` of a result is a label. A folder without a configuration, or one that was edited, gives none.
        """
        pairs = [(entry.get("label"), entry.get("name")) for entry in self._methods()]
        return {label: name for label, name in pairs if isinstance(label, str) and isinstance(name, str)}

    def _methods(self) -> list[Mapping[str, Any]]:
        config = self.config.get("config")
        methods = config.get("methods") if isinstance(config, Mapping) else None
        return [entry for entry in methods if isinstance(entry, Mapping)] if isinstance(methods, list) else []

    def file(self) -> RunFile:
        """Return config.json in its full form; a folder without it is refused."""
        return structure(self.config, RunFile, str(self.folder / CONFIG), extra=True)

    def encoder(self) -> str | None:
        """Return the encoder that the data was made with, as the manifest (or the configuration) records it."""
        name = _of_data(self.manifest, "encoder") or _of_data(self.config, "encoder")
        return None if name == UNKNOWN else name

    def prompts(self) -> tuple[str, ...] | None:
        """Return the templates of the class names, where the data file had them."""
        data = self.manifest.get("data")
        found = data.get("prompts") if isinstance(data, Mapping) else None
        if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
            return None
        return tuple(found) or None

    def fingerprint(self) -> str | None:
        """Return the fingerprint of the classifier that every method of the run used, where it is recorded."""
        return _of_data(self.config, "fingerprint") or _of_data(self.manifest, "fingerprint")


def find_runs(paths: Iterable[Path]) -> list[Path]:
    """Return the run folders among ``paths`` and below them, each once."""
    folders: list[Path] = []
    for path in paths:
        every = _run_folders(path)
        own = [one for one in every if path in (one, one.parent) or not (one.parent / SWEEP_FILE).is_file()]
        folders += [folder for folder in own or every if folder not in folders]  # points only where nothing else is
    return folders


def _run_folders(path: Path) -> list[Path]:
    """Return the run folders at or below ``path``, in the order of their names."""
    if (path / RESULTS).is_file():
        return [path]
    folders = sorted(file.parent for file in path.glob(f"**/{RESULTS}"))
    if not folders:
        raise refuse("run", f"{path}, which has no {RESULTS}", "a folder that `latte run` wrote")
    return folders


def read_run(folder: Path, empty: bool = False) -> Run:
    """Read a run folder; one without a trusted result is refused, unless it may be ``empty``."""
    if not (folder / RESULTS).is_file():
        raise refuse("run", f"{folder}, which has no {RESULTS}", "a folder that `latte run` wrote")
    read = read_results(RunFolder(folder))
    if not read.results and not empty:
        got = f"{folder}, whose {RESULTS} is empty" + (f" but for {_ignored(read.ignored)}" if read.ignored else "")
        raise refuse("run", got, "a run with at least one finished (method, seed)")
    config, manifest = (
        read_json(file, dict[str, Any]) if file.exists() else {} for file in (folder / CONFIG, folder / MANIFEST)
    )
    return Run(folder, read.results, config, manifest, read.done, read.ignored)


def _ignored(lines: int) -> str:
    return f"{lines} {'line' if lines == 1 else 'lines'} that items.jsonl does not vouch for"


def encoders(runs: Sequence[Run]) -> dict[str, str]:
    """Return the encoder of each benchmark; two encoders (or classifiers) for one benchmark are refused."""
    names: dict[str, str] = {}
    check_classifiers(
        (run.results[0].benchmark, fingerprint, str(run.folder)) for run in runs if (fingerprint := run.fingerprint())
    )
    for run in runs:
        encoder = run.encoder()
        for benchmark in {result.benchmark for result in run.results} if encoder else ():
            if names.setdefault(benchmark, str(encoder)) != encoder:
                got = f"{benchmark} with {names[benchmark]!r} and with {encoder!r}"
                raise refuse("runs", got, "one encoder per benchmark: accuracies of two encoders do not compare")
    return names


def check_plans(plans: Iterable[Plan]) -> None:
    """Refuse plans that would put different encoders under the name of one benchmark."""
    check_classifiers((plan.config.benchmark, plan.data.fingerprint, str(plan.entry.path)) for plan in plans)


def check_classifiers(sources: Iterable[tuple[str, str, str]]) -> None:
    """Refuse (benchmark, fingerprint, file or folder) triples with two classifiers for one benchmark."""
    first: dict[str, tuple[str, str]] = {}
    for benchmark, fingerprint, where in sources:
        known, other = first.setdefault(benchmark, (fingerprint, where))
        if known != fingerprint:
            got = f"another encoder or class list in {where} than in {other}"
            raise refuse(f"benchmark {benchmark}", got, "one encoder per comparison")


def _of_data(tree: Mapping[str, Any], key: str) -> str | None:
    """Return what config.json or the manifest says about the data."""
    data = tree.get("data")
    value = data.get(key) if isinstance(data, Mapping) else None
    return value if isinstance(value, str) else None


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


def _sweep(folder: Path, inside: Sequence[Path], named: bool) -> SweepFolder:
    """Read the points of a sweep, which are the run folders ``inside`` that its list names."""
    file = read_sweep_file(folder)
    runs = {path.name: run for path in inside if (run := read_run(path, empty=True)).results}
    points = tuple(StoredPoint(point.values, runs[point.run]) for point in file.points if point.run in runs)
    axes = tuple(axis.key for axis in file.axes)
    return SweepFolder(folder, axes, points, len(file.points), file.purposes, named)
