"""Run folders as a report reads them: results.jsonl, and config.json and manifest.json where they are there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ..core.validate import refuse
from ..experiment.compare import same_classifier
from ..experiment.plan import UNKNOWN
from ..experiment.records import Result

RESULTS, CONFIG, MANIFEST, DONE, SWEEP = "results.jsonl", "config.json", "manifest.json", "done", "sweep.json"
_KNOWN = {field.name for field in fields(Result)}


@dataclass(frozen=True, slots=True)
class Run:
    """What a run folder holds; ``config`` and ``manifest`` are empty where the files are not there.

    ``done`` is False for a run that was stopped, or still goes on: its table is not the last word.
    """

    folder: Path
    results: tuple[Result, ...]
    config: Mapping[str, Any]
    manifest: Mapping[str, Any]
    done: bool = True

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
    """Read a run folder; one without results, or with a broken line, is refused."""
    path = folder / RESULTS
    if not path.is_file():
        raise refuse("run", f"{folder}, which has no {RESULTS}", "a folder that `latte run` wrote")
    done = _done(folder)
    *lines, rest = path.read_text("utf-8").split("\n")  # half a line at the end is a result still being written
    lines += [rest] if done else []
    results = tuple(_result(path, number, line) for number, line in enumerate(lines, 1) if line.strip())
    if not results:
        raise refuse("run", f"{folder}, whose {RESULTS} is empty", "a run with at least one finished (method, seed)")
    return Run(folder, results, _object(folder / CONFIG), _object(folder / MANIFEST), done)


def _done(folder: Path) -> bool:
    """Return whether the run finished; results that are not those it finished with are refused."""
    mark = folder / DONE
    if not mark.is_file():
        return False
    if mark.read_text("utf-8").strip() != hashlib.sha256((folder / RESULTS).read_bytes()).hexdigest():
        raise refuse(str(folder / RESULTS), "other results than the run ended with", "`latte run` to redo them")
    return True


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


def _result(path: Path, number: int, line: str) -> Result:
    """Read a line, leaving out what a record of another version (or a checksum) adds to it."""
    try:
        given = json.loads(line)
        return Result.from_json(json.dumps({key: value for key, value in given.items() if key in _KNOWN}))
    except (ValueError, TypeError, KeyError, AttributeError):
        want = "whole records: `latte run` redoes a broken one"
        raise refuse(f"{path}, line {number}", "a broken line", want) from None


def _object(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text("utf-8"))
    except ValueError:
        raise refuse(str(path), "text that is not JSON", "the file that `latte run` wrote") from None
    return found if isinstance(found, dict) else {}


def _find(tree: Any, key: str) -> str | None:
    """Return the first string called ``key``, however deep."""
    if not isinstance(tree, Mapping):
        return None
    if isinstance(tree.get(key), str):
        return str(tree[key])
    return next((found for branch in tree.values() if (found := _find(branch, key))), None)
