"""A memory file that is kept up to date while pictures are classified, by one process at a time.

Until a call is finished, its file has a note ``unfinished``: how many pictures it covers, and a digest of their names.
The same call after an interruption continues behind those pictures, and prints the lines that the interrupted call
would have printed; its counts at the end are those of its own pictures.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from ..core.contracts import Method
from ..core.zero_shot import ZeroShot
from ..errors import InputError, refuse
from ..files.documents import parse_json
from ..files.locks import lock
from ..files.reading import check_regular
from ..files.schema import structure
from .memory_file import load_memory, save_memory

SAVE_SECONDS = 10  # seconds of work that a power cut may cost
_SHARE = 20  # saving takes at most one part in 20 of the time, however large the memory and however slow the disk
_NOTE = "unfinished"


@contextmanager
def locked_memory(path: Path) -> Iterator[Path]:
    """Keep other processes from a memory file while the block runs; yield the file that a link leads to."""
    target = Path(os.path.realpath(path))
    check_regular(path, "memory")
    if target.is_symlink() or not target.parent.is_dir():
        raise refuse("memory", f"{path}, whose folder is not there", "a file in a folder that is")
    with lock(Path(f"{target}.lock"), f"memory {path}"):
        yield target


@dataclass(frozen=True, slots=True)
class Unfinished:
    """The note in the memory of a call that is not finished: how many files it covers, and a digest of their names."""

    done: int
    digest: str


class Learning:
    """A method that learns from ``files``, in order, and the file that stores its memory.

    ``start`` is the number of files that the memory covered at the beginning, ``done`` the number that it covers now.
    ``before_save()`` is called before the memory file is written, to put on disk what has to be there first.
    """

    def __init__(
        self,
        file: Path,
        method: Method,
        zero_shot: ZeroShot,
        files: Sequence[Path],
        every: float = SAVE_SECONDS,
        before_save: Callable[[], object] = lambda: None,
    ) -> None:
        self.file, self.method, self.zero_shot, self.every = file, method, zero_shot, every
        self.files, self._before_save = files, before_save
        notes = load_memory(file, method, zero_shot) if file.exists() else {}
        self.start = self.done = covered_files(notes, files)
        self.finished = False
        self._digest = _digest(files[: self.start])
        self._saved, self._cost = time.monotonic(), 0.0

    def count(self) -> None:
        """Count the next file as learnt, and save if it is time."""
        self._digest.update(_name(self.files[self.done]))
        self.done += 1
        if time.monotonic() - self._saved >= max(self.every, _SHARE * self._cost):
            self.save()

    def save(self) -> None:
        """Write the memory and the number of files that it covers."""
        self._before_save()
        before = time.monotonic()
        unfinished = Unfinished(self.done, self._digest.hexdigest())
        notes = {} if self.finished else {_NOTE: json.dumps(asdict(unfinished))}
        save_memory(self.file, self.method, self.zero_shot, notes)
        self._saved = time.monotonic()
        self._cost = self._saved - before

    def finish(self) -> None:
        """Write the memory: it has learnt from all files."""
        self.finished = True
        self.save()


def covered_files(notes: Mapping[str, str], files: Sequence[Path]) -> int:
    """Return the number of ``files`` that an interrupted call has covered; 0 after a call with other files.

    ``notes`` are those of its memory file.
    """
    try:
        note = structure(parse_json(notes.get(_NOTE, ""), _NOTE), Unfinished, _NOTE)
    except InputError:
        return 0
    same = 0 < note.done <= len(files) and _digest(files[: note.done]).hexdigest() == note.digest
    return note.done if same else 0


def _digest(files: Sequence[Path]) -> hashlib._Hash:
    digest = hashlib.sha256()
    for file in files:
        digest.update(_name(file))
    return digest


def _name(file: Path) -> bytes:
    return os.fsencode(os.path.abspath(file)) + b"\0"  # noqa: PTH100  a link stays the link that was named
