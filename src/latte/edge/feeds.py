"""Where the pictures of a device come from: files, a list that grows, a folder that is watched, frames of a camera.

Files wait where they are: a few decoded pictures are in memory, and nothing is dropped. Of a watched folder, at most
:data:`QUEUE_ROOM` pictures wait in a queue, and the names of all files are in memory; of a list, one line at a time.
Frames of a camera do not wait: see ``latest_frames``.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from ..encoders.pictures import BadImageError
from .device_file import Source
from .handover import Handover, NothingYetError
from .watch_folder import WRITING_PATIENCE, FolderWatch, age, file_source

QUEUE_ROOM = 256  # names of files that wait in a queue
PICTURES_AHEAD = 4  # pictures that are decoded ahead: the device never waits for a disk, and few are in memory
WATCH_SECONDS = 0.5  # seconds between two looks at a folder
_SHARE = 20  # looking takes at most one part in 20 of the time, however large the folder and however slow the share
_TICK = 0.2  # seconds between two looks at whether to stop
_HURRY = 0.01  # seconds to wait for another picture while answers wait to be recorded with it

Prepare = Callable[[Path], Any]
T = TypeVar("T")


class Arrival(NamedTuple):
    """A picture to classify: what the encoder takes, or the problem with it."""

    source: Source
    picture: Any


class PicturePlace(Protocol):
    """A sequence of files, and how to read one of them; ``problem`` is a message for people, or empty."""

    problem: str

    @property
    def waiting(self) -> int:
        """How many files are known and not read yet."""

    def __iter__(self) -> Iterator[Path | Source]:
        """Yield files; wait for the next file if more may come."""

    def read(self, file: Any, prepare: Prepare) -> Arrival | None:
        """Read a file; return None if it is left out, at least for now."""


class NamedFiles:
    """Files that are named in advance or, one after the other, by a list that may grow.

    A file that cannot be read may still be being written: it is tried again until it has not changed for some seconds.
    """

    def __init__(self, files: Iterable[Path], is_done: Callable[[Source], bool]) -> None:
        self._files, self._is_done = files, is_done
        self.waiting, self.problem, self.skipped = 0, "", 0

    def __iter__(self) -> Iterator[Path]:
        return iter(self._files)

    def read(self, file: Path, prepare: Prepare) -> Arrival | None:
        """Read a file; return None if it has been classified before."""
        try:
            source = file_source(file)
        except (OSError, ValueError) as error:  # ValueError: a name with a NUL byte
            source = Source(str(file))
            return None if self._skips(source) else Arrival(source, _unreadable(file, error))
        return None if self._skips(source) else _read_written(file, source, prepare)

    def _skips(self, source: Source) -> bool:
        done = self._is_done(source)
        self.skipped += done
        return done


def _read_written(path: Path, source: Source, prepare: Prepare) -> Arrival:
    """Read a file as soon as it is complete; a file that stays unreadable is a problem."""
    since: float | None = None  # the moment of the last change, once it matters
    while True:
        picture = read_picture(path, prepare)
        try:
            now = file_source(path)
        except OSError as error:  # it is gone
            return Arrival(source, picture if not isinstance(picture, BadImageError) else _unreadable(path, error))
        if now != source:
            source, since = now, time.monotonic()
        elif not isinstance(picture, BadImageError):
            return Arrival(source, picture)
        else:
            since = time.monotonic() - age(source) if since is None else since
            if time.monotonic() - since >= WRITING_PATIENCE:
                return Arrival(source, picture)
        time.sleep(_TICK)


class WatchedFolder:
    """New pictures of a folder. A thread looks for them, so that a slow network share does not delay classifying."""

    def __init__(self, watch: FolderWatch, every: float = WATCH_SECONDS, room: int = QUEUE_ROOM) -> None:
        self._watch, self._every = watch, every
        self._queue: queue.Queue[Source] = queue.Queue(room)
        self.problem = ""

    @property
    def waiting(self) -> int:
        """Pictures that are ready and not read yet, up to the room of the queue."""
        return self._queue.qsize()

    def __iter__(self) -> Iterator[Source]:
        threading.Thread(target=self._look, name="latte-watch", daemon=True).start()
        while True:
            yield self._queue.get()

    def _look(self) -> None:
        while True:
            start = time.monotonic()
            try:
                ready = self._watch.look()
                self.problem = self._watch.problem
            except OSError as error:
                ready, self.problem = [], f"{self._watch.folder}: {error.strerror or error}"
            taken = time.monotonic() - start
            for source in ready:
                self._queue.put(source)  # waits while the queue is full
            time.sleep(max(self._every, _SHARE * taken))

    def read(self, file: Source, prepare: Prepare) -> Arrival | None:
        """Read a file; return None if it is gone, or not complete yet: then it comes again."""
        path = Path(file.name)
        picture = read_picture(path, prepare)
        if isinstance(picture, BadImageError):
            gone = not os.path.lexists(path)
            return None if gone or self._watch.give_back(file) else Arrival(file, picture)
        try:
            changed = file_source(path) != file
        except OSError:
            changed = False
        return None if changed else Arrival(file, picture)  # the next look sees what it is now


class PictureFeed:
    """The pictures of a place, read and decoded ahead by a thread. While there is none, it yields None now and then.

    If the consumer sets ``hurry``, it yields None almost at once.
    """

    def __init__(self, place: PicturePlace, prepare: Prepare, ahead: int = PICTURES_AHEAD) -> None:
        self.place, self._prepare = place, prepare
        self._ready: Handover[Arrival | BaseException | None] = Handover(ahead)
        self._over = threading.Event()
        self.hurry = False

    @property
    def waiting(self) -> int:
        """Pictures that are known and not classified yet."""
        return self.place.waiting + len(self._ready)

    def __iter__(self) -> Iterator[Arrival | None]:
        threading.Thread(target=self._read, name="latte-read", daemon=True).start()
        while True:
            try:
                arrival = self._ready.get(_HURRY if self.hurry else _TICK)
            except NothingYetError:
                yield None
                continue
            if arrival is None:
                return
            if isinstance(arrival, BaseException):
                raise arrival
            yield arrival

    def close(self) -> None:
        """Let the thread end with the picture that it reads."""
        self._over.set()

    def _read(self) -> None:
        try:
            for file in self.place:
                arrival = self.place.read(file, self._prepare)
                if arrival is not None and not self._put(arrival):
                    return
        except BaseException as error:  # is raised where the next picture is taken
            self._put(error)
        else:
            self._put(None)

    def _put(self, item: Arrival | BaseException | None) -> bool:
        """Wait for room; return False if nobody takes pictures any more."""
        while not self._over.is_set():
            if self._ready.put(item, _TICK):
                return True
        return False


def read_picture(path: Path, prepare: Prepare) -> Any:
    """Return what the encoder takes, or the problem with a file."""
    try:
        return prepare(path)
    except BadImageError as error:
        return error
    except OSError as error:
        return _unreadable(path, error)


def _unreadable(path: Path, error: OSError | ValueError) -> BadImageError:
    return BadImageError(f"{path}: {getattr(error, 'strerror', None) or error}")
