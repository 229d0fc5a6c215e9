"""Read run folders back for a comparison, and refuse to compare what cannot be compared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..core.validate import refuse
from ..files.documents import read_json
from ..simulation.records import Result
from .folder import RunFolder, read_results
from .plan import Plan, RunFile


@dataclass(frozen=True, slots=True)
class Finished:
    """A run folder that is done: the resolved configuration and the results."""

    path: Path
    file: RunFile
    results: tuple[Result, ...]

    @property
    def benchmark(self) -> str:
        """The name of the benchmark."""
        return self.results[0].benchmark

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the classifier that every method of the run used."""
        return self.file.data.fingerprint


def load_runs(paths: Iterable[Path]) -> list[Finished]:
    """Return the finished runs in ``paths``, each a run folder or a folder of them; encoders must not be mixed."""
    folders = [folder for path in paths for folder in _folders(Path(path))]
    runs = [_finished(folder) for folder in folders]
    same_classifier((run.benchmark, run.fingerprint, str(run.path)) for run in runs)
    return runs


def comparable(plans: Sequence[Plan]) -> None:
    """Refuse plans that would put different encoders under one benchmark's name."""
    same_classifier((plan.config.benchmark, plan.data.fingerprint, str(plan.entry.path)) for plan in plans)


def same_classifier(found: Iterable[tuple[str, str, str]]) -> None:
    """Refuse (benchmark, fingerprint, where) triples with two classifiers for one benchmark."""
    first: dict[str, tuple[str, str]] = {}
    for benchmark, fingerprint, where in found:
        known, other = first.setdefault(benchmark, (fingerprint, where))
        if known != fingerprint:
            got = f"another encoder or class list in {where} than in {other}"
            raise refuse(f"benchmark {benchmark}", got, "one encoder per comparison")


def _folders(path: Path) -> list[Path]:
    if not path.is_dir():
        raise refuse("run folder", f"{path}, which is not there", "a folder that latte run wrote")
    found = [path] if (path / "config.json").is_file() else sorted(p.parent for p in path.glob("**/config.json"))
    if not found:
        raise refuse("run folder", f"{path}, which holds no runs", "a folder that latte run wrote")
    return found


def _finished(path: Path) -> Finished:
    folder = RunFolder(path)
    if not folder.complete():
        raise refuse("run folder", f"{path}, which is unfinished or was changed", "a finished run (run it again)")
    return Finished(path, read_json(path / "config.json", RunFile, extra=True), read_results(folder).results)
