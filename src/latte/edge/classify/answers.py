"""Answers for other programs: lines of JSON, and a CSV file with a row per picture, safe to open in a spreadsheet.

Every row is one line: control characters of a name are written out. A row is handed to the system as soon as it is
known, and is on disk (:meth:`AnswerFile.sync`) before a memory file counts its picture as done. After an interruption
the file therefore has at least the rows that the memory covers; later rows are cut off and written again.
"""

from __future__ import annotations

import base64
import csv
import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, BinaryIO

from ...errors import refuse
from ...files.atomic import check_writable, lock, write_bytes
from ...files.documents import check_regular, open_file
from ...text import csv_cell
from .classify import Answer

_UNUSUAL = ("adapted", "mcm", "unlike", "margin", "soft_label")
FLAG_COLUMNS = ("mcm", "unlike")  # where somebody named a share of images to flag
ANSWER_COLUMNS = tuple(field.name for field in fields(Answer) if field.name not in _UNUSUAL)
_DIGITS = 6  # of a probability


@contextmanager
def locked_answers(path: Path) -> Iterator[Path]:
    """Keep other processes from a file of answers while the block runs; yield the file that a link leads to."""
    check_regular(path, "csv")
    check_writable(path, "csv")
    target = Path(os.path.realpath(path))
    with lock(Path(f"{target}.lock"), f"csv {path}"):
        yield target


class AnswerFile:
    """The rows of ``files`` from position ``start`` on. Earlier rows must be in the file, unless the file is new.

    Nothing is written before :meth:`open`.
    """

    def __init__(
        self, path: Path, files: Sequence[Path], start: int = 0, columns: Sequence[str] = ANSWER_COLUMNS
    ) -> None:
        self.path, self._columns = path, columns
        self.missing = start if start and not path.exists() else 0  # rows of an earlier call, in another file
        self._length = _checked_length(path, files[:start], columns) if start and not self.missing else 0
        self._file: BinaryIO | None = None

    def open(self) -> None:
        """Begin to write: behind the rows that stay, or in a new file."""
        if not self._length:
            write_bytes(self.path, _line(self._columns))
        self._file = self.path.open("r+b")
        self._file.truncate(self._length or len(_line(self._columns)))
        self._file.seek(0, os.SEEK_END)

    def add(self, answer: Answer) -> None:
        """Write the row of one answer."""
        assert self._file is not None
        self._file.write(_line([_cell(getattr(answer, name)) for name in self._columns]))
        self._file.flush()

    def sync(self) -> None:
        """Wait until the rows are on disk."""
        if self._file is not None:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """End, with everything on disk."""
        if self._file is not None:
            self.sync()
            self._file.close()
            self._file = None


def _cell(value: object) -> object:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.{_DIGITS}f}" if isinstance(value, float) else value


def _line(cells: Sequence[object]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow([csv_cell(cell) for cell in cells])
    return text.getvalue().encode()


def answer_fields(answer: Answer) -> dict[str, Any]:
    """Return an answer for JSON; what was not asked for, and what is as usual, is left out."""
    fields = {name: getattr(answer, name) for name in ANSWER_COLUMNS}  # not asdict: this is done for every picture
    if answer.adapted is not None:
        fields["adapted"] = answer.adapted
    if answer.mcm is not None:
        fields |= {"mcm": answer.mcm, "unlike": answer.unlike}
    return fields


def _checked_length(path: Path, files: Sequence[Path], columns: Sequence[str]) -> int:
    """Return the length in bytes of the header and the rows of ``files``, or refuse the file."""
    with open_file(path, "csv") as file:
        whole = file.readline() == _line(columns)
        for picture in files:
            row = file.readline()
            whole = whole and row.endswith(b"\n") and row.startswith(_line([str(picture)])[:-1] + b",")
        if whole:
            return file.tell()
    want = f"the rows of the {len(files)} pictures that the memory covers: give another --out, or remove the file"
    raise refuse(f"csv {path}", "other rows", want)


def json_line(document: Mapping[str, Any]) -> str:
    r"""Return JSON that any program can read: bytes of a file's name that are no UTF-8 are written as \xNN.

    Such a line has the name itself as ``file_base64``, too.

    >>> json_line({"file": "caf\udce9.jpg"})
    '{"file": "caf\\\\xe9.jpg", "file_base64": "Y2Fm6S5qcGc="}'
    """
    text = json.dumps(document)
    if "\\ud" not in text:  # as nearly always
        return text
    safe = dict(document)
    for name, value in document.items():
        if isinstance(value, str):  # lone surrogates stand for bytes that are no UTF-8
            try:
                safe[name] = value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
            except UnicodeEncodeError:  # half a character that stands for no byte
                safe[name] = value.encode("utf-8", "backslashreplace").decode()
    if safe.get("file") != document.get("file"):
        safe["file_base64"] = base64.b64encode(os.fsencode(document["file"])).decode()
    return json.dumps(safe)
