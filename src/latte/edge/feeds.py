"""Where the pictures of a device come from: files, a list that grows, a folder that is watched, frames of a camera.

Files wait where they are: a few decoded pictures are in memory, and nothing is dropped. Of a watched folder, at most
:data:`QUEUE_ROOM` pictures wait in a queue, and the names of all files are in memory; of a list, one line at a time.
Frames of a camera do not wait: see ``latest_frames``.

A file that cannot be read because of the system, not because of what is in it, is tried again after a while. If that
does not help it is recorded as :func:`unread`: as no version of the file, so that the next start tries it again.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from ..encoders.pictures import HEIC_HINT, LASTING, BadImageError
from .device_file import Source
from .handover import Handover, NothingYetError
from .watch_folder import WRITING_PATIENCE, FolderWatch, age, file_source

QUEUE_ROOM = 256  # names of files that wait in a queue
PICTURES_AHEAD = 4  # pictures that are decoded ahead: the device never waits for a disk, and few are in memory
WATCH_SECONDS = 0.5  # seconds between two looks at a folder
HEARD_SECONDS = 10.0  # the same where the system tells of new files: in case it does not tell of all
_SHARE = 20  # looking takes at most one part in 20 of the time, however large the folder and however slow the share
_TICK = 0.2  # seconds between two looks at whether to stop
NAMED_TRIES = 3  # of a named file that the system does not let us read: the next one need not wait for long
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
    def notice(self) -> str:
        """What is left out of the pictures, and why; empty if nothing is."""

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
    ``failed`` counts those that could not be read.
    """

    def __init__(self, files: Iterable[Path], is_done: Callable[[Source], bool]) -> None:
        self._files, self._is_done = files, is_done
        self.waiting, self.problem, self.notice, self.skipped, self.failed = 0, "", "", 0, 0

    def __iter__(self) -> Iterator[Path]:
        return iter(self._files)

    def read(self, file: Path, prepare: Prepare) -> Arrival | None:
        """Read a file; return None if it has been classified before."""
        try:
            source = file_source(file)
        except (OSError, ValueError) as error:  # ValueError: a name with a NUL byte
            self.failed += 1
            return Arrival(unread(file), _unreadable(file, error))
        if self._skips(source):
            return None
        arrival = _read_written(file, source, prepare)
        self.failed += isinstance(arrival.picture, BadImageError)
        return arrival

    def _skips(self, source: Source) -> bool:
        done = self._is_done(source)
        self.skipped += done
        return done


def unread(path: Path | str) -> Source:
    """Return a file of which nothing is known but its name: what is recorded of one that could not be read."""
    return Source(str(path))


def _read_written(path: Path, source: Source, prepare: Prepare) -> Arrival:
    """Read a file as soon as it is complete; a file that stays unreadable is a problem."""
    since: float | None = None  # the moment of the last change, once it matters
    tries = 0
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
        elif picture.passing:
            tries += 1
            if tries == NAMED_TRIES:
                return Arrival(unread(path), picture)
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
        self.forget = watch.forget

    @property
    def waiting(self) -> int:
        """Pictures that are ready and not read yet, up to the room of the queue."""
        return self._queue.qsize()

    @property
    def notice(self) -> str:
        """What is left out, and why."""
        return f"{self._watch.heic} is left out: {HEIC_HINT}" if self._watch.heic else ""

    def __iter__(self) -> Iterator[Source]:
        threading.Thread(target=self._look, name="latte-watch", daemon=True).start()
        while True:
            yield self._queue.get()

    def _look(self) -> None:
        """Look at the folder for ever: whatever goes wrong is a problem that people are told, and may be over."""
        while True:
            start, ready, often = time.monotonic(), list[Source](), True
            try:
                ready = self._watch.look()
                self.problem = self._watch.problem
                often = bool(self.problem) or not self._watch.hears_all
            except Exception as error:
                self._note(error)
            taken = time.monotonic() - start
            self._hand_out(ready)
            pause = self._every if often else max(self._every, HEARD_SECONDS)
            self._listen(max(pause, _SHARE * taken))

    def _listen(self, seconds: float) -> None:
        """Hand out what arrives meanwhile; end early if that is not known."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            try:
                ready = self._watch.wait(left)
            except Exception as error:
                self._note(error)
                time.sleep(min(left, self._every))
                return
            if ready is None:
                time.sleep(min(left, self._every))
                return
            self._hand_out(ready)

    def _note(self, error: Exception) -> None:
        kind = "" if isinstance(error, OSError) else f"{type(error).__name__}: "
        self.problem = f"{self._watch.folder}: {kind}{getattr(error, 'strerror', None) or error}"

    def _hand_out(self, ready: list[Source]) -> None:
        for source in ready:
            self._queue.put(source)  # waits while the queue is full

    def read(self, file: Source, prepare: Prepare) -> Arrival | None:
        """Read a file; return None if it is gone, or not complete yet, or cannot be read now: then it comes again."""
        path = Path(file.name)
        picture = read_picture(path, prepare)
        if isinstance(picture, BadImageError):
            if not os.path.lexists(path):
                self._watch.forget(file.name)  # a folder that is away may come back
                return None
            if self._watch.give_back(file, picture.passing):
                return None
            return Arrival(unread(path) if picture.passing else file, picture)
        try:
            changed = file_source(path) != file
        except OSError:
            changed = False
        if changed:
            self._watch.forget(file.name)
        return None if changed else Arrival(file, picture)  # the next look sees what it is now


class PictureFeed:
    """The pictures of a place, read and decoded ahead by a thread. While there is none, it yields None now and then.

    If the consumer sets ``hurry``, it yields None almost at once.
    """

    def __init__(self, place: PicturePlace, prepare: Prepare, ahead: int = PICTURES_AHEAD) -> None:
        self.place, self._prepare = place, prepare
        self._ready: Handover[Arrival | BaseException | None] = Handover(ahead)
        self._over = threading.Event()
        self._reading = False
        self.hurry = False

    @property
    def waiting(self) -> int:
        """Pictures that are known and not classified yet."""
        return self.place.waiting + len(self._ready)

    @property
    def more(self) -> bool:
        """Whether another picture is known to come: it waits, or is being read."""
        return self._reading or self.waiting > 0

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
                self._reading = True
                arrival = self.place.read(file, self._prepare)
                if arrival is not None and not self._put(arrival):
                    return
                self._reading = False
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
    except (OSError, MemoryError) as error:
        return _unreadable(path, error)


def _unreadable(path: Path, error: OSError | ValueError | MemoryError) -> BadImageError:
    passing = isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno not in LASTING)
    reason = "not enough memory to read it" if isinstance(error, MemoryError) else getattr(error, "strerror", None)
    return BadImageError(f"{path}: {reason or error}", passing)
