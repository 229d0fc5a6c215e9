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
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import InputError, refuse
from ..files.atomic import append_line, lock, write_text
from ..files.documents import parse_json, read_bytes, read_json, read_text, sha256_of
from ..simulation.results import Result, read_result
from .plan import ItemKey, Plan


@dataclass(frozen=True, slots=True)
class ItemEntry:
    """A line of items.jsonl: the checksum of a result, and how long it took."""

    method: str
    seed: int
    seconds: float
    sha256: str


class ResultLine(NamedTuple):
    """A line of results.jsonl, and the result that it is read as, once."""

    text: str
    result: Result

    @classmethod
    def parse(cls, text: str) -> ResultLine:
        """Read a line; one that is no result is refused."""
        return cls(text, Result.from_json(text))


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

    def finished(self) -> bool:
        """Return whether the run has ended; its results may have been changed since."""
        return (self.path / "done").is_file()

    def complete(self) -> bool:
        """Return whether the run has ended and its results are unchanged."""
        mark = _content(self.path / "done").decode("ascii", errors="replace").strip()
        return self.finished() and mark == sha256_of(_content(self.results))

    def lines(self) -> Iterator[ResultLine | None]:
        """Yield every whole line of results; None for one that is no result or whose checksum is not in items.jsonl."""
        sums = {entry.sha256 for entry in self._entries()}
        for text in whole_lines(self.results):
            line = None
            if sha256_of(text.encode()) in sums:
                with contextlib.suppress(InputError):
                    line = ResultLine.parse(text)
            yield line

    def trusted(self, plan: Plan) -> dict[ItemKey, ResultLine]:
        """Return the lines of results that can be trusted, by method label and seed."""
        return {(line.result.method, line.result.seed): line for line in self.lines() if line and belongs(line, plan)}

    def append(self, line: ResultLine, seconds: float) -> None:
        """Add one result; only after both lines are on disk does it count."""
        sha256 = sha256_of(line.text.encode())
        entry = ItemEntry(line.result.method, line.result.seed, round(seconds, 3), sha256)
        append_line(self.results, line.text)
        append_line(self.items, json.dumps(asdict(entry)))

    def restart(self, plan: Plan, lines: Sequence[str]) -> None:
        """Begin or continue: the configuration and the trusted ``lines`` are written anew, the done mark is gone."""
        self.path.mkdir(parents=True, exist_ok=True)
        (self.path / "done").unlink(missing_ok=True)
        sums = {sha256_of(line.encode()) for line in lines}
        entries = {entry.sha256: json.dumps(asdict(entry)) for entry in self._entries() if entry.sha256 in sums}
        write_text(self.path / "config.json", plan.canonical())
        write_text(self.results, _joined(lines))
        write_text(self.items, _joined(entries.values()))

    def finish(self, lines: Sequence[str]) -> None:
        """Write the results in their final order, then the done mark."""
        write_text(self.results, _joined(lines))
        write_text(self.path / "done", sha256_of(_joined(lines).encode()) + "\n")

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
                yield parse_json(line, str(self.items), ItemEntry)

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
    known: dict[ItemKey, Result] = {}
    if not folder.finished():
        lines = list(folder.lines())
        known = {(line.result.method, line.result.seed): line.result for line in lines if line}
        return Results(tuple(known.values()), False, lines.count(None))
    if not folder.complete():
        raise refuse(str(folder.results), "other results than the run ended with", "`latte run` to redo them")
    for number, text in enumerate(read_text(folder.results).splitlines(), 1):
        where = f"{folder.results}, line {number}"
        result = read_result(text, where)
        if (result.method, result.seed) in known:
            raise refuse(where, f"{result.method}, seed {result.seed} twice", "it once")
        known[result.method, result.seed] = result
    return Results(tuple(known.values()), True, 0)


def belongs(line: ResultLine, plan: Plan) -> bool:
    """Say whether a result is that of an item of ``plan``."""
    result = line.result
    methods = [method for method in plan.config.methods if method.label == result.method]
    return (
        result.benchmark == plan.config.benchmark
        and result.seed in plan.config.seeds
        and [(dict(method.params), method.setting) for method in methods] == [(dict(result.params), result.setting)]
    )


def _joined(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _content(path: Path) -> bytes:
    """Return the bytes of a file; none where there is no such file."""
    try:
        return read_bytes(path)
    except InputError:
        return b""


def whole_lines(path: Path) -> list[str]:
    """Return the whole lines of a file; half a line at the end is none."""
    return _content(path).decode("utf-8", errors="replace").split("\n")[:-1]
