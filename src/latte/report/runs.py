"""Run folders as a report reads them: results.jsonl, and config.json and manifest.json where they are there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.validate import refuse
from ..experiment.compare import same_classifier
from ..experiment.folder import RunFolder, read_results
from ..experiment.plan import UNKNOWN
from ..files.documents import read_json
from ..simulation.records import Result

RESULTS, CONFIG, MANIFEST, SWEEP = "results.jsonl", "config.json", "manifest.json", "sweep.json"


@dataclass(frozen=True, slots=True)
class Run:
    """What a run folder holds; ``config`` and ``manifest`` are empty where the files are not there.

    ``done`` is False for a run that was stopped, or still goes on: its table is not the last word. ``ignored`` counts
    the lines of its results that were not believed.
    """

    folder: Path
    results: tuple[Result, ...]
    config: Mapping[str, Any]
    manifest: Mapping[str, Any]
    done: bool = True
    ignored: int = 0

    def note(self) -> str | None:
        """Return what a reader of the report has to know about the folder; None where all is well."""
        parts = [] if self.done else [f"not finished, {len(self.results)} results so far"]
        parts += (
            [f"ignored {_ignored(self.ignored)} (edited or broken: `latte run` redoes them)"] if self.ignored else []
        )
        return f"{self.folder}: {'; '.join(parts)}" if parts else None

    def encoder(self) -> str | None:
        """Return the encoder that the data was made with, as the manifest (or the configuration) records it."""
        found = _find(self.manifest, "encoder") or _find(self.config, "encoder")
        return None if found == UNKNOWN else found

    def fingerprint(self) -> str | None:
        """Return the fingerprint of the classifier that every method of the run used, where it is recorded."""
        return _find(self.config, "fingerprint") or _find(self.manifest, "fingerprint")


def find_runs(paths: Iterable[Path]) -> list[Path]:
    """Return the run folders among ``paths`` and below them, each once."""
    found: list[Path] = []
    for path in paths:
        below = [path] if (path / RESULTS).is_file() else _below(path)
        if not below:
            raise refuse("run", f"{path}, which has no {RESULTS}", "a folder that `latte run` wrote")
        found += [folder for folder in below if folder not in found]
    return found


def _below(path: Path) -> list[Path]:
    """Return the run folders below ``path``; points of a sweep only where they were asked for, or nothing else is."""
    every = sorted(file.parent for file in path.glob(f"**/{RESULTS}"))
    return [folder for folder in every if folder.parent == path or not (folder.parent / SWEEP).is_file()] or every


def read_run(folder: Path) -> Run:
    """Read a run folder; one without results that can be believed is refused."""
    if not (folder / RESULTS).is_file():
        raise refuse("run", f"{folder}, which has no {RESULTS}", "a folder that `latte run` wrote")
    found = read_results(RunFolder(folder))
    if not found.results:
        got = f"{folder}, whose {RESULTS} is empty" + (f" but for {_ignored(found.ignored)}" if found.ignored else "")
        raise refuse("run", got, "a run with at least one finished (method, seed)")
    return Run(folder, found.results, _object(folder / CONFIG), _object(folder / MANIFEST), found.done, found.ignored)


def _ignored(lines: int) -> str:
    return f"{lines} {'line' if lines == 1 else 'lines'} that items.jsonl does not vouch for"


def encoders(runs: Sequence[Run]) -> dict[str, str]:
    """Return the encoder of each benchmark; two encoders (or classifiers) for one benchmark are refused."""
    found: dict[str, str] = {}
    same_classifier(
        (run.results[0].benchmark, fingerprint, str(run.folder)) for run in runs if (fingerprint := run.fingerprint())
    )
    for run in runs:
        encoder = run.encoder()
        for benchmark in {result.benchmark for result in run.results} if encoder else ():
            if found.setdefault(benchmark, str(encoder)) != encoder:
                got = f"{benchmark} with {found[benchmark]!r} and with {encoder!r}"
                raise refuse("runs", got, "one encoder per benchmark: accuracies of two encoders do not compare")
    return found


def merged(runs: Iterable[Run]) -> list[Result]:
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
    return next((found for branch in tree.values() if (found := _find(branch, key))), None)
