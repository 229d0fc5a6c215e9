"""A file with the answers of a device as lines of JSON: after a crash it ends up with every answer exactly once.

The record of the device decides. When the file is opened, everything after the last recorded answer is cut off (half a
line, or lines whose answers a power cut took from the record), and missing answers are added.
"""

from __future__ import annotations

import errno
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from ..errors import InputError, refuse
from ..files.documents import parse_json
from .device_file import NumberedAnswer, open_record, read_answers

_LONGEST = 1 << 20  # bytes of a line


class AnswerLog:
    """The file ``path`` with the answers in the record in ``state``, up to date from the start."""

    def __init__(self, path: Path, state: Path) -> None:
        self._path = path
        self._file = path.open("ab", buffering=0)  # a write that fails leaves nothing behind in memory
        try:
            self._complete(state)
        except BaseException:
            self._file.close()
            raise

    def _complete(self, state: Path) -> None:
        database = open_record(state)
        try:
            last = database.execute("SELECT coalesce(max(number), 0) FROM pictures").fetchone()[0]
            with self._path.open("rb") as file:
                number, self._end = _covered_part(file, last)
            self._file.truncate(self._end)
            for answer in read_answers(database, number):
                self.add(answer)
        finally:
            database.close()

    def add(self, answer: NumberedAnswer) -> None:
        """Write a line, as a whole or not at all: an OSError leaves the file as it was."""
        line = json.dumps(answer.document()).encode() + b"\n"
        try:
            if self._file.write(line) < len(line):  # the rest had no room
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            with suppress(OSError):
                self._file.truncate(self._end)
            raise OSError(error.errno, error.strerror, str(self._path)) from None
        self._end += len(line)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _covered_part(file: BinaryIO, last: int) -> tuple[int, int]:
    """Return the number of the last answer up to ``last`` that a file has, and the byte after it."""
    number, end = 0, 0
    file.seek(0)
    while (line := file.readline(_LONGEST)).endswith(b"\n"):
        now = _number(line, file.name)
        if now > last:
            break
        number, end = now, end + len(line)
    return number, end


def _number(line: bytes, name: str) -> int:
    try:
        value = parse_json(line, name)["number"]
    except (InputError, TypeError, KeyError, IndexError):
        value = None
    if not isinstance(value, int):
        raise refuse(name, "a line that is no answer of a device", "a file that latte edge wrote, or a new one")
    return value
