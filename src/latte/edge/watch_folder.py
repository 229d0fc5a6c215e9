"""Pictures that arrive in a folder, which is looked at again and again: that works on any file system, also on a share.

A picture is ready when it has not changed for a while. A file that is still being written has a newer time or another
size at the next look.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..encoders.pictures import PICTURE_SUFFIXES
from .device_file import Source

SETTLED_SECONDS = 1.0  # seconds without a change after which a file is tried
WRITING_PATIENCE = 10.0  # seconds without a change after which an unreadable file counts as finished


@dataclass(slots=True)
class _Watched:
    """A file, the moment (of the monotonic clock) since which it is unchanged, and whether it was handed out."""

    source: Source
    since: float
    taken: bool = False


class FolderWatch:
    """Looks for new pictures below ``folder``; ``is_done`` says which pictures are not new.

    Each picture is handed out once; after :meth:`give_back` it is handed out again. Clocks of other machines do not
    matter, except that at the first look a file which seems to be older than ``settled`` seconds is ready at once.
    """

    def __init__(self, folder: Path, is_done: Callable[[Source], bool], settled: float = SETTLED_SECONDS) -> None:
        self.folder, self._is_done, self._settled = folder, is_done, settled
        self._files: dict[str, _Watched] = {}
        self.problem = ""  # with a file or a folder below ``folder``, at the last look
        self._first = True
        self._lock = threading.Lock()  # one thread looks, another gives back

    def look(self) -> list[Source]:
        """Return the new pictures that are ready, the oldest first; a folder that cannot be read is an OSError.

        What cannot be looked at below it is left out, and the first such case is the ``problem``.
        """
        problems: list[OSError] = []
        present = list(pictures_below(self.folder, problems.append))  # without the lock: a share may take its time
        self.problem = describe_problem(problems[0]) if problems else ""
        with self._lock:
            now, before = time.monotonic(), self._files
            self._files = {source.name: self._watched(source, before.get(source.name), now) for source in present}
            self._first = False
            waiting = [file for file in self._files.values() if not file.taken and now - file.since >= self._settled]
            ready = []
            for file in waiting:
                file.taken = True
                if not self._is_done(file.source):
                    ready.append(file.source)
        return sorted(ready, key=lambda source: (source.modified, source.name))

    def _watched(self, source: Source, before: _Watched | None, now: float) -> _Watched:
        if before is not None and before.source == source:
            return before
        return _Watched(source, now - age(source) if self._first else now)

    def give_back(self, source: Source) -> bool:
        """Take back a picture that cannot be read; return whether it is worth waiting for, or has changed or gone."""
        with self._lock:
            file = self._files.get(source.name)
            if file is None or file.source != source:
                return True  # the next look sees what it is now
            file.taken = time.monotonic() - file.since >= WRITING_PATIENCE
            return not file.taken


def age(source: Source) -> float:
    """Return the seconds since a file was changed, by the clocks; 0 if its time lies in the future."""
    return max(0.0, time.time() - source.modified / 1e9)


def pictures_below(folder: Path, complain: Callable[[OSError], object]) -> Iterator[Source]:
    """Yield the pictures in a folder and the folders in it; hidden ones are left out.

    A file or an inner folder that cannot be looked at is passed to ``complain`` and left out.
    """
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            try:
                if entry.is_dir(follow_symlinks=False):
                    yield from pictures_below(Path(entry.path), complain)
                elif Path(entry.name).suffix.lower() in PICTURE_SUFFIXES and entry.is_file():
                    about = entry.stat()
                    yield Source(entry.path, about.st_mtime_ns, about.st_size)
            except FileNotFoundError:  # it was there a moment ago
                continue
            except OSError as error:
                complain(error)


def describe_problem(error: OSError) -> str:
    """Return in a line which file or folder has which problem."""
    return f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error)


def file_source(path: Path) -> Source:
    """Return a file as it is now."""
    name = os.fspath(path)
    about = os.stat(name)  # noqa: PTH116  for every picture, twice: half the time of Path.stat
    return Source(name, about.st_mtime_ns, about.st_size)
