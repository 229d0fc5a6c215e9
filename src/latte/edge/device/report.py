"""Reports of a device to people: its answers in a file, a sign of life, and a summary of what it does and did."""

from __future__ import annotations

import errno
import mmap
import os
import time
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from sqlite3 import Connection
from typing import Any

from ...core.evidence import Pairs
from ...errors import InputError, refuse
from ...files.atomic import is_locked
from ...files.documents import parse_json
from ..classify.classify import absolute_name
from ..classify.evidence import Help, Labelled, SessionCounts, Stretch, accuracies_of, collapse_of, help_of
from . import record
from .labels import count_due, count_taught, read_labelled

HUNG_SECONDS = 120.0  # without a sign of life: a device gives one several times a second, or after every picture
_BEGIN = b'{"number": '  # of every line


class AnswerLog:
    """The file ``path`` with the answers in the record in ``state`` as lines of JSON, up to date from the start.

    After a crash it ends up with every answer exactly once. ``number`` is the last answer that the file, or one before
    it, has. The record has to store it, with ``name``.
    """

    def __init__(self, path: Path, state: Path) -> None:
        self._path, self.name, self.number = path, absolute_name(path), 0
        self._open()
        try:
            self._complete(state)
        except BaseException:
            self._file.close()
            raise

    def _open(self) -> None:
        self._file = self._path.open("ab", buffering=0)  # a write that fails leaves nothing behind in memory
        about = os.fstat(self._file.fileno())
        self._identity, self._end = (about.st_dev, about.st_ino), about.st_size

    def _complete(self, state: Path) -> None:
        with closing(record.open_record(state)) as database:
            last = database.execute("SELECT coalesce(max(number), 0) FROM pictures").fetchone()[0]
            if self._end:
                with self._path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                    self.number, self._end = _covered_part(content, last, str(self._path))
            self._file.truncate(self._end)
            before = record.read_status(database)
            if not self._end and before.log == self.name:  # a new file in the place of one that had these
                self.number = min(before.logged, last)
            for answer in record.read_answers(database, self.number):
                self.add(answer)

    def add(self, answer: record.NumberedAnswer) -> None:
        """Write a line, as a whole or not at all: an OSError leaves the file as it was."""
        self._follow()
        line = answer.line().encode() + b"\n"
        try:
            if self._file.write(line) < len(line):  # the rest had no room
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if not self._end:  # a file that is not empty after a power cut says by itself what is missing
                os.fsync(self._file.fileno())
        except OSError as error:
            with suppress(OSError):
                self._file.truncate(self._end)
            raise OSError(error.errno, error.strerror, str(self._path)) from None
        self._end += len(line)
        self.number = answer.number

    def _follow(self) -> None:
        """Go on in a new file if this one has been renamed, and at the new end if it has been emptied."""
        try:
            about = os.stat(self._path)  # noqa: PTH116  for every answer
        except FileNotFoundError:
            about = None
        if about is None or (about.st_dev, about.st_ino) != self._identity:
            self._file.close()
            self._open()
        elif about.st_size < self._end:
            self._end = about.st_size

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _covered_part(content: mmap.mmap, last: int, name: str) -> tuple[int, int]:
    """Return the number of the last answer up to ``last`` that a file has, and the byte after it.

    It is looked for from the end: a file may have any number of lines, and may begin with any answer.
    """
    refusal = refuse(name, "a line that is no answer of a device", "a file that latte edge wrote, or a new one")
    end = content.rfind(b"\n") + 1
    half = content[end : end + len(_BEGIN)]
    if half != _BEGIN[: len(half)]:
        raise refusal
    while end:
        start = content.rfind(b"\n", 0, end - 1) + 1
        try:
            number = parse_json(content[start:end], name)["number"]
        except (InputError, TypeError, KeyError, IndexError):
            raise refusal from None
        if not isinstance(number, int):
            raise refusal
        if number <= last:
            return number, end
        end = start
    return 0, 0


class Heartbeat:
    """A sign of life that no disk has to write: the time of a file in memory, which other processes can see (Linux)."""

    def __init__(self, folder: Path) -> None:
        self._file = -1
        with suppress(AttributeError, OSError):  # another system, or one that allows no such file
            self._file = os.memfd_create(_beat_name(folder))
        self.beat()

    def beat(self) -> None:
        """Say that the device works."""
        if self._file >= 0:
            now = time.monotonic_ns()  # one clock for all processes, which nobody sets
            os.utime(self._file, ns=(now, now))

    def close(self) -> None:
        """End it."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def silent_seconds(folder: Path, pid: int) -> float | None:
    """Return how long ago the device of ``folder`` gave its last sign of life; None if there is none to be seen."""
    try:
        for place in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed a moment ago
                if str(place.readlink()).startswith(f"/memfd:{_beat_name(folder)} "):
                    return max(0.0, time.monotonic() - place.stat().st_mtime)
    except OSError:  # it has ended, or belongs to somebody else
        pass
    return None


def _beat_name(folder: Path) -> str:
    about = folder.stat()
    return f"latte-{about.st_dev}-{about.st_ino}"


@dataclass(frozen=True, slots=True)
class DeviceSummary:
    """A device in short; ``silent`` are the seconds since it last gave a sign of life, if that can be seen.

    A process that holds the record is ``alive``; one that has been silent for long is ``hung``; any other one is
    ``running``. ``collapse`` is the class that most of the latest zero-shot predictions are, and its share, if that is
    too large.
    """

    alive: bool
    silent: float | None
    status: record.DeviceStatus
    counts: SessionCounts
    recent: Stretch
    course: list[Stretch]
    collapse: tuple[str, float] | None
    labelled: Labelled
    pairs: Pairs = field(default_factory=Pairs)
    taught: int = 0  # labels that the device has learnt
    fleet: record.FleetKnowledge = field(default_factory=record.FleetKnowledge)
    unlike: int = 0  # pictures that were flagged
    due: int = 0  # labels that it has not learnt yet

    @property
    def help(self) -> Help:
        """Whether adapting helps: by the labels of the whole fleet, or by the device's own where it knows of more."""
        counts = self.counts
        pairs = max(self.pairs, Pairs(*self.fleet.pairs), key=lambda each: each.differing)
        share = counts.changed / counts.answered if counts.answered and pairs == self.pairs else None
        return help_of(pairs, share)  # how many answers differ elsewhere, a device does not know

    @property
    def falls_back(self) -> bool:
        """Whether the device answers with zero-shot."""
        return self.fleet.fallback and self.help.verdict == "hurts"

    @property
    def hung(self) -> bool:
        """Whether there is a process that does nothing any more."""
        return self.alive and self.silent is not None and self.silent > HUNG_SECONDS

    @property
    def running(self) -> bool:
        """Whether there is a process that works."""
        return self.alive and not self.hung

    @property
    def well(self) -> bool:
        """Whether the device runs, and neither its pictures nor its syncs have a problem."""
        return self.running and not self.status.problem and not self.status.sync_problem

    def document(self) -> dict[str, Any]:
        """Return it for JSON."""
        counts, accuracies = self.counts, accuracies_of(self.labelled)
        return {
            "running": self.running,
            "hung": self.hung,
            "well": self.well,
            "silent": self.silent,
            **asdict(self.status),
            "images": counts.answered,
            "unreadable": counts.unreadable,
            "differing": counts.changed,
            "near_copies": counts.near_copies,
            "agreement": self.recent.agreement,
            "entropy": self.recent.entropy,
            "collapsed": None if self.collapse is None else self.collapse[1],
            "course": [
                {"images": part.images, "agreement": part.agreement, "entropy": part.entropy} for part in self.course
            ],
            "labels": {"labelled": 0} if accuracies is None else asdict(accuracies),
            "taught": self.taught,
            "help": {**asdict(self.help), "fallback": self.falls_back},
            "flag": {"share": self.fleet.share, "threshold": self.fleet.threshold, "unlike": self.unlike},
        }


def summarise(database: Connection, folder: Path, classes: int) -> DeviceSummary:
    """Return what the file of a device says, whose task has so many classes, and whether its process works."""
    status = record.read_status(database)
    silent = silent_seconds(folder, status.pid)
    return DeviceSummary(
        silent is not None or is_locked(folder / f"{record.DEVICE_FILE}.lock"),
        silent,
        status,
        record.read_counts(database),
        sum(record.read_recent(database), Stretch()),
        record.read_course(database),
        collapse_of(record.read_zero_shot(database), classes),
        *read_labelled(database),
        count_taught(database),
        record.read_fleet(database),
        database.execute("SELECT count(*) FROM extras WHERE unlike").fetchone()[0],
        count_due(database),
    )
