"""A run folder on disk: which of its lines are trusted, and writing that survives a kill at any moment.

``config.json``    the resolved configuration, whose hash names the folder
``manifest.json``  machine, versions, times, command lines; one entry per session
``results.jsonl``  one Result per (method, seed); once done, in the order of the configuration
``items.jsonl``    per result: its checksum and how long it took
``done``           the checksum of results.jsonl; there only when everything is

A line of results.jsonl counts only when it parses, belongs to the configuration and has its checksum in items.jsonl;
anything else (half a line, an edited number) is done again.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..errors import InputError, refuse
from ..files.atomic import append_line, write_text
from ..files.checksums import sha256_of
from ..files.documents import parse_json, read_json
from ..files.locks import lock
from ..files.reading import read_bytes, read_text
from ..files.schema import structure
from ..simulation.records import Result, read_result
from .plan import Item, Plan


@dataclass(frozen=True, slots=True)
class ItemEntry:
    """A line of items.jsonl: the checksum of a result, and how long it took."""

    method: str
    seed: int
    seconds: float
    sha256: str


@dataclass(frozen=True, slots=True)
class ResultLine:
    """A line of results.jsonl; ``result`` is None where it is not trusted."""

    text: str
    result: Result | None


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The folder of one run."""

    path: Path

    @property
    def results(self) -> Path:
        """The file of the results."""
        return self.path / "results.jsonl"

    @property
    def items(self) -> Path:
        """The file of checksums and times."""
        return self.path / "items.jsonl"

    def complete(self) -> bool:
        """Return whether the run has ended and its results are unchanged."""
        return self.finished() and self.mark() == sha256_of(_content(self.results))

    def finished(self) -> bool:
        """Return whether the run has ended; its results may have been changed since."""
        return (self.path / "done").is_file()

    def mark(self) -> str:
        """Return the checksum of the results that the run ended with; empty where it cannot be read."""
        return _content(self.path / "done").decode("ascii", errors="replace").strip()

    def lines(self) -> Iterator[ResultLine]:
        """Yield every whole line of results; ``result`` is None for a line whose checksum is not in items.jsonl."""
        sums = {entry.sha256 for entry in self._entries()}
        for line in whole_lines(self.results):
            yield ResultLine(line, _result(line) if sha256_of(line.encode()) in sums else None)

    def trusted(self, plan: Plan) -> dict[tuple[str, int], str]:
        """Return the lines of results that can be trusted, by method label and seed."""
        items = {(item.method.label, item.seed): item for item in plan.items()}
        lines: dict[tuple[str, int], str] = {}
        for line in self.lines():
            result = line.result
            item = None if result is None else items.get((result.method, result.seed))
            if result is not None and item is not None and _belongs(result, item, plan):
                lines[result.method, result.seed] = line.text
        return lines

    def append(self, line: str, seconds: float) -> None:
        """Add one result; only after both lines are on disk does it count."""
        result = Result.from_json(line)
        entry = ItemEntry(result.method, result.seed, round(seconds, 3), sha256_of(line.encode()))
        append_line(self.results, line)
        append_line(self.items, json.dumps(asdict(entry)))

    def restart(self, plan: Plan, lines: list[str]) -> None:
        """Begin or continue: the configuration and the trusted ``lines`` are written anew, the done mark is gone."""
        self.path.mkdir(parents=True, exist_ok=True)
        (self.path / "done").unlink(missing_ok=True)
        sums = {sha256_of(line.encode()) for line in lines}
        entries = {entry.sha256: entry for entry in self._entries() if entry.sha256 in sums}
        write_text(self.path / "config.json", plan.canonical())
        write_text(self.results, "".join(f"{line}\n" for line in lines))
        write_text(self.items, "".join(f"{json.dumps(asdict(entry))}\n" for entry in entries.values()))

    def finish(self, lines: list[str]) -> None:
        """Write the results in their final order, then the done mark."""
        content = "".join(f"{line}\n" for line in lines)
        write_text(self.results, content)
        write_text(self.path / "done", sha256_of(content.encode()) + "\n")

    def manifest(self) -> dict[str, Any]:
        """Return the manifest as far as it can be read."""
        try:
            return read_json(self.path / "manifest.json", dict[str, Any])
        except InputError:
            return {}

    def write_manifest(self, content: dict[str, Any]) -> None:
        """Replace the manifest."""
        write_text(self.path / "manifest.json", json.dumps(content, indent=1) + "\n")

    def _entries(self) -> Iterator[ItemEntry]:
        for line in whole_lines(self.items):
            with contextlib.suppress(InputError):
                yield structure(parse_json(line, str(self.items)), ItemEntry, str(self.items), extra=True)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes out; the system lets go when the process ends, however it ends."""
        self.path.mkdir(parents=True, exist_ok=True)
        with lock(self.path / "lock", f"run folder {self.path}"):
            yield


@dataclass(frozen=True, slots=True)
class Results:
    """The results of a run folder, each once; ``ignored`` counts the lines that are not trusted."""

    results: tuple[Result, ...]
    done: bool
    ignored: int


def read_results(folder: RunFolder) -> Results:
    """Read the trusted results: all of a run that is done, else the lines whose checksum is in items.jsonl.

    A run that ended with other results than are there now is refused.
    """
    if folder.finished():
        if not folder.complete():
            raise refuse(str(folder.results), "other results than the run ended with", "`latte run` to redo them")
        return Results(tuple(_checked_results(folder)), True, 0)
    lines = list(folder.lines())
    known = {(line.result.method, line.result.seed): line.result for line in lines if line.result is not None}
    return Results(tuple(known.values()), False, sum(line.result is None for line in lines))


def _checked_results(folder: RunFolder) -> Iterator[Result]:
    """Yield the results of a run that is done; a line that is none is refused with its number."""
    seen = set()
    for number, line in enumerate(read_text(folder.results).splitlines(), 1):
        result = read_result(line, f"{folder.results}, line {number}", extra=True)
        if (result.method, result.seed) in seen:
            raise refuse(f"{folder.results}, line {number}", f"{result.method}, seed {result.seed} twice", "it once")
        seen.add((result.method, result.seed))
        yield result


def _content(path: Path) -> bytes:
    """Return the bytes of a file; none where there is no such file."""
    try:
        return read_bytes(path)
    except InputError:
        return b""


def whole_lines(path: Path) -> list[str]:
    """Return the whole lines of a file; half a line at the end is none."""
    return _content(path).decode("utf-8", errors="replace").split("\n")[:-1]


def _result(line: str) -> Result | None:
    try:
        result = Result.from_json(line)
    except InputError:
        return None
    return result if result.to_json() == line else None


def reads_back(line: str, item: Item, plan: Plan) -> bool:
    """Say whether a line is a record of ``item`` that :meth:`RunFolder.trusted` will return."""
    result = _result(line)
    key = (item.method.label, item.seed)
    return result is not None and (result.method, result.seed) == key and _belongs(result, item, plan)


def _belongs(result: Result, item: Item, plan: Plan) -> bool:
    return (
        result.benchmark == plan.config.benchmark
        and dict(result.params) == dict(item.method.params)
        and result.setting == item.method.setting
    )
