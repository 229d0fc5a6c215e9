"""Read run folders back, finished or not, and refuse to compare what cannot be compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import refuse
from ..files.documents import read_json
from ..files.schema import structure
from ..simulation.records import Result
from .folder import RunFolder, read_results
from .plan import UNKNOWN, Plan, RunFile
from .predictions import with_quarters
from .sweep import SWEEP_FILE

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
        parts += (
            [f"ignored {_ignored(self.ignored)} (edited or broken: `latte run` redoes them)"] if self.ignored else []
        )
        return f"{self.folder}: {'; '.join(parts)}" if parts else None

    def _missing(self) -> str:
        """Return which methods and seeds have no result yet, where the configuration says what was to be run."""
        config = self.config.get("config")
        methods, seeds = (config.get(key) if isinstance(config, Mapping) else None for key in ("methods", "seeds"))
        if not isinstance(methods, list) or not isinstance(seeds, list):
            return ""
        there = [(result.method, result.seed) for result in self.results]  # a file may have a seed that no set takes
        labels = [method.get("label") for method in methods if isinstance(method, Mapping)]
        lacking = {str(label): [str(seed) for seed in seeds if (label, seed) not in there] for label in labels}
        words = [f"{label} (seeds {', '.join(absent)})" for label, absent in lacking.items() if absent]
        return f", without {', '.join(words)}" if words else ""

    def method_names(self) -> dict[str, str]:
        """Return the registered name of each method by its label, as the configuration records them.

        The ``method`` of a result is a label. A folder without a configuration, or one that was edited, gives none.
        """
        config = self.config.get("config")
        methods = config.get("methods") if isinstance(config, Mapping) else None
        entries = [entry for entry in methods if isinstance(entry, Mapping)] if isinstance(methods, list) else []
        pairs = [(entry.get("label"), entry.get("name")) for entry in entries]
        return {label: name for label, name in pairs if isinstance(label, str) and isinstance(name, str)}

    def file(self) -> RunFile:
        """Return config.json in its full form; a folder without it is refused."""
        return structure(self.config, RunFile, str(self.folder / CONFIG), extra=True)

    def encoder(self) -> str | None:
        """Return the encoder that the data was made with, as the manifest (or the configuration) records it."""
        name = _find(self.manifest, "encoder") or _find(self.config, "encoder")
        return None if name == UNKNOWN else name

    def fingerprint(self) -> str | None:
        """Return the fingerprint of the classifier that every method of the run used, where it is recorded."""
        return _find(self.config, "fingerprint") or _find(self.manifest, "fingerprint")


def find_runs(paths: Iterable[Path]) -> list[Path]:
    """Return the run folders among ``paths`` and below them, each once."""
    folders: list[Path] = []
    for path in paths:
        below = [path] if (path / RESULTS).is_file() else _below(path)
        if not below:
            raise refuse("run", f"{path}, which has no {RESULTS}", "a folder that `latte run` wrote")
        folders += [folder for folder in below if folder not in folders]
    return folders


def _below(path: Path) -> list[Path]:
    """Return the run folders below ``path``; points of a sweep only where nothing else is, or ``path`` is the sweep."""
    every = sorted(file.parent for file in path.glob(f"**/{RESULTS}"))
    return [folder for folder in every if folder.parent == path or not (folder.parent / SWEEP_FILE).is_file()] or every


def read_run(folder: Path, empty: bool = False) -> Run:
    """Read a run folder; one without a trusted result is refused, unless it may be ``empty``."""
    if not (folder / RESULTS).is_file():
        raise refuse("run", f"{folder}, which has no {RESULTS}", "a folder that `latte run` wrote")
    read = read_results(RunFolder(folder))
    if not read.results and not empty:
        got = f"{folder}, whose {RESULTS} is empty" + (f" but for {_ignored(read.ignored)}" if read.ignored else "")
        raise refuse("run", got, "a run with at least one finished (method, seed)")
    results = with_quarters(folder, read.results)
    return Run(folder, results, _object(folder / CONFIG), _object(folder / MANIFEST), read.done, read.ignored)


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


def merge_results(runs: Iterable[Run]) -> list[Result]:
    """Return the results of all runs."""
    return [result for run in runs for result in run.results]


def _object(path: Path) -> Mapping[str, Any]:
    return read_json(path, dict[str, Any]) if path.exists() else {}


def _find(tree: Any, key: str) -> str | None:
    """Return the first string called ``key``, however deep."""
    if not isinstance(tree, Mapping):
        return None
    if isinstance(tree.get(key), str):
        return str(tree[key])
    return next((text for branch in tree.values() if (text := _find(branch, key))), None)
