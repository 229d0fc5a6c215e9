"""Run folders as a report reads them: results.jsonl, and config.json and manifest.json where they are there."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ..core.validate import refuse
from ..experiment.records import Result

RESULTS, CONFIG, MANIFEST = "results.jsonl", "config.json", "manifest.json"
_KNOWN = {field.name for field in fields(Result)}


@dataclass(frozen=True, slots=True)
class Run:
    """What a run folder holds; ``config`` and ``manifest`` are empty where the files are not there."""

    folder: Path
    results: tuple[Result, ...]
    config: Mapping[str, Any]
    manifest: Mapping[str, Any]

    def encoder(self) -> str | None:
        """Return the encoder that the data was made with, as the manifest (or the configuration) records it."""
        return _find(self.manifest, "encoder") or _find(self.config, "encoder")


def read_run(folder: Path) -> Run:
    """Read a run folder; one without results, or with a broken line, is refused."""
    path = folder / RESULTS
    if not path.is_file():
        raise refuse("run", f"{folder}, which has no {RESULTS}", "a folder that `latte run` wrote")
    lines = path.read_text("utf-8").splitlines()
    results = tuple(_result(path, number, line) for number, line in enumerate(lines, 1) if line.strip())
    if not results:
        raise refuse("run", f"{folder}, whose {RESULTS} is empty", "a run with at least one finished (method, seed)")
    return Run(folder, results, _object(folder / CONFIG), _object(folder / MANIFEST))


def encoders(runs: Sequence[Run]) -> dict[str, str]:
    """Return the encoder of each benchmark; two encoders for one benchmark are refused."""
    found: dict[str, str] = {}
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
