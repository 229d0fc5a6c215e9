"""A run folder on disk: what may be trusted in it, and writing that survives a kill at any moment.

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
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..data.lock import lock
from .plan import Item, Plan
from .records import Result


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
        """Return whether the folder is done and its results are those it was done with."""
        try:
            return (self.path / "done").read_text(encoding="ascii").strip() == _sha(self.results.read_bytes())
        except (OSError, UnicodeDecodeError):
            return False

    def trusted(self, plan: Plan) -> dict[tuple[str, int], str]:
        """Return the lines of results that can be trusted, by method label and seed."""
        sums = {entry.get("sha256") for entry in self._entries()}
        wanted = {(item.method.label, item.seed): item for item in plan.items()}
        found: dict[tuple[str, int], str] = {}
        for line in _lines(self.results):
            result = _parsed(line)
            if result is None or _sha(line.encode()) not in sums:
                continue
            item = wanted.get((result.method, result.seed))
            if item is not None and _belongs(result, item, plan):
                found[result.method, result.seed] = line
        return found

    def append(self, line: str, seconds: float) -> None:
        """Add one result; only after both lines are on disk does it count."""
        result = Result.from_json(line)
        entry: dict[str, Any] = {"method": result.method, "seed": result.seed, "seconds": round(seconds, 3)}
        entry["sha256"] = _sha(line.encode())
        _append(self.results, line)
        _append(self.items, json.dumps(entry))

    def restart(self, plan: Plan, lines: list[str]) -> None:
        """Begin or continue: the configuration and the trusted ``lines`` are written anew, the done mark is gone."""
        self.path.mkdir(parents=True, exist_ok=True)
        (self.path / "done").unlink(missing_ok=True)
        keep = {_sha(line.encode()) for line in lines}
        entries = {e["sha256"]: e for e in self._entries() if e.get("sha256") in keep}
        write(self.path / "config.json", plan.canonical())
        write(self.results, "".join(f"{line}\n" for line in lines))
        write(self.items, "".join(f"{json.dumps(entry)}\n" for entry in entries.values()))

    def finish(self, lines: list[str]) -> None:
        """Write the results in their final order, then the done mark."""
        content = "".join(f"{line}\n" for line in lines)
        write(self.results, content)
        write(self.path / "done", _sha(content.encode()) + "\n")

    def manifest(self) -> dict[str, Any]:
        """Return the manifest as far as it can be read."""
        try:
            content = json.loads((self.path / "manifest.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return content if isinstance(content, dict) else {}

    def write_manifest(self, content: dict[str, Any]) -> None:
        """Replace the manifest."""
        write(self.path / "manifest.json", json.dumps(content, indent=1) + "\n")

    def _entries(self) -> Iterator[dict[str, Any]]:
        for line in _lines(self.items):
            with contextlib.suppress(ValueError):
                entry = json.loads(line)
                if isinstance(entry, dict):
                    yield entry

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes out; the system lets go when the process ends, however it ends."""
        self.path.mkdir(parents=True, exist_ok=True)
        with lock(self.path / "lock", f"run folder {self.path}"):
            yield


def write(path: Path, content: str) -> None:
    """Write a file so that it is either the old or the new one, whatever happens."""
    partial = path.with_name(path.name + ".partial")
    with partial.open("w", encoding="utf-8", newline="") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def _append(path: Path, line: str) -> None:
    with path.open("a", encoding="utf-8", newline="") as file:
        file.write(line + "\n")
        file.flush()
        os.fsync(file.fileno())


def _lines(path: Path) -> list[str]:
    """Return the whole lines of a file; half a line at the end is none."""
    try:
        return path.read_bytes().decode("utf-8", errors="replace").split("\n")[:-1]
    except OSError:
        return []


def _parsed(line: str) -> Result | None:
    try:
        result = Result.from_json(line)
        return result if result.to_json() == line else None
    except (ValueError, TypeError, KeyError):
        return None


def _belongs(result: Result, item: Item, plan: Plan) -> bool:
    return (
        result.benchmark == plan.config.benchmark
        and dict(result.params) == dict(item.method.params)
        and result.setting == item.method.setting
    )


def _sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
