"""A file with the answers of a device as lines of JSON: after a crash it ends up with every answer exactly once.

The record of the device decides. When the file is opened, everything after the last recorded answer is cut off (half a
line, or lines whose answers a power cut took from the record), and missing answers are added. Another program may
rename or empty the file to begin a new one (logrotate): the lines go on there, and earlier ones are not written again.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from ..errors import InputError, refuse
from ..files.documents import parse_json
from .device_file import NumberedAnswer, absolute_name, open_record, read_answers, read_status

_BLOCK = 1 << 16  # bytes that are read at once
_BEGIN = b'{"number": '  # of every line


class AnswerLog:
    """The file ``path`` with the answers in the record in ``state``, up to date from the start.

    ``number`` is the last answer that the file, or one before it, has. The record has to store it, with ``name``.
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
        database = open_record(state)
        try:
            last = database.execute("SELECT coalesce(max(number), 0) FROM pictures").fetchone()[0]
            with self._path.open("rb") as file:
                self.number, self._end = _covered_part(file, last)
            self._file.truncate(self._end)
            before = read_status(database)
            if not self._end and before.log == self.name:  # a new file in the place of one that had these
                self.number = min(before.logged, last)
            for answer in read_answers(database, self.number):
                self.add(answer)
        finally:
            database.close()

    def add(self, answer: NumberedAnswer) -> None:
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


def _covered_part(file: BinaryIO, last: int) -> tuple[int, int]:
    """Return the number of the last answer up to ``last`` that a file has, and the byte after it.

    It is looked for from the end: a file may have any number of lines, and may begin with any answer.
    """
    size = file.seek(0, os.SEEK_END)
    end = _newline_before(file, size) + 1
    half = _read(file, end, min(size, end + len(_BEGIN)))
    if half != _BEGIN[: len(half)]:
        raise _refusal(file.name)
    while end:
        start = _newline_before(file, end - 1) + 1
        number = _number(_read(file, start, end), file.name)
        if number <= last:
            return number, end
        end = start
    return 0, 0


def _newline_before(file: BinaryIO, end: int) -> int:
    """Return the place of the last line break before a place; -1 if there is none."""
    while end > 0:
        start = max(0, end - _BLOCK)
        found = _read(file, start, end).rfind(b"\n")
        if found >= 0:
            return start + found
        end = start
    return -1


def _read(file: BinaryIO, start: int, end: int) -> bytes:
    file.seek(start)
    return file.read(end - start)


def _number(line: bytes, name: str) -> int:
    try:
        value = parse_json(line, name)["number"]
    except (InputError, TypeError, KeyError, IndexError):
        value = None
    if not isinstance(value, int):
        raise _refusal(name)
    return value


def _refusal(name: str) -> ValueError:
    return refuse(name, "a line that is no answer of a device", "a file that latte edge wrote, or a new one")
